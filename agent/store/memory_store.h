// MemoryStore: keeps the core's state as long as the process lives, for a
// coordinator that ends with its job. Answers at once. Not thread safe.
#ifndef DDLAUNCH_AGENT_STORE_MEMORY_STORE_H_
#define DDLAUNCH_AGENT_STORE_MEMORY_STORE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "agent/store/store.h"

namespace ddl::store {

class MemoryStore final : public Store {
 public:
  void Write(const core::Persist& persist, Done done) override;

  // Nothing: never written, or ended.
  [[nodiscard]] std::optional<core::Persist> Read(const std::string& job_id) const;
  [[nodiscard]] std::size_t size() const { return jobs_.size(); }

 private:
  std::map<std::string, core::Persist> jobs_;
};

}  // namespace ddl::store

#endif  // DDLAUNCH_AGENT_STORE_MEMORY_STORE_H_
