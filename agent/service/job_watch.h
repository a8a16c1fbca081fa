// JobWatch: notices when a coordinator's jobs begin and end, for its log. Only
// looks at the core; not thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_JOB_WATCH_H_
#define DDLAUNCH_AGENT_SERVICE_JOB_WATCH_H_

#include <map>
#include <optional>
#include <string>

#include "agent/core/rendezvous.h"
#include "agent/core/types.h"

namespace ddl {

class JobWatch {
 public:
  // After each step of the core: one line when the event's job has begun or
  // ended by it ("job j has begun: ...").
  [[nodiscard]] std::optional<std::string> Look(const core::Rendezvous& core,
                                                const core::Event& event);

 private:
  // Jobs that were told to have begun: whether their end was told too.
  std::map<std::string, bool> has_ended_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_JOB_WATCH_H_
