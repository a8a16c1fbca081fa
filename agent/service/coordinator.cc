// The coordinator's thread: events in, effects out.
#include "agent/service/coordinator.h"

#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/base/event_queue.h"
#include "agent/base/unique_fd.h"
#include "agent/service/job_watch.h"
#include "agent/service/listener.h"
#include "agent/service/lobby.h"
#include "agent/service/session_reactor.h"
#include "agent/service/timer_hold.h"
#include "agent/wire/channel.h"
#include "ddlaunch/v1/rendezvous.grpc.pb.h"

namespace ddl {
namespace {

// Timers by id and by deadline; arming one again moves it.
class TimerQueue {
 public:
  void Arm(const core::TimerId& id, Instant deadline) {
    if (const auto it = deadline_of_.find(id); it != deadline_of_.end()) {
      order_.erase({it->second, id});
      it->second = deadline;
    } else {
      deadline_of_.emplace(id, deadline);
    }
    order_.insert({deadline, id});
  }

  [[nodiscard]] std::optional<Instant> Next() const {
    return order_.empty() ? std::nullopt : std::optional(order_.begin()->first);
  }

  // One timer that is due, taken out.
  std::optional<core::TimerId> PopDue(Instant now) {
    if (order_.empty() || order_.begin()->first > now) {
      return std::nullopt;
    }
    core::TimerId id = order_.begin()->second;
    order_.erase(order_.begin());
    deadline_of_.erase(id);
    return id;
  }

 private:
  std::map<core::TimerId, Instant> deadline_of_;
  std::set<std::pair<Instant, core::TimerId>> order_;
};

constexpr const char* kStopped = "the coordinator was stopped";
// How long the last words to agents may take when a coordinator goes.
constexpr Duration kGoodbyeTime = std::chrono::milliseconds(500);
// What has connected and does not speak HTTP/2 goes after this time, and so does
// a connection without a stream: an agent always has one.
constexpr int kHandshakeTimeoutMs = 10'000;
constexpr int kMaxConnectionIdleMs = 30'000;

using SessionStream =
    grpc::ServerBidiReactor<ddlaunch::v1::AgentMessage, ddlaunch::v1::CoordinatorMessage>;

// A stream that is not taken. UNAVAILABLE: an agent comes again.
class RefusedSession final : public SessionStream {
 public:
  explicit RefusedSession(const char* why) { Finish({grpc::StatusCode::UNAVAILABLE, why}); }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): gRPC's way to end a reactor.
  void OnDone() override { delete this; }
};

}  // namespace

class Coordinator::Impl final : public ddlaunch::v1::Rendezvous::CallbackService {
 public:
  Impl(Options options, std::unique_ptr<store::Store> store)
      : options_(std::move(options)),
        door_{options_.token, options_.hello_timeout},
        lobby_(options_.max_unintroduced_streams),
        store_(std::move(store)),
        core_(options_.core) {}

  absl::Status Listen();
  void Run();
  bool WaitUntilIdle(Duration timeout);
  void EndSessions(Duration at_most);
  void Shutdown();

  SessionStream* Session(grpc::CallbackServerContext* context) override {
    Lobby::Place place = lobby_.Enter();
    {
      const std::lock_guard lock(mutex_);
      if (ending_) {
        return new RefusedSession(kStopped);
      }
      if (place == nullptr) {
        return new RefusedSession("too many streams here have not said Hello yet; try again");
      }
      ++open_streams_;
    }
    return SessionReactor::Create(
        context,
        [this](const auto& reactor, SessionReactor::Happening what) {
          std::visit([&](auto& one) { queue_.Push({reactor, std::move(one)}); }, what);
        },
        &door_, std::move(place));
  }

  [[nodiscard]] std::uint16_t port() const { return listener_->port(); }
  [[nodiscard]] std::shared_ptr<grpc::Channel> InProcessChannel() const {
    return server_->InProcessChannel(grpc::ChannelArguments());
  }

 private:
  struct EndAllSessions {};
  struct Incoming {
    std::shared_ptr<SessionReactor> stream;  // null: not from a stream
    std::variant<core::Event, core::Explain, SessionReactor::Ended, EndAllSessions> what;
  };

  void Handle(const Incoming& incoming);
  void Handle(const std::shared_ptr<SessionReactor>& stream, const core::Event& event);
  void StreamEnded(const std::shared_ptr<SessionReactor>& stream);
  void CloseAll();
  void Step(const core::Event& event);

