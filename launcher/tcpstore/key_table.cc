// The keys of one store.
#include "launcher/tcpstore/key_table.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"

namespace ddl::tcpstore {
namespace {

// What an entry costs beside its bytes, about.
constexpr std::size_t kEntryOverhead = 2 * kStringOverhead;

// As PyTorch reads it (strtoll): leading blanks, a sign, digits; what follows
// them does not count.
std::optional<std::int64_t> ToNumber(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n\v\f\r");
  if (first == std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(first);
  if (text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') {
      return std::nullopt;
    }
  }
  std::int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> Sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::nullopt : std::optional(sum);
}

std::size_t CostOfWait(const std::vector<std::string>& keys) {
  std::size_t cost = 0;
  for (const std::string& key : keys) {
    cost += key.size() + kEntryOverhead;
  }
  return cost;
}

}  // namespace

// ---- keys -------------------------------------------------------------------

absl::Status KeyTable::CheckRoom(bool is_new, const std::string& key, std::size_t value_bytes,
                                 std::size_t former_bytes) const {
  if (is_new && values_.size() + queued_ >= limits_.max_keys) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store is full: it holds ", limits_.max_keys, " keys"));
  }
  if (value_bytes > limits_.max_value_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the value would grow to ", value_bytes,
                                                     " bytes; at most ", limits_.max_value_bytes,
                                                     " are taken"));
  }
  const std::size_t more = value_bytes + (is_new ? key.size() + kEntryOverhead : 0);
  if (stored_bytes_ - former_bytes + more > limits_.max_stored_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store is full: it holds ", limits_.max_stored_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status KeyTable::Put(const std::string& key, std::string value) {
  const auto it = values_.find(key);
  const bool is_new = it == values_.end();
  const std::size_t former_bytes = is_new ? 0 : it->second->size();
  DDL_RETURN_IF_ERROR(CheckRoom(is_new, key, value.size(), former_bytes));
  stored_bytes_ = stored_bytes_ - former_bytes + value.size();
  if (is_new) {
    stored_bytes_ += key.size() + kEntryOverhead;
    key_bytes_ += key.size();
    values_.emplace(key, std::make_shared<std::string>(std::move(value)));
  } else if (it->second.use_count() == 1) {
    *it->second = std::move(value);
  } else {
    it->second = std::make_shared<std::string>(std::move(value));
  }
  WakeAll(key, &Waiters::for_key);
  return absl::OkStatus();
}

absl::Status KeyTable::Set(const std::string& key, std::string value) {
  return Put(key, std::move(value));
}

absl::StatusOr<Blob> KeyTable::CompareSet(const std::string& key, std::string expected,
                                          std::string desired) {
  const auto it = values_.find(key);
  if (it == values_.end()) {
    if (!expected.empty()) {
      return std::make_shared<const std::string>(std::move(expected));
    }
  } else if (*it->second != expected) {
    return Blob(it->second);
  }
  DDL_RETURN_IF_ERROR(Put(key, std::move(desired)));
  return Get(key);
}

Blob KeyTable::Get(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : it->second;
}

absl::StatusOr<std::int64_t> KeyTable::SumWith(const std::string& key, std::int64_t delta) const {
  std::int64_t former = 0;
  if (const auto it = values_.find(key); it != values_.end()) {
    const std::optional<std::int64_t> number = ToNumber(*it->second);
    if (!number.has_value()) {
      return absl::InvalidArgumentError("ADD to a value that is no number");
    }
    former = *number;
  }
  const std::optional<std::int64_t> sum = Sum(former, delta);
  if (!sum.has_value()) {
    return absl::InvalidArgumentError("ADD beyond 64 bits");
  }
  return *sum;
}

absl::StatusOr<std::int64_t> KeyTable::Add(const std::string& key, std::int64_t delta) {
  DDL_ASSIGN_OR_RETURN(const std::int64_t sum, SumWith(key, delta));
  DDL_RETURN_IF_ERROR(Put(key, std::to_string(sum)));
  return sum;
}

absl::Status KeyTable::Append(const std::string& key, std::string_view value) {
  const auto it = values_.find(key);
  if (it == values_.end()) {
    return Put(key, std::string(value));
  }
  const std::size_t former_bytes = it->second->size();
  DDL_RETURN_IF_ERROR(CheckRoom(/*is_new=*/false, key, former_bytes + value.size(), former_bytes));
  stored_bytes_ += value.size();
  if (it->second.use_count() > 1) {
    it->second = std::make_shared<std::string>(*it->second);
  }
  it->second->append(value);
  return absl::OkStatus();
}

bool KeyTable::Delete(const std::string& key) {
  const auto it = values_.find(key);
  if (it == values_.end()) {
    return false;
  }
  stored_bytes_ -= key.size() + it->second->size() + kEntryOverhead;
  key_bytes_ -= key.size();
  values_.erase(it);
  return true;
}

bool KeyTable::HasAll(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) {
    return values_.contains(key) || queues_.contains(key);
  });
}

// ---- queues: those in the table are never empty -----------------------------

