// A store that forgets with its process.
#include "agent/store/memory_store.h"

namespace ddl::store {

void MemoryStore::Write(const core::Persist& persist, Done done) {
  if (persist.ended) {
    jobs_.erase(persist.job_id);
  } else {
    jobs_[persist.job_id] = persist;
  }
  done(absl::OkStatus());
}

std::optional<core::Persist> MemoryStore::Read(const std::string& job_id) const {
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace ddl::store