  void Apply(const core::Persist& effect);
  void Apply(const core::Reply& effect);
  void Apply(const core::ArmTimer& effect) { timers_.Arm(effect.id, effect.deadline); }
  void Apply(const core::Explain& effect) const {
    if (options_.explain) {
      options_.explain(effect);
    }
  }

  const Options options_;
  const SessionReactor::Door door_;
  const Lobby lobby_;
  EventQueue<Incoming> queue_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;

  // The coordinator thread's own.
  const std::unique_ptr<store::Store> store_;
  core::Rendezvous core_;
  JobWatch job_watch_;
  TimerQueue timers_;
  // Each agent's newest stream, and whose each stream is: a stream that was
  // replaced by a reconnect says nothing about its agent any more.
  std::map<core::AgentRef, std::shared_ptr<SessionReactor>> stream_of_;
  std::map<const SessionReactor*, core::AgentRef> agent_of_;

  std::mutex mutex_;
  std::condition_variable idle_changed_;
  bool ending_ = false;       // guarded by mutex_; no stream is taken any more
  int open_streams_ = 0;      // guarded by mutex_
  std::size_t num_jobs_ = 0;  // guarded by mutex_
  std::thread thread_;
};

absl::Status Coordinator::Impl::Listen() {
  // The port comes first: if it is taken, no server has to go again.
  auto listener = Listener::Open(options_.listen_host, options_.listen_port);
  if (!listener.ok()) {
    return listener.status();
  }
  listener_ = *std::move(listener);
  grpc::ServerBuilder builder;
  wire::ConfigureServer(&builder);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxConnectionIdleMs);
  using Kind = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      Kind::FROM_FD, grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::InternalError("gRPC could not start a server");
  }
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "ddl-coord");
  listener_->Start(
      [this](int listening, UniqueFd connection) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
        parameters.listener_fd = listening;
        parameters.fd = connection.release();
        acceptor_->HandleNewConnection(&parameters);
      },
      [this](const std::string& complaint) {
        queue_.Push({nullptr, core::Explain{"", core::Reason::kLimit, complaint}});
      });
  return absl::OkStatus();
}

void Coordinator::Impl::Run() {
  TimerHold hold(options_.core.heartbeat_interval, MonotonicNow());
  while (!queue_.closed()) {
    // Words that wait go before timers that are due.
    const std::optional<Instant> next_timer = timers_.Next();
    const std::optional<Incoming> incoming = queue_.Pop(
        next_timer.has_value() ? std::optional(hold.WakeFor(*next_timer)) : std::nullopt);
    const Instant now = MonotonicNow();
    const bool timers_may_fire = hold.OnAwake(now, next_timer);
    if (incoming.has_value()) {
      Handle(*incoming);
    } else if (timers_may_fire) {
      if (auto due = timers_.PopDue(now); due.has_value()) {
        Step(core::TimerFired{*std::move(due)});
      }
    }
  }
}

void Coordinator::Impl::Handle(const Incoming& incoming) {
  if (const auto* event = std::get_if<core::Event>(&incoming.what)) {
    if (incoming.stream == nullptr) {
      Step(*event);
    } else {
      Handle(incoming.stream, *event);
    }
  } else if (const auto* refusal = std::get_if<core::Explain>(&incoming.what)) {
    Apply(*refusal);
  } else if (std::holds_alternative<EndAllSessions>(incoming.what)) {
    CloseAll();
  } else {
    StreamEnded(incoming.stream);
  }
}

void Coordinator::Impl::Handle(const std::shared_ptr<SessionReactor>& stream,
                               const core::Event& event) {
  if (const auto* hello = std::get_if<core::AgentConnected>(&event)) {
    std::shared_ptr<SessionReactor>& newest = stream_of_[hello->agent];
    if (newest != nullptr) {
      agent_of_.erase(newest.get());
      newest->Close({grpc::StatusCode::ABORTED, "a newer session of the same agent has begun"});
    }
    newest = stream;
    agent_of_[stream.get()] = hello->agent;
  } else if (agent_of_.find(stream.get()) == agent_of_.end()) {
    return;  // the last words of a stream that was replaced or refused
  }
  Step(event);
  if (const auto* left = std::get_if<core::AgentLeft>(&event)) {
    // Its goodbye was heard: the end of its stream is no loss.
    stream_of_.erase(left->agent);
    agent_of_.erase(stream.get());
  }
  stream->ReadNext();
}

