// One agent's stream on the coordinator's side.
#include "agent/service/session_reactor.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/wire/wire.h"

namespace ddl {

SessionReactor* SessionReactor::Create(Sink sink) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private.
  std::shared_ptr<SessionReactor> reactor(new SessionReactor(std::move(sink)));
  reactor->self_ = reactor;
  reactor->ReadNext();
  return reactor.get();
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
  const auto refuse = [this](const absl::Status& status) {
    Close({static_cast<grpc::StatusCode>(status.code()), std::string(status.message())});
    return std::nullopt;
  };
  if (agent_.has_value()) {
    auto event = wire::EventFromWire(*agent_, std::move(incoming_));
    return event.ok() ? std::optional(*std::move(event)) : refuse(event.status());
  }
  const unsigned version = incoming_.hello().protocol_version();
  if (incoming_.has_hello() && version != wire::kProtocolVersion) {
    Send(core::Rejected{
        core::Reason::kVersion,
        absl::StrCat("this coordinator speaks protocol version ", wire::kProtocolVersion,
                     ", the agent on ", incoming_.hello().host(), " version ", version,
                     "; run the same ddlaunch on every node")});
    Close(grpc::Status::OK);
    return std::nullopt;
  }
  auto hello = wire::HelloFromWire(incoming_);
  if (!hello.ok()) {
    return refuse(hello.status());
  }
  agent_ = hello->agent;
  return *std::move(hello);
}

void SessionReactor::OnReadDone(bool ok) {
  if (!ok) {
    // The agent closed its side, or the connection broke.
    Close(grpc::Status::OK);
    return;
  }
  if (auto event = Convert(); event.has_value()) {
    sink_(self_, std::move(event));
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
  }
  // The stream's end is told even if nothing was ever read, so that a count of
  // sessions can be kept by it.
  const std::shared_ptr<SessionReactor> self = std::move(self_);
  sink_(self, std::nullopt);
}

}  // namespace ddl
