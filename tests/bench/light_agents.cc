// Streams that join, beat, succeed and leave.
#include "tests/bench/light_agents.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/ids.h"
#include "agent/client/rendezvous_client.h"
#include "agent/core/types.h"
#include "agent/wire/wire.h"
#include "ddlaunch/v1/rendezvous.grpc.pb.h"

namespace ddl::bench {
namespace {

using ddlaunch::v1::AgentMessage;
using ddlaunch::v1::CoordinatorMessage;

constexpr std::int32_t kWorkersPerNode = 8;
constexpr std::uint32_t kMasterPort = 29500;
// Beats are spread over their second, as those of real agents are.
constexpr std::size_t kSlices = 100;
constexpr Duration kSlice = std::chrono::milliseconds(10);
// As a real agent does when the coordinator is too busy to take it in.
constexpr Duration kRetryInterval = std::chrono::milliseconds(200);

AgentMessage Hello(std::size_t number, std::size_t total) {
  core::AgentConnected hello;
  hello.agent = {"bench", NewRandomId()};
  hello.host = absl::StrCat("node", number, ".cluster.example");
  hello.address = "127.0.0.1";
  hello.nproc = kWorkersPerNode;
  hello.min_nodes = static_cast<std::int32_t>(total);
  hello.max_nodes = static_cast<std::int32_t>(total);
  hello.join_timeout = std::chrono::minutes(10);
  hello.stop_grace = std::chrono::seconds(30);
  hello.master_port = kMasterPort;
  return wire::ToWire(core::Event(hello));
}

}  // namespace

class LightAgent final : public grpc::ClientBidiReactor<AgentMessage, CoordinatorMessage> {
 public:
  LightAgent(LightAgents& owner, AgentMessage hello) : owner_(owner), hello_(std::move(hello)) {}

  void Open(const std::shared_ptr<grpc::Channel>& channel) {
    stub_ = ddlaunch::v1::Rendezvous::NewStub(channel);
    OpenStream();
  }
  // Again, when the last stream has ended.
  void OpenStream() {
    {
      const std::lock_guard lock(mutex_);
      writing_ = true;
      writes_over_ = false;
      reads_over_ = false;
    }
    context_.emplace();
    context_->set_wait_for_ready(true);  // a connection that fails is tried again
    stub_->async()->Session(&*context_, this);
    AddHold();
    StartWrite(&hello_);
    StartRead(&incoming_);
    StartCall();
  }

  // False: what was sent before is still on its way.
  bool Beat() {
    const std::lock_guard lock(mutex_);
    if (!welcomed_ || leaving_ || reads_over_) {
      return true;
    }
    if (writing_) {
      return false;
    }
    outgoing_.Clear();
    outgoing_.mutable_heartbeat();
    WriteLocked();
    return true;
  }

  void Succeed() {
    const std::lock_guard lock(mutex_);
    succeed_ = true;
    WriteNextLocked();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const std::lock_guard lock(mutex_);
      reads_over_ = true;
      EndWritesLocked();
      return;
    }
    switch (incoming_.kind_case()) {
      case CoordinatorMessage::kWelcome: {
        const std::lock_guard lock(mutex_);
        welcomed_ = true;
        break;
      }
      case CoordinatorMessage::kHeartbeatAck:
        ++owner_.answered_;
        break;
      case CoordinatorMessage::kRoundStart:
        round_ = incoming_.round_start().round();
        owner_.Started(round_, incoming_.round_start().node_rank());
        break;
      case CoordinatorMessage::kJobDone: {
        owner_.JobIsDone();
        const std::lock_guard lock(mutex_);
        leave_ = true;
        WriteNextLocked();
        break;
      }
      default:
        break;
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (!welcomed_) {
      owner_.Joined();
    }
    writing_ = false;
    if (!ok || reads_over_) {
      EndWritesLocked();
      return;
    }
    if (leaving_) {
      StartWritesDone();
      EndWritesLocked();
      return;
    }
    WriteNextLocked();
  }

  void OnDone(const grpc::Status& status) override {
    if (!welcomed_ && status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      owner_.TryAgain(*this);
      return;
    }
    owner_.Ended(leaving_ ? "" : absl::StrCat("a stream ended early: ", status.error_message()));
  }

