// One try at a session stream, on the agent's side.
#include "agent/client/stream_reactor.h"

#include <utility>

namespace ddl {

std::shared_ptr<StreamReactor> StreamReactor::Start(ddlaunch::v1::Rendezvous::Stub* stub,
                                                    int attempt, ddlaunch::v1::AgentMessage hello,
                                                    std::shared_ptr<Inbox> inbox) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private.
  std::shared_ptr<StreamReactor> reactor(new StreamReactor(attempt, std::move(inbox)));
  reactor->self_ = reactor;
  stub->async()->Session(&reactor->context_, reactor.get());
  // Writes are started by other threads at any time: the hold keeps gRPC from
  // ending the stream between them. It is given back when writes are over.
  reactor->AddHold();
  reactor->outgoing_.push_back(std::move(hello));
  reactor->WriteNextLocked();
  reactor->StartRead(&reactor->incoming_);
  reactor->StartCall();
  return reactor;
}

void StreamReactor::Send(ddlaunch::v1::AgentMessage message) {
  const std::lock_guard lock(mutex_);
  if (writes_over_ || closing_) {
    return;
  }
  outgoing_.push_back(std::move(message));
  if (outgoing_.size() == 1) {
    WriteNextLocked();
  }
}

void StreamReactor::CloseAfterWrites() {
  const std::lock_guard lock(mutex_);
  if (writes_over_ || closing_) {
    return;
  }
  closing_ = true;
  if (outgoing_.empty()) {
    writes_over_ = true;
    StartWritesDone();
    RemoveHold();
  }
}

void StreamReactor::WriteNextLocked() {
  StartWrite(&outgoing_.front());
}

void StreamReactor::OnReadDone(bool ok) {
  if (ok) {
    inbox_->Put({attempt_, std::exchange(incoming_, {})});
    StartRead(&incoming_);
    return;
  }
  // The coordinator closed its side, or the connection broke: nothing more
  // will be written, so that OnDone can come.
  const std::lock_guard lock(mutex_);
  closing_ = true;
  if (!writes_over_ && outgoing_.empty()) {
    writes_over_ = true;
    RemoveHold();
  }
}

void StreamReactor::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  outgoing_.pop_front();
  if (writes_over_) {
    return;
  }
  if (ok && !outgoing_.empty()) {
    WriteNextLocked();
  } else if (!ok || closing_) {
    writes_over_ = true;
    outgoing_.clear();
    if (ok) {
      StartWritesDone();
    }
    RemoveHold();
  }
}

void StreamReactor::OnDone(const grpc::Status& status) {
  inbox_->Put({attempt_, status});
  self_.reset();
}

}  // namespace ddl
