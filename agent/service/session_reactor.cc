// One agent's stream on the coordinator's side.
#include "agent/service/session_reactor.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/service/token.h"
#include "agent/wire/wire.h"

namespace ddl {

namespace {

// What a peer calls its host, for people to read: who was refused may have said
// anything.
std::string NameOfHost(const ddlaunch::v1::Hello& hello) {
  return absl::CHexEscape(hello.host().substr(0, limits::kMaxHostBytes));
}

}  // namespace

SessionReactor* SessionReactor::Create(grpc::CallbackServerContext* context, Sink sink,
                                       const Door* door, Lobby::Place place) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private.
  std::shared_ptr<SessionReactor> reactor(
      new SessionReactor(context, std::move(sink), door, std::move(place)));
  reactor->self_ = reactor;
  reactor->hello_alarm_.Set(std::chrono::system_clock::now() + door->hello_timeout,
                            // Weak: gRPC keeps this function as long as the alarm.
                            [weak = std::weak_ptr(reactor)](bool is_due) {
                              const auto alive = is_due ? weak.lock() : nullptr;
                              if (alive != nullptr) {
                                alive->OnHelloTimeout();
                              }
                            });
  reactor->ReadNext();
  return reactor.get();
}

void SessionReactor::OnHelloTimeout() {
  const std::lock_guard lock(mutex_);
  if (done_) {
    return;
  }
  if (!finished_ && !close_with_.has_value()) {
    CloseLocked({grpc::StatusCode::DEADLINE_EXCEEDED, "no Hello came"});
  } else {
    context_->TryCancel();  // refused, and it does not take the answer
  }
}

void SessionReactor::ReadNext() {
  const std::lock_guard lock(mutex_);
  // A finished stream takes no operation any more.
  if (!finished_) {
    StartRead(&incoming_);
  }
}

void SessionReactor::Send(const core::Message& message) {
  ddlaunch::v1::CoordinatorMessage out = wire::ToWire(message);
  const std::lock_guard lock(mutex_);
  if (finished_ || close_with_.has_value()) {
    return;
  }
  outgoing_bytes_ += out.ByteSizeLong();
  if (outgoing_.size() >= limits::kMaxOutgoingMessages ||
      outgoing_bytes_ > limits::kMaxOutgoingBytes) {
    // It does not read: better without it than out of memory.
    outgoing_.erase(std::next(outgoing_.begin(), outgoing_.empty() ? 0 : 1), outgoing_.end());
    CloseLocked({grpc::StatusCode::RESOURCE_EXHAUSTED,
                 "the agent does not read what it is sent; it was dropped"});
    return;
  }
  outgoing_.push_back(std::move(out));
  if (outgoing_.size() == 1) {
    WriteNextLocked();
  }
}

void SessionReactor::Close(grpc::Status status) {
  const std::lock_guard lock(mutex_);
  CloseLocked(std::move(status));
}

void SessionReactor::CloseLocked(grpc::Status status) {
  if (finished_ || close_with_.has_value()) {
    return;
  }
  if (outgoing_.empty()) {
    finished_ = true;
    Finish(std::move(status));
  } else {
    close_with_ = std::move(status);
  }
}

void SessionReactor::WriteNextLocked() {
  StartWrite(&outgoing_.front());
}

std::optional<core::Event> SessionReactor::Convert() {
  if (!agent_.has_value()) {
    return ConvertHello();
  }
  auto event = wire::EventFromWire(*agent_, std::move(incoming_));
  if (!event.ok()) {
    Close({static_cast<grpc::StatusCode>(event.status().code()),
           std::string(event.status().message())});
    return std::nullopt;
  }
  return *std::move(event);
}

std::optional<core::Event> SessionReactor::ConvertHello() {
  const ddlaunch::v1::Hello& said = incoming_.hello();
  if (incoming_.has_hello() && said.protocol_version() != wire::kProtocolVersion) {
    Refuse(core::Reason::kVersion,
           absl::StrCat("this coordinator speaks protocol version ", wire::kProtocolVersion,
                        ", the agent on ", NameOfHost(said), " version ", said.protocol_version(),
                        "; run the same ddlaunch on every node"));
    return std::nullopt;
  }
  if (incoming_.has_hello() && !door_->token.empty() && !TokenMatches(door_->token, said.token())) {
    Refuse(
        core::Reason::kUnauthenticated,
        absl::StrCat("this coordinator asks for a token, and the agent on ", NameOfHost(said),
                     said.token().empty() ? " gave none" : " gave another one",
                     "; give the same --rdzv-token-file as the coordinator (or DDL_RDZV_TOKEN)"));
    return std::nullopt;
  }
  auto hello = wire::HelloFromWire(incoming_);
  if (!hello.ok()) {
    Close({static_cast<grpc::StatusCode>(hello.status().code()),
           std::string(hello.status().message())});
    return std::nullopt;
  }
  hello_alarm_.Cancel();
  place_.reset();
  agent_ = hello->agent;
  return *std::move(hello);
}

void SessionReactor::Refuse(core::Reason reason, std::string text) {
  Send(core::Rejected{reason, text});
  Close(grpc::Status::OK);
  sink_(self_, core::Explain{"", reason, std::move(text)});
}

void SessionReactor::OnReadDone(bool ok) {
  if (!ok) {
    // The agent closed its side, or the connection broke.
    Close(grpc::Status::OK);
    return;
  }
  if (auto event = Convert(); event.has_value()) {
    sink_(self_, *std::move(event));
  }
}

void SessionReactor::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  outgoing_bytes_ -= outgoing_.front().ByteSizeLong();
  outgoing_.pop_front();
  if (finished_) {
    return;
  }
  if (ok && !outgoing_.empty()) {
    WriteNextLocked();
  } else if (!ok || close_with_.has_value()) {
    finished_ = true;
    Finish(close_with_.value_or(grpc::Status::OK));
  }
}

void SessionReactor::OnDone() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    done_ = true;
  }
  // The stream's end is told even if nothing was ever read, so that a count of
  // sessions can be kept by it.
  hello_alarm_.Cancel();
  place_.reset();
  const std::shared_ptr<SessionReactor> self = std::move(self_);
  sink_(self, Ended{});
}

}  // namespace ddl
