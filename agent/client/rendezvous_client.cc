// The agent's side of its session: connect, heartbeat, reconnect.
#include "agent/client/rendezvous_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/client/stream_reactor.h"
#include "agent/wire/channel.h"
#include "agent/wire/wire.h"

namespace ddl {
namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(200);
// When a first connection takes longer than this, the user is told why.
constexpr Duration kNoticeAfter = std::chrono::seconds(5);
constexpr Duration kNoticeInterval = std::chrono::seconds(30);

std::int64_t Seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

class RendezvousClient::Impl {
 public:
  Impl(const std::shared_ptr<grpc::Channel>& channel, std::string endpoint,
       core::AgentConnected hello, Duration connect_timeout, Instant now)
      : endpoint_(std::move(endpoint)),
        hello_(std::move(hello)),
        inbox_(std::make_shared<StreamReactor::Inbox>()),
        started_(now),
        give_up_at_(now + connect_timeout),
        notice_at_(now + kNoticeAfter) {
    stub_ = ddlaunch::v1::Rendezvous::NewStub(channel);
    Open();
  }

  ~Impl() {
    if (stream_ != nullptr) {
      stream_->Cancel();
    }
  }

  void Send(const core::Event& event) {
    if (state_ == State::kConnected) {
      stream_->Send(wire::ToWire(event));
    }
  }

  void SetMasterPort(std::uint16_t port) {
    hello_.master_port = port;
    if (state_ == State::kConnected) {
      SendHeartbeat(port);
    }
  }

  void Leave(std::string why) {
    if (stream_ == nullptr) {
      state_ = State::kClosed;
    } else if (state_ == State::kConnected) {
      stream_->Send(wire::ToWire(core::AgentLeft{hello_.agent, std::move(why)}));
      stream_->CloseAfterWrites();
      state_ = State::kLeaving;
    } else if (state_ == State::kConnecting) {
      stream_->Cancel();
      state_ = State::kLeaving;
    }
  }

  [[nodiscard]] bool closed() const { return state_ == State::kClosed; }
  [[nodiscard]] int poll_fd() const { return inbox_->fd(); }

  [[nodiscard]] std::optional<Instant> deadline() const {
    switch (state_) {
      case State::kConnected:
        return std::min(heartbeat_at_, last_heard_ + silence_limit_);
      case State::kConnecting:
        return stream_ != nullptr ? std::min(give_up_at_, notice_at_)
                                  : std::min({give_up_at_, notice_at_, retry_at_});
      case State::kLeaving:
      case State::kClosed:
        break;
    }
    return std::nullopt;
  }

  std::vector<ClientEvent> OnReady(Instant now) {
    events_.clear();
    for (auto& delivery : inbox_->TakeAll()) {
      if (delivery.attempt != attempt_ || state_ == State::kClosed) {
        continue;  // a stream that was given up
      }
      if (auto* message = std::get_if<ddlaunch::v1::CoordinatorMessage>(&delivery.what)) {
        Receive(std::move(*message), now);
      } else {
        StreamEnded(std::get<grpc::Status>(delivery.what), now);
      }
    }
    OnTime(now);
    return std::exchange(events_, {});
  }

 private:
  enum class State : std::uint8_t { kConnecting, kConnected, kLeaving, kClosed };

  void Open() {
    ++attempt_;
    stream_ =
        StreamReactor::Start(stub_.get(), attempt_, wire::ToWire(core::Event(hello_)), inbox_);
  }

  // `master_port`: 0 when unchanged.
  void SendHeartbeat(std::uint32_t master_port) {
    stream_->Send(wire::ToWire(core::AgentHeard{hello_.agent, master_port}));
  }

  void Receive(ddlaunch::v1::CoordinatorMessage wire_message, Instant now) {
    last_heard_ = now;
    auto message = wire::MessageFromWire(std::move(wire_message));
    if (absl::IsUnimplemented(message.status())) {
      return;  // a newer coordinator's message: nothing for us
    }
    if (!message.ok()) {
      Lose(message.status());
      return;
    }
    if (const auto* welcome = std::get_if<core::Welcome>(&*message);
        welcome != nullptr && state_ == State::kConnecting) {
      state_ = State::kConnected;
      was_connected_ = true;
      heartbeat_interval_ = welcome->heartbeat_interval;
      silence_limit_ = welcome->heartbeat_timeout - 2 * welcome->heartbeat_interval;
      reconnect_within_ = welcome->reconnect_grace;
      heartbeat_at_ = now + heartbeat_interval_;
    }
    if (std::holds_alternative<core::HeartbeatAck>(*message)) {
      return;
    }
    if (std::holds_alternative<core::Rejected>(*message)) {
      state_ = State::kLeaving;  // final: the coordinator ends the stream
    }
    events_.emplace_back(*std::move(message));
  }