absl::Status KeyTable::Push(const std::string& key, std::string value) {
  DDL_RETURN_IF_ERROR(CheckRoom(/*is_new=*/true, key, value.size(), 0));
  stored_bytes_ += key.size() + value.size() + kEntryOverhead;
  ++queued_;
  queues_[key].push_back(std::make_shared<std::string>(std::move(value)));
  WakeOne(key);
  return absl::OkStatus();
}

KeyTable::Popped KeyTable::Pop(const std::string& key) {
  const auto it = queues_.find(key);
  if (it == queues_.end()) {
    return {};
  }
  Popped popped{it->second.size(), std::move(it->second.front())};
  stored_bytes_ -= key.size() + popped.value->size() + kEntryOverhead;
  --queued_;
  it->second.pop_front();
  if (it->second.empty()) {
    queues_.erase(it);
  }
  return popped;
}

std::size_t KeyTable::QueueLength(const std::string& key) const {
  const auto it = queues_.find(key);
  return it == queues_.end() ? 0 : it->second.size();
}

// ---- waiting ----------------------------------------------------------------

absl::Status KeyTable::CheckWaitRoom(const std::vector<std::string>& keys) const {
  if (wait_bytes_ + CostOfWait(keys) > limits_.max_wait_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the waits for keys cost more than ", limits_.max_wait_bytes, " bytes"));
  }
  return absl::OkStatus();
}

// REQUIRES: the client does not wait, and there is room.
void KeyTable::Register(Client client, std::vector<std::string> keys, Line Waiters::*line) {
  Waiting waiting;
  waiting.cost = CostOfWait(keys);
  waiting.id = ++last_wait_;
  for (const std::string& key : keys) {
    // A key that was named twice is waited for once.
    waiting.missing += (waiters_[key].*line).emplace(waiting.id, client).second ? 1 : 0;
  }
  waiting.keys = std::move(keys);
  wait_bytes_ += waiting.cost;
  waiting_.emplace(client, std::move(waiting));
}

void KeyTable::Forget(std::unordered_map<Client, Waiting>::iterator waiting) {
  wait_bytes_ -= waiting->second.cost;
  waiting_.erase(waiting);
}

absl::StatusOr<bool> KeyTable::Wait(Client client, const std::vector<std::string>& keys) {
  CancelWait(client);
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!values_.contains(key) && !queues_.contains(key)) {
      missing.push_back(key);
    }
  }
  if (missing.empty()) {
    return true;
  }
  DDL_RETURN_IF_ERROR(CheckWaitRoom(missing));
  Register(client, std::move(missing), &Waiters::for_key);
  return false;
}

absl::StatusOr<bool> KeyTable::Barrier(Client client, const std::string& key,
                                       std::int64_t world_size) {
  CancelWait(client);
  DDL_ASSIGN_OR_RETURN(const std::int64_t count, SumWith(key, 1));
  const bool is_last = count >= world_size;
  if (!is_last) {
    DDL_RETURN_IF_ERROR(CheckWaitRoom({key}));  // who is refused is not counted
  }
  DDL_RETURN_IF_ERROR(Put(key, std::to_string(count)));
  if (is_last) {
    WakeAll(key, &Waiters::for_barrier);
  } else {
    Register(client, {key}, &Waiters::for_barrier);
  }
  return is_last;
}

void KeyTable::CancelWait(Client client) {
  const auto it = waiting_.find(client);
  if (it == waiting_.end()) {
    return;
  }
  for (const std::string& key : it->second.keys) {
    const auto waiters = waiters_.find(key);
    if (waiters == waiters_.end()) {
      continue;
    }
    waiters->second.for_key.erase(it->second.id);
    waiters->second.for_barrier.erase(it->second.id);
    if (waiters->second.for_key.empty() && waiters->second.for_barrier.empty()) {
      waiters_.erase(waiters);
    }
  }
  Forget(it);
}

// One of the keys that the client waits for has come.
void KeyTable::Wake(Client client) {
  const auto it = waiting_.find(client);
  if (--it->second.missing == 0) {
    Forget(it);
    woken_.push_back(client);
  }
}

void KeyTable::WakeAll(const std::string& key, Line Waiters::*line) {
  const auto it = waiters_.find(key);
  if (it == waiters_.end()) {
    return;
  }
  const Line woken = std::exchange(it->second.*line, {});
  if (it->second.for_key.empty() && it->second.for_barrier.empty()) {
    waiters_.erase(it);
  }
  for (const auto& [id, client] : woken) {
    Wake(client);
  }
}

// The first whose wait this fulfils; those before it wait for other keys too.
void KeyTable::WakeOne(const std::string& key) {
  const auto it = waiters_.find(key);
  if (it == waiters_.end()) {
    return;
  }
  Line& line = it->second.for_key;
  const std::size_t woken_before = woken_.size();
  while (!line.empty() && woken_.size() == woken_before) {
    const Client client = line.begin()->second;
    line.erase(line.begin());
    Wake(client);
  }
  if (line.empty() && it->second.for_barrier.empty()) {
    waiters_.erase(it);
  }
}

}  // namespace ddl::tcpstore
