// KeyTable: the keys of one store, its queues, and who waits for them. Pure: no
// socket, no clock; a client is a number that its owner chose.
//
// What is over its bound is refused with RESOURCE_EXHAUSTED, and changes nothing.
// A wait of a client ends in one of three ways: its number is in TakeWoken(), it
// asks for another one, or CancelWait. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_KEY_TABLE_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_KEY_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/tcpstore/limits.h"

namespace ddl::tcpstore {

// A value, shared with the replies that carry it: never changed while shared.
using Blob = std::shared_ptr<const std::string>;

class KeyTable {
 public:
  using Client = std::uint64_t;

  // REQUIRES: `limits` outlives it.
  explicit KeyTable(const Limits& limits) : limits_(limits) {}

  absl::Status Set(const std::string& key, std::string value);
  // Sets `desired` where the value is `expected` (or both are nothing). Returns
  // the value after it; for a missing key that was expected to be there, as
  // PyTorch does, what was expected.
  absl::StatusOr<Blob> CompareSet(const std::string& key, std::string expected,
                                  std::string desired);
  // Null: there is none.
  [[nodiscard]] Blob Get(const std::string& key) const;
  // The sum after it, kept as decimal text; a missing key counts as 0.
  // INVALID_ARGUMENT: the value is no number, or the sum is too large.
  absl::StatusOr<std::int64_t> Add(const std::string& key, std::int64_t delta);
  absl::Status Append(const std::string& key, std::string_view value);
  bool Delete(const std::string& key);
  // Each is a key, or a queue that is not empty.
  [[nodiscard]] bool HasAll(const std::vector<std::string>& keys) const;
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  // In no order. `visit(const std::string& key)`.
  template <typename Visit>
  void ForEachKey(Visit visit) const {
    for (const auto& [key, value] : values_) {
      visit(key);
    }
  }
  [[nodiscard]] std::size_t key_bytes() const { return key_bytes_; }

  // First in, first out. Wakes one of those who wait for the queue.
  absl::Status Push(const std::string& key, std::string value);
  struct Popped {
    std::size_t length_before = 0;
    Blob value;  // null: the queue was empty
  };
  Popped Pop(const std::string& key);
  [[nodiscard]] std::size_t QueueLength(const std::string& key) const;

  // True: they are all there, and nothing is waited for.
  absl::StatusOr<bool> Wait(Client client, const std::vector<std::string>& keys);
  // Counts the client in; true: so many have come, and the others are woken.
  absl::StatusOr<bool> Barrier(Client client, const std::string& key, std::int64_t world_size);
  void CancelWait(Client client);
  // Whose wait was fulfilled since the last call, in the order of their asking.
  std::vector<Client> TakeWoken() { return std::exchange(woken_, {}); }
  [[nodiscard]] std::size_t wait_bytes() const { return wait_bytes_; }
  [[nodiscard]] std::size_t stored_bytes() const { return stored_bytes_; }

 private:
  using Value = std::shared_ptr<std::string>;
  using WaitId = std::uint64_t;  // rises: who asked first is woken first
  using Line = std::map<WaitId, Client>;
  struct Waiters {
    Line for_key;
    Line for_barrier;
  };
  struct Waiting {
    WaitId id = 0;
    std::size_t missing = 0;
    std::vector<std::string> keys;
    std::size_t cost = 0;  // in wait_bytes_
  };

  absl::Status CheckRoom(bool is_new, const std::string& key, std::size_t value_bytes,
                         std::size_t former_bytes) const;
  // The sum that Add would make.
  [[nodiscard]] absl::StatusOr<std::int64_t> SumWith(const std::string& key,
                                                     std::int64_t delta) const;
  absl::Status Put(const std::string& key, std::string value);
  void Wake(Client client);
  void WakeAll(const std::string& key, Line Waiters::*line);
  void WakeOne(const std::string& key);
  [[nodiscard]] absl::Status CheckWaitRoom(const std::vector<std::string>& keys) const;
  void Register(Client client, std::vector<std::string> keys, Line Waiters::*line);
  void Forget(std::unordered_map<Client, Waiting>::iterator waiting);

  const Limits& limits_;
  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, std::deque<Value>> queues_;
  std::size_t queued_ = 0;
  std::size_t stored_bytes_ = 0;  // of both
  std::size_t key_bytes_ = 0;     // of values_
  std::unordered_map<std::string, Waiters> waiters_;
  std::unordered_map<Client, Waiting> waiting_;
  std::size_t wait_bytes_ = 0;
  WaitId last_wait_ = 0;
  std::vector<Client> woken_;
};

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_KEY_TABLE_H_