// Without a word to the core: nobody is lost because we go.
void Coordinator::Impl::CloseAll() {
  for (const auto& [agent, stream] : stream_of_) {
    stream->Close({grpc::StatusCode::UNAVAILABLE, kStopped});
  }
  stream_of_.clear();
  agent_of_.clear();
}

void Coordinator::Impl::StreamEnded(const std::shared_ptr<SessionReactor>& stream) {
  if (const auto owner = agent_of_.find(stream.get()); owner != agent_of_.end()) {
    const core::AgentRef agent = owner->second;
    agent_of_.erase(owner);
    if (const auto newest = stream_of_.find(agent);
        newest != stream_of_.end() && newest->second == stream) {
      stream_of_.erase(newest);
      Step(core::AgentDisconnected{agent});
    }
  }
  const std::lock_guard lock(mutex_);
  --open_streams_;
  idle_changed_.notify_all();
}

void Coordinator::Impl::Step(const core::Event& event) {
  for (const core::Effect& effect : core_.Step(MonotonicNow(), event)) {
    std::visit([this](const auto& one) { Apply(one); }, effect);
  }
  if (options_.tell_of_job) {
    if (const auto line = job_watch_.Look(core_, event); line.has_value()) {
      options_.tell_of_job(*line);
    }
  }
  if (const std::lock_guard lock(mutex_); num_jobs_ != core_.num_jobs()) {
    num_jobs_ = core_.num_jobs();
    idle_changed_.notify_all();
  }
}

void Coordinator::Impl::Apply(const core::Persist& effect) {
  store_->Write(
      effect, [this, job = effect.job_id, sequence = effect.sequence](const absl::Status& status) {
        if (status.ok()) {
          queue_.Push({nullptr, core::Event(core::StoreDone{job, sequence})});
        } else if (options_.explain) {
          options_.explain({job, core::Reason::kInvalid,
                            absl::StrCat("the state could not be stored: ", status.message())});
        }
      });
}

void Coordinator::Impl::Apply(const core::Reply& effect) {
  const auto stream = stream_of_.find(effect.agent);
  if (stream == stream_of_.end()) {
    return;  // the core brings a returning agent up to date itself
  }
  stream->second->Send(effect.message);
  if (std::holds_alternative<core::Rejected>(effect.message)) {
    stream->second->Close(grpc::Status::OK);
    agent_of_.erase(stream->second.get());
    stream_of_.erase(stream);
  }
}

bool Coordinator::Impl::WaitUntilIdle(Duration timeout) {
  std::unique_lock lock(mutex_);
  return idle_changed_.wait_for(lock, timeout,
                                [this] { return open_streams_ == 0 && num_jobs_ == 0; });
}

void Coordinator::Impl::EndSessions(Duration at_most) {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  listener_->Stop();
  queue_.Push({nullptr, EndAllSessions{}});
  // Takes in no more, lets what was said go out, and at last cancels.
  server_->Shutdown(std::chrono::system_clock::now() + at_most);
}

void Coordinator::Impl::Shutdown() {
  if (server_ == nullptr || !thread_.joinable()) {
    return;
  }
  // The thread still runs, so that every stream's end is taken in before it is
  // joined.
  EndSessions(kGoodbyeTime);
  {
    std::unique_lock lock(mutex_);
    idle_changed_.wait_for(lock, std::chrono::seconds(2), [this] { return open_streams_ == 0; });
  }
  queue_.Close();
  thread_.join();
  server_->Wait();
}

Coordinator::Coordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Coordinator::~Coordinator() {
  impl_->Shutdown();
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    Options options, std::unique_ptr<store::Store> store) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(store));
  if (absl::Status status = impl->Listen(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(impl)));
}

std::uint16_t Coordinator::port() const {
  return impl_->port();
}

std::shared_ptr<grpc::Channel> Coordinator::InProcessChannel() const {
  return impl_->InProcessChannel();
}

void Coordinator::EndSessions(Duration at_most) {
  impl_->EndSessions(at_most);
}

bool Coordinator::WaitUntilIdle(Duration timeout) {
  return impl_->WaitUntilIdle(timeout);
}

}  // namespace ddl
