// SessionReactor: one agent's stream on the coordinator's side.
//
// Turns bytes into events and messages into bytes; decides nothing. Its owner
// (the coordinator's thread) is told of each event through `Sink`, and says
// ReadNext() when it has handled it. Deletes itself with the stream; the sink
// holds it by shared_ptr, and Send on an ended stream does nothing. Thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_SESSION_REACTOR_H_
#define DDLAUNCH_AGENT_SERVICE_SESSION_REACTOR_H_

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "agent/core/types.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl {

class SessionReactor final
    : public grpc::ServerBidiReactor<ddlaunch::v1::AgentMessage, ddlaunch::v1::CoordinatorMessage> {
 public:
  // What happened on the stream: an event, or nothing: the stream has ended.
  using Sink =
      std::function<void(const std::shared_ptr<SessionReactor>&, std::optional<core::Event>)>;

  // The reactor keeps itself alive until gRPC is done with it.
  static SessionReactor* Create(Sink sink);

  void ReadNext();
  void Send(const core::Message& message);
  // Ends the stream after what was sent before.
  void Close(grpc::Status status);

  // gRPC's side.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  explicit SessionReactor(Sink sink) : sink_(std::move(sink)) {}
  // The first message makes the session; a refusal is sent from here.
  std::optional<core::Event> Convert();
  void CloseLocked(grpc::Status status);
  void WriteNextLocked();

  const Sink sink_;
  std::shared_ptr<SessionReactor> self_;  // reset in OnDone
  std::optional<core::AgentRef> agent_;   // set by Hello; read side only
  ddlaunch::v1::AgentMessage incoming_;   // read side only

  std::mutex mutex_;
  std::deque<ddlaunch::v1::CoordinatorMessage> outgoing_;  // guarded by mutex_; front in flight
  std::size_t outgoing_bytes_ = 0;                         // guarded by mutex_
  std::optional<grpc::Status> close_with_;                 // guarded by mutex_
  bool finished_ = false;                                  // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_SESSION_REACTOR_H_
