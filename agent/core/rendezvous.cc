// All jobs of a coordinator: routing and limits.
#include "agent/core/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/core/admission.h"
#include "agent/core/job.h"
#include "agent/core/wording.h"

namespace ddl::core {
namespace {

struct JobIdOf {
  const std::string& operator()(const TimerFired& fired) const { return fired.id.job_id; }
  const std::string& operator()(const StoreDone& done) const { return done.job_id; }
  template <typename Word>
  const std::string& operator()(const Word& word) const {
    return word.agent.job_id;
  }
};

// A word of somebody whose job is not known (any more). Ends of streams,
// timers and the store need no answer.
struct SenderOfStrayWord {
  const AgentRef* operator()(const TimerFired& /*fired*/) const { return nullptr; }
  const AgentRef* operator()(const StoreDone& /*done*/) const { return nullptr; }
  const AgentRef* operator()(const AgentDisconnected& /*gone*/) const { return nullptr; }
  const AgentRef* operator()(const AgentLeft& /*gone*/) const { return nullptr; }
  template <typename Word>
  const AgentRef* operator()(const Word& word) const {
    return &word.agent;
  }
};

void Refuse(const AgentConnected& hello, Rejected refusal, Effects& effects) {
  effects.emplace_back(
      Explain{hello.agent.job_id, refusal.reason,
              absl::StrCat("host ", hello.host, " (", ShortIncarnation(hello.agent.incarnation),
                           ") is refused: ", refusal.text)});
  effects.emplace_back(Reply{hello.agent, std::move(refusal)});
}

}  // namespace

Rendezvous::Rendezvous(Options options) : options_(options) {}
Rendezvous::~Rendezvous() = default;

Effects Rendezvous::Step(Instant now, const Event& event) {
  Effects effects;
  Job* const job = FindOrMake(event, effects);
  if (job == nullptr) {
    return effects;
  }
  const std::string job_id = std::visit(JobIdOf{}, event);
  const bool was_waiting = job->waits_for_nodes();
  Turn turn{now, effects, gone_, [this, &job_id] { return OtherWaitingJobs(job_id); }};
  job->Step(turn, event);
  if (was_waiting && job->result().has_value() && job->result()->reason == Reason::kJoinTimeout) {
    for (const auto& [other_id, other] : jobs_) {
      if (other_id != job_id && other->waits_for_nodes()) {
        other->NoteOtherWaiting(job_id);
      }
    }
  }
  if (job->forgotten()) {
    jobs_.erase(job_id);
  }
  return effects;
}

Job* Rendezvous::FindOrMake(const Event& event, Effects& effects) {
  const std::string& job_id = std::visit(JobIdOf{}, event);
  if (const auto it = jobs_.find(job_id); it != jobs_.end()) {
    return it->second.get();
  }
  if (const auto* const hello = std::get_if<AgentConnected>(&event)) {
    return MakeJob(*hello, effects);
  }
  if (const AgentRef* const sender = std::visit(SenderOfStrayWord{}, event)) {
    effects.emplace_back(
        Explain{job_id, Reason::kStaleIncarnation,
                absl::StrCat("ignored a word of ", ShortIncarnation(sender->incarnation),
                             ": no such job")});
  }
  return nullptr;
}

Job* Rendezvous::MakeJob(const AgentConnected& hello, Effects& effects) {
  if (auto bad = CheckHello(hello)) {
    Refuse(hello, *std::move(bad), effects);
    return nullptr;
  }
  if (gone_.Contains(hello.agent)) {
    Refuse(hello,
           Rejected{Reason::kStaleIncarnation,
                    "this node was part of the job before, and the job is over; start ddlaunch "
                    "again"},
           effects);
    return nullptr;
  }
  if (jobs_.size() >= limits::kMaxJobs) {
    Refuse(hello,
           Rejected{Reason::kLimit, absl::StrCat("this coordinator serves ", jobs_.size(),
                                                 " jobs already, which is its limit")},
           effects);
    return nullptr;
  }
  return jobs_.emplace(hello.agent.job_id, std::make_unique<Job>(hello, options_))
      .first->second.get();
}

std::vector<std::string> Rendezvous::OtherWaitingJobs(const std::string& except) const {
  std::vector<std::string> waiting;
  for (const auto& [job_id, job] : jobs_) {
    if (waiting.size() == kMaxNamed) {
      break;
    }
    if (job_id != except && job->waits_for_nodes()) {
      waiting.push_back(job_id);
    }
  }
  return waiting;
}

std::size_t Rendezvous::num_jobs() const {
  return jobs_.size();
}

const Job* Rendezvous::FindJob(const std::string& job_id) const {
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : it->second.get();
}

}  // namespace ddl::core
