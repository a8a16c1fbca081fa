// SessionReactor: one agent's stream on the coordinator's side.
//
// Turns bytes into events and messages into bytes. It lets nobody in who does
// not say Hello in time, in the right version and with the right token; beyond
// that it decides nothing. Its owner (the coordinator's thread) is told of each
// event through `Sink`, and says ReadNext() when it has handled it. Deletes
// itself with the stream; the sink holds it by shared_ptr, and Send on an ended
// stream does nothing. Thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_SESSION_REACTOR_H_
#define DDLAUNCH_AGENT_SERVICE_SESSION_REACTOR_H_

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "agent/base/clock.h"
#include "agent/core/types.h"
#include "agent/service/lobby.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl {

class SessionReactor final
    : public grpc::ServerBidiReactor<ddlaunch::v1::AgentMessage, ddlaunch::v1::CoordinatorMessage> {
 public:
  // The stream has ended; the last thing that is told.
  struct Ended {};
  // What happened on the stream. An Explain: it was refused here, and why.
  using Happening = std::variant<core::Event, core::Explain, Ended>;
  using Sink = std::function<void(const std::shared_ptr<SessionReactor>&, Happening)>;

  // Who is let in.
  struct Door {
    std::string token;  // empty: none is asked for
    Duration hello_timeout{};
  };

  // The reactor keeps itself alive until gRPC is done with it, and `place` until
  // it is let in. `door` outlives the stream.
  static SessionReactor* Create(grpc::CallbackServerContext* context, Sink sink, const Door* door,
                                Lobby::Place place);

  void ReadNext();
  void Send(const core::Message& message);
  // Ends the stream after what was sent before.
  void Close(grpc::Status status);

  // gRPC's side.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  SessionReactor(grpc::CallbackServerContext* context, Sink sink, const Door* door,
                 Lobby::Place place)
      : context_(context), sink_(std::move(sink)), door_(door), place_(std::move(place)) {}
  std::optional<core::Event> Convert();
  // The first message makes the session; a refusal is sent from here.
  std::optional<core::Event> ConvertHello();
  void OnHelloTimeout();
  void Refuse(core::Reason reason, std::string text);
  void CloseLocked(grpc::Status status);
  void WriteNextLocked();

  grpc::CallbackServerContext* const context_;  // valid until OnDone
  const Sink sink_;
  const Door* const door_;
  std::shared_ptr<SessionReactor> self_;  // reset in OnDone
  Lobby::Place place_;                    // reset when it is let in; read side only
  grpc::Alarm hello_alarm_;
  std::optional<core::AgentRef> agent_;  // set by Hello; read side only
  ddlaunch::v1::AgentMessage incoming_;  // read side only

  std::mutex mutex_;
  std::deque<ddlaunch::v1::CoordinatorMessage> outgoing_;  // guarded by mutex_; front in flight
  std::size_t outgoing_bytes_ = 0;                         // guarded by mutex_
  std::optional<grpc::Status> close_with_;                 // guarded by mutex_
  bool finished_ = false;                                  // guarded by mutex_
  bool done_ = false;                                      // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_SESSION_REACTOR_H_
