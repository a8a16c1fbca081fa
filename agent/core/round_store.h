// RoundStore: the keys and barriers of one round; they live as long as it does.
//
// A key is written once. Asking again, writing the same again and reaching a
// barrier again are harmless, so an agent may repeat itself after it lost its
// stream. Bounded by agent/base/limits.h. Not thread safe.
#ifndef DDLAUNCH_AGENT_CORE_ROUND_STORE_H_
#define DDLAUNCH_AGENT_CORE_ROUND_STORE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddl::core {

class RoundStore {
 public:
  // Returns who waited for the key. Errors: INVALID_ARGUMENT, it has another
  // value already (which stays) or an empty name; RESOURCE_EXHAUSTED, a limit.
  absl::StatusOr<std::set<std::string>> Put(const std::string& key, const std::string& value);
  // Null when it was not written. Valid until the round ends.
  [[nodiscard]] const std::string* Find(const std::string& key) const;

  // The value, or nothing: `incarnation` is then remembered as waiting.
  // Errors: as Put.
  absl::StatusOr<std::optional<std::string>> Want(const std::string& key,
                                                  const std::string& incarnation);

  enum class Barrier : std::uint8_t {
    kWaiting,     // somebody is still missing
    kComplete,    // this call completed it
    kWasComplete  // it was complete before
  };
  // Errors: as Put.
  absl::StatusOr<Barrier> Reach(const std::string& name, const std::string& incarnation,
                                std::size_t num_members);

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<std::string>> waiting_;   // key -> incarnations
  std::map<std::string, std::set<std::string>> barriers_;  // name -> who reached it
  std::size_t num_waits_ = 0;                              // entries in waiting_
  std::size_t num_bytes_ = 0;                              // keys and values in values_
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_ROUND_STORE_H_
