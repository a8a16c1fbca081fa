// GroupMark: tells this worker's agent that its ranks need each other, from its
// construction until Leave() or its destruction. A worker that exits with 0 in
// between, without coming by the destructor (in a signal handler, say), has left
// its peers waiting; the agent then ends the round at once.
#ifndef DDLAUNCH_WORKER_SDK_SRC_GROUP_MARK_H_
#define DDLAUNCH_WORKER_SDK_SRC_GROUP_MARK_H_

#include <memory>
#include <string>
#include <utility>

#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// The agent's answers do not matter here: without a launcher nobody needs to
// know, and when the agent is gone the worker goes too. Not thread safe.
class GroupMark {
 public:
  GroupMark(std::shared_ptr<Gateway> gateway, std::string name)
      : gateway_(std::move(gateway)), name_(std::move(name)) {
    [[maybe_unused]] const auto ignored = gateway_->MarkGroup(name_, /*open=*/true);
  }
  ~GroupMark() { Leave(); }
  GroupMark(const GroupMark&) = delete;
  GroupMark& operator=(const GroupMark&) = delete;

  void Leave() {
    if (!left_) {
      left_ = true;
      [[maybe_unused]] const auto ignored = gateway_->MarkGroup(name_, /*open=*/false);
    }
  }

 private:
  const std::shared_ptr<Gateway> gateway_;
  const std::string name_;
  bool left_ = false;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_SRC_GROUP_MARK_H_
