// The agent's session over gRPC: carries out what Session decides.
#include "agent/client/rendezvous_client.h"

#include <grpcpp/grpcpp.h>

#include <utility>
#include <variant>

#include "agent/client/stream_reactor.h"
#include "agent/wire/channel.h"
#include "agent/wire/wire.h"

namespace ddl {
namespace {

absl::Status ToAbsl(const grpc::Status& status) {
  // The numbers are the same.
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace

class RendezvousClient::Impl {
 public:
  Impl(const std::shared_ptr<grpc::Channel>& channel, Options options, Instant now)
      : token_(std::move(options.token)),
        inbox_(std::make_shared<StreamReactor::Inbox>()),
        stub_(ddlaunch::v1::Rendezvous::NewStub(channel)),
        session_({std::move(options.endpoint), std::move(options.hello), options.connect_timeout,
                  options.is_irreplaceable},
                 now) {
    Apply(session_.Start(now));
  }

  ~Impl() {
    if (stream_ != nullptr) {
      stream_->Cancel();
    }
  }

  Session& session() { return session_; }
  [[nodiscard]] const Session& session() const { return session_; }
  [[nodiscard]] int poll_fd() const { return inbox_->fd(); }

  void Apply(SessionActions actions) {
    for (SessionAction& action : actions) {
      std::visit([this](auto& one) { Carry(one); }, action);
    }
  }

  std::vector<ClientEvent> OnReady(Instant now) {
    for (StreamReactor::Delivery& delivery : inbox_->TakeAll()) {
      if (auto* message = std::get_if<ddlaunch::v1::CoordinatorMessage>(&delivery.what)) {
        Apply(
            session_.OnMessage(now, delivery.attempt, wire::MessageFromWire(std::move(*message))));
      } else {
        Apply(session_.OnStreamEnded(now, delivery.attempt,
                                     ToAbsl(std::get<grpc::Status>(delivery.what))));
      }
    }
    Apply(session_.OnTime(now));
    return std::exchange(events_, {});
  }

 private:
  void Carry(OpenStream& open) {
    ddlaunch::v1::AgentMessage hello = wire::ToWire(core::Event(std::move(open.hello)));
    hello.mutable_hello()->set_token(token_);
    stream_ = StreamReactor::Start(stub_.get(), open.attempt, std::move(hello), inbox_);
  }
  void Carry(const SendEvent& send) { stream_->Send(wire::ToWire(send.event)); }
  void Carry(const CancelStream& /*cancel*/) { stream_->Cancel(); }
  void Carry(const HalfCloseStream& /*close*/) { stream_->CloseAfterWrites(); }
  void Carry(core::Message& message) { events_.emplace_back(std::move(message)); }
  void Carry(ClientNotice& notice) { events_.emplace_back(std::move(notice)); }
  void Carry(ClientLost& lost) { events_.emplace_back(std::move(lost)); }

  const std::string token_;
  const std::shared_ptr<StreamReactor::Inbox> inbox_;
  const std::unique_ptr<ddlaunch::v1::Rendezvous::Stub> stub_;
  Session session_;
  std::shared_ptr<StreamReactor> stream_;  // the latest; it may have ended
  std::vector<ClientEvent> events_;        // for the next OnReady to return
};

std::shared_ptr<grpc::Channel> RendezvousClient::NewChannel(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  wire::ConfigureChannel(&arguments);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

RendezvousClient::RendezvousClient(const std::shared_ptr<grpc::Channel>& channel, Options options,
                                   Instant now)
    : impl_(std::make_unique<Impl>(channel, std::move(options), now)) {}
RendezvousClient::~RendezvousClient() = default;

void RendezvousClient::Send(const core::Event& event) {
  impl_->Apply(impl_->session().Send(event));
}
void RendezvousClient::SetMasterPort(std::uint16_t port) {
  impl_->Apply(impl_->session().SetMasterPort(MonotonicNow(), port));
}
void RendezvousClient::Leave(std::string why) {
  impl_->Apply(impl_->session().Leave(std::move(why)));
}
bool RendezvousClient::closed() const {
  return impl_->session().closed();
}
std::optional<Instant> RendezvousClient::lease_until() const {
  return impl_->session().lease_until();
}
std::vector<ClientEvent> RendezvousClient::OnReady(Instant now) {
  return impl_->OnReady(now);
}
int RendezvousClient::poll_fd() const {
  return impl_->poll_fd();
}
std::optional<Instant> RendezvousClient::deadline() const {
  return impl_->session().deadline();
}

}  // namespace ddl