  void StreamEnded(const grpc::Status& status, Instant now) {
    stream_.reset();
    ++attempt_;  // what a cancelled stream still delivers is not for us
    last_error_ = status.ok() ? "the coordinator closed the session" : status.error_message();
    if (state_ == State::kLeaving) {
      state_ = State::kClosed;
      return;
    }
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ||
        status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
        status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      Lose(absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("the coordinator at ", endpoint_,
                                     " ended the session: ", status.error_message())));
      return;
    }
    if (state_ == State::kConnected) {
      state_ = State::kConnecting;
      give_up_at_ = now + reconnect_within_;
      notice_at_ = give_up_at_;
      started_ = now;
      retry_at_ = now;  // at once: the grace to come back is short
    } else {
      retry_at_ = now + kRetryInterval;
    }
  }

  void OnTime(Instant now) {
    if (state_ == State::kConnected && now >= heartbeat_at_) {
      SendHeartbeat(0);
      heartbeat_at_ = now + heartbeat_interval_;
    }
    if (state_ == State::kConnected && now >= last_heard_ + silence_limit_) {
      stream_->Cancel();
      StreamEnded({grpc::StatusCode::UNAVAILABLE, "it has gone silent"}, now);
    }
    if (state_ != State::kConnecting) {
      return;
    }
    if (now >= give_up_at_) {
      Lose(absl::UnavailableError(absl::StrCat(
          was_connected_ ? "lost the coordinator at " : "could not reach a coordinator at ",
          endpoint_, " for ", Seconds(now - started_), " s: ", Problem(),
          was_connected_
              ? "; its host, its ddlaunch or the network between is gone"
              : "; is ddlaunch running on the endpoint's host, is the port the same, and "
                "is it not held by another program?")));
      return;
    }
    if (now >= notice_at_) {
      events_.emplace_back(
          ClientNotice{absl::StrCat("still trying to reach the coordinator at ", endpoint_,
                                    " after ", Seconds(now - started_), " s: ", Problem())});
      notice_at_ = now + kNoticeInterval;
    }
    if (stream_ == nullptr && now >= retry_at_) {
      Open();
    }
  }

  [[nodiscard]] std::string Problem() const {
    return last_error_.empty() ? "no answer" : last_error_;
  }

  void Lose(absl::Status status) {
    if (stream_ != nullptr) {
      stream_->Cancel();
    }
    state_ = State::kClosed;
    events_.emplace_back(ClientLost{std::move(status)});
  }

  const std::string endpoint_;
  core::AgentConnected hello_;
  const std::shared_ptr<StreamReactor::Inbox> inbox_;
  std::unique_ptr<ddlaunch::v1::Rendezvous::Stub> stub_;
  std::shared_ptr<StreamReactor> stream_;  // null between tries
  int attempt_ = 0;
  State state_ = State::kConnecting;
  bool was_connected_ = false;
  std::string last_error_;
  std::vector<ClientEvent> events_;

  Duration heartbeat_interval_{};
  Duration silence_limit_{};
  Instant last_heard_{};
  Duration reconnect_within_{};
  Instant started_;
  Instant give_up_at_;
  Instant notice_at_;
  Instant retry_at_{};
  Instant heartbeat_at_{};
};

std::shared_ptr<grpc::Channel> RendezvousClient::NewChannel(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  wire::ConfigureChannel(&arguments);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

RendezvousClient::RendezvousClient(const std::shared_ptr<grpc::Channel>& channel,
                                   std::string endpoint, core::AgentConnected hello,
                                   Duration connect_timeout, Instant now)
    : impl_(std::make_unique<Impl>(channel, std::move(endpoint), std::move(hello), connect_timeout,
                                   now)) {}
RendezvousClient::~RendezvousClient() = default;

void RendezvousClient::Send(const core::Event& event) {
  impl_->Send(event);
}
void RendezvousClient::SetMasterPort(std::uint16_t port) {
  impl_->SetMasterPort(port);
}
void RendezvousClient::Leave(std::string why) {
  impl_->Leave(std::move(why));
}
bool RendezvousClient::closed() const {
  return impl_->closed();
}
std::vector<ClientEvent> RendezvousClient::OnReady(Instant now) {
  return impl_->OnReady(now);
}
int RendezvousClient::poll_fd() const {
  return impl_->poll_fd();
}
std::optional<Instant> RendezvousClient::deadline() const {
  return impl_->deadline();
}

}  // namespace ddl
