// Store: where the core's state is kept. The coordinator's shell carries out
// each Persist by Write and gives the core its StoreDone.
#ifndef DDLAUNCH_AGENT_STORE_STORE_H_
#define DDLAUNCH_AGENT_STORE_STORE_H_

#include <functional>

#include "absl/status/status.h"
#include "agent/core/types.h"

namespace ddl::store {

class Store {
 public:
  using Done = std::function<void(absl::Status)>;

  virtual ~Store() = default;
  // Keeps the job's newest state, or forgets the job when it has ended. Called
  // by one thread; does not block. `done` is called exactly once, from any
  // thread and perhaps before Write returns: OK once it is durable. Writes of a
  // job become durable in the order of their sequence.
  virtual void Write(const core::Persist& persist, Done done) = 0;
};

}  // namespace ddl::store

#endif  // DDLAUNCH_AGENT_STORE_STORE_H_