 private:
  void WriteLocked() {
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void WriteNextLocked() {
    if (writing_ || writes_over_ || reads_over_) {
      return;
    }
    if (succeed_) {
      succeed_ = false;
      outgoing_.Clear();
      outgoing_.mutable_workers_succeeded()->set_round(round_);
      WriteLocked();
    } else if (leave_) {
      leave_ = false;
      leaving_ = true;
      outgoing_.Clear();
      outgoing_.mutable_leave()->set_reason("done");
      WriteLocked();
    }
  }

  void EndWritesLocked() {
    if (!writes_over_ && !writing_) {
      writes_over_ = true;
      RemoveHold();
    }
  }

  LightAgents& owner_;
  const AgentMessage hello_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<ddlaunch::v1::Rendezvous::Stub> stub_;
  CoordinatorMessage incoming_;
  std::int64_t round_ = 0;  // set before succeed_ is

  std::mutex mutex_;
  // Guarded by mutex_.
  AgentMessage outgoing_;
  bool writing_ = false;
  bool writes_over_ = false;
  bool reads_over_ = false;
  bool welcomed_ = false;
  bool succeed_ = false;
  bool leave_ = false;
  bool leaving_ = false;
};

LightAgents::LightAgents(LightAgentsOptions options) : options_(std::move(options)) {
  for (std::size_t i = 0; i < options_.count; ++i) {
    agents_.push_back(
        std::make_unique<LightAgent>(*this, Hello(options_.first + i, options_.total)));
  }
}

LightAgents::~LightAgents() {
  stop_beating_ = true;
  if (beating_.joinable()) {
    beating_.join();
  }
}

absl::Status LightAgents::Join(Formed& formed) {
  {
    const std::lock_guard lock(mutex_);
    formed_.first_opened = MonotonicNow();
  }
  beating_ = std::thread([this] { BeatUntilStopped(); });
  std::shared_ptr<grpc::Channel> channel;
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (i % options_.streams_per_connection == 0) {
      channel = RendezvousClient::NewChannel(options_.endpoint);
    }
    agents_[i]->Open(channel);
  }
  const absl::Status status = AwaitAll(num_started_);
  const std::lock_guard lock(mutex_);
  formed = formed_;
  return status;
}

absl::Status LightAgents::Finish(Instant& last_done) {
  for (const auto& agent : agents_) {
    agent->Succeed();
  }
  if (absl::Status status = AwaitAll(num_done_); !status.ok()) {
    return status;
  }
  absl::Status status = AwaitAll(num_ended_);
  const std::lock_guard lock(mutex_);
  last_done = last_done_;
  return status;
}

absl::Status LightAgents::AwaitAll(const std::size_t& counter) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return counter == agents_.size() || !error_.empty(); });
  return error_.empty() ? absl::OkStatus() : absl::UnavailableError(error_);
}

void LightAgents::BeatUntilStopped() {
  Instant next = MonotonicNow();
  for (std::size_t slice = 0; !stop_beating_; slice = (slice + 1) % kSlices) {
    for (std::size_t i = slice; i < agents_.size(); i += kSlices) {
      if (!agents_[i]->Beat()) {
        ++skipped_;
      }
    }
    for (LightAgent* const agent : TakeDue()) {
      agent->OpenStream();
    }
    next += kSlice;
    std::this_thread::sleep_until(next);
  }
}

void LightAgents::TryAgain(LightAgent& agent) {
  const std::lock_guard lock(mutex_);
  to_open_.emplace_back(MonotonicNow() + kRetryInterval, &agent);
}

std::vector<LightAgent*> LightAgents::TakeDue() {
  const Instant now = MonotonicNow();
  std::vector<LightAgent*> due;
  const std::lock_guard lock(mutex_);
  while (!to_open_.empty() && to_open_.front().first <= now) {
    due.push_back(to_open_.front().second);
    to_open_.pop_front();
  }
  return due;
}

void LightAgents::CountLocked(std::size_t& counter) {
  ++counter;
  if (counter == agents_.size() || !error_.empty()) {
    changed_.notify_all();
  }
}

void LightAgents::Joined() {
  const std::lock_guard lock(mutex_);
  formed_.last_joined = MonotonicNow();
}

void LightAgents::Started(std::int64_t round, std::int64_t node_rank) {
  const std::lock_guard lock(mutex_);
  if (round != 1) {
    error_ = absl::StrCat("round ", round, " started: a node was lost on the way");
  }
  formed_.last_started = MonotonicNow();
  formed_.node_rank_sum += node_rank;
  CountLocked(num_started_);
}

void LightAgents::JobIsDone() {
  const std::lock_guard lock(mutex_);
  last_done_ = MonotonicNow();
  CountLocked(num_done_);
}

void LightAgents::Ended(const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (error_.empty()) {
    error_ = error;
  }
  CountLocked(num_ended_);
}

}  // namespace ddl::bench
