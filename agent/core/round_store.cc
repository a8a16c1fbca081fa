// Keys and barriers of one round.
#include "agent/core/round_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"

namespace ddl::core {
namespace {

absl::Status CheckName(const char* what, const std::string& name) {
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " has no name"));
  }
  if (name.size() > limits::kMaxKeyBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the name of a ", what, " has ", name.size(),
                                                     " bytes; the limit is ",
                                                     limits::kMaxKeyBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::set<std::string>> RoundStore::Put(const std::string& key,
                                                      const std::string& value) {
  DDL_RETURN_IF_ERROR(CheckName("key", key));
  if (value.size() > limits::kMaxValueBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the value of key '", key, "' has ",
                                                     value.size(), " bytes; the limit is ",
                                                     limits::kMaxValueBytes));
  }
  if (const auto it = values_.find(key); it != values_.end()) {
    if (it->second == value) {
      return std::set<std::string>();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("key '", key, "' was written before with another value; the first stays"));
  }
  if (values_.size() >= limits::kMaxKeysPerRound) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "key '", key, "': the round has ", values_.size(), " keys already, which is the limit"));
  }
  if (num_bytes_ + key.size() + value.size() > limits::kMaxStoreBytesPerRound) {
    return absl::ResourceExhaustedError(
        absl::StrCat("key '", key, "' and its value do not fit: the round's store holds ",
                     num_bytes_, " of ", limits::kMaxStoreBytesPerRound, " bytes"));
  }
  values_.emplace(key, value);
  num_bytes_ += key.size() + value.size();
  std::set<std::string> waiters;
  if (const auto it = waiting_.find(key); it != waiting_.end()) {
    waiters = std::move(it->second);
    num_waits_ -= waiters.size();
    waiting_.erase(it);
  }
  return waiters;
}

const std::string* RoundStore::Find(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

absl::StatusOr<std::optional<std::string>> RoundStore::Want(const std::string& key,
                                                            const std::string& incarnation) {
  DDL_RETURN_IF_ERROR(CheckName("key", key));
  if (const auto it = values_.find(key); it != values_.end()) {
    return std::optional(it->second);
  }
  if (num_waits_ >= limits::kMaxKeysPerRound) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "key '", key, "' is not written, and ", num_waits_, " waits are the limit of a round"));
  }
  if (waiting_[key].insert(incarnation).second) {
    ++num_waits_;
  }
  return std::optional<std::string>();
}

absl::StatusOr<RoundStore::Barrier> RoundStore::Reach(const std::string& name,
                                                      const std::string& incarnation,
                                                      std::size_t num_members) {
  DDL_RETURN_IF_ERROR(CheckName("barrier", name));
  if (!barriers_.contains(name) && barriers_.size() >= limits::kMaxBarriersPerRound) {
    return absl::ResourceExhaustedError(absl::StrCat("barrier '", name, "': the round has ",
                                                     barriers_.size(),
                                                     " barriers already, which is the limit"));
  }
  std::set<std::string>& reached = barriers_[name];
  if (reached.size() == num_members) {
    return Barrier::kWasComplete;
  }
  reached.insert(incarnation);
  return reached.size() == num_members ? Barrier::kComplete : Barrier::kWaiting;
}

}  // namespace ddl::core
