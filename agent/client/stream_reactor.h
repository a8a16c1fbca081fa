// StreamReactor: one try at a session stream, on the agent's side.
//
// Puts each message, and at last the stream's end, into its owner's mailbox.
// Deletes itself with the stream; the owner holds it by shared_ptr, and Send on
// an ended stream does nothing. Thread safe.
#ifndef DDLAUNCH_AGENT_CLIENT_STREAM_REACTOR_H_
#define DDLAUNCH_AGENT_CLIENT_STREAM_REACTOR_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <memory>
#include <mutex>
#include <variant>

#include "agent/base/mailbox.h"
#include "ddlaunch/v1/rendezvous.grpc.pb.h"

namespace ddl {

class StreamReactor final
    : public grpc::ClientBidiReactor<ddlaunch::v1::AgentMessage, ddlaunch::v1::CoordinatorMessage> {
 public:
  // What came on stream number `attempt`: a message, or its end.
  struct Delivery {
    int attempt = 0;
    std::variant<ddlaunch::v1::CoordinatorMessage, grpc::Status> what;
  };
  using Inbox = Mailbox<Delivery>;

  // Opens the stream with `hello` as its first message. The inbox is shared:
  // the stream's end may come after its owner is gone.
  static std::shared_ptr<StreamReactor> Start(ddlaunch::v1::Rendezvous::Stub* stub, int attempt,
                                              ddlaunch::v1::AgentMessage hello,
                                              std::shared_ptr<Inbox> inbox);

  void Send(ddlaunch::v1::AgentMessage message);
  // Half-closes after what was sent before.
  void CloseAfterWrites();
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  StreamReactor(int attempt, std::shared_ptr<Inbox> inbox)
      : attempt_(attempt), inbox_(std::move(inbox)) {}
  void WriteNextLocked();

  const int attempt_;
  const std::shared_ptr<Inbox> inbox_;
  grpc::ClientContext context_;
  ddlaunch::v1::CoordinatorMessage incoming_;
  std::shared_ptr<StreamReactor> self_;  // reset in OnDone

  std::mutex mutex_;
  std::deque<ddlaunch::v1::AgentMessage> outgoing_;  // guarded by mutex_; front in flight
  bool closing_ = false;                             // guarded by mutex_
  bool writes_over_ = false;                         // guarded by mutex_
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_CLIENT_STREAM_REACTOR_H_
