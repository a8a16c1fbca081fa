// All jobs of a coordinator: routing and limits.
#include "agent/core/rendezvous.h"

#include <algorithm>
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

// Null: not the word of an agent.
struct SenderOf {
  const AgentRef* operator()(const TimerFired& /*fired*/) const { return nullptr; }
  const AgentRef* operator()(const StoreDone& /*done*/) const { return nullptr; }
  template <typename Word>
  const AgentRef* operator()(const Word& word) const {
    return &word.agent;
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

// Two jobs of one id share this timer: the later of the two armings holds.
bool IsForgetTimer(const Event& event) {
  const auto* const fired = std::get_if<TimerFired>(&event);
  return fired != nullptr && fired->id.kind == TimerKind::kForget;
}

void Refuse(const AgentConnected& hello, Rejected refusal, Effects& effects) {
  effects.emplace_back(
      Explain{hello.agent.job_id, refusal.reason,
              absl::StrCat("host ", hello.host, " (", ShortIncarnation(hello.agent.incarnation),
                           ") is refused: ", refusal.text)});
  effects.emplace_back(Reply{hello.agent, std::move(refusal)});
}

}  // namespace

Rendezvous::Rendezvous(Options options) : options_(std::move(options)) {}
Rendezvous::~Rendezvous() = default;

Effects Rendezvous::Step(Instant now, const Event& event) {
  Effects effects;
  if (!first_event_.has_value()) {
    first_event_ = now;
  }
  const std::string job_id = std::visit(JobIdOf{}, event);
  Turn turn{now, effects, gone_, sequence_, [this, &job_id] { return OtherWaitingJobs(job_id); }};
  if (const auto past = past_.find(job_id);
      past != past_.end() && ConcernsPast(*past->second, event)) {
    StepJob(turn, past_, past, event);
    if (!IsForgetTimer(event)) {
      return effects;
    }
  }
  auto it = jobs_.find(job_id);
  if (const auto* const hello = std::get_if<AgentConnected>(&event)) {
    it = FindOrMake(turn, it, *hello);
  } else if (const AgentRef* const sender = std::visit(SenderOfStrayWord{}, event);
             sender != nullptr && it == jobs_.end()) {
    effects.emplace_back(
        Explain{job_id, Reason::kStaleIncarnation,
                absl::StrCat("ignored a word of ", ShortIncarnation(sender->incarnation),
                             ": no such job")});
  }
  if (it != jobs_.end()) {
    StepJob(turn, jobs_, it, event);
  }
  return effects;
}

void Rendezvous::StepJob(Turn& turn, Jobs& jobs, Jobs::iterator it, const Event& event) {
  Job& job = *it->second;
  const bool was_waiting = job.waits_for_nodes();
  job.Step(turn, event);
  if (was_waiting && job.result().has_value() && job.result()->reason == Reason::kJoinTimeout) {
    for (const auto& [other_id, other] : jobs_) {
      if (other_id != it->first && other->waits_for_nodes()) {
        other->NoteOtherWaiting(it->first);
      }
    }
  }
  if (job.ended() || job.forgotten()) {
    KeepLease(turn, it->first, job);
  }
  if (job.forgotten()) {
    jobs.erase(it);
  }
}

void Rendezvous::KeepLease(const Turn& turn, const std::string& job_id, const Job& job) {
  if (job.not_before() <= turn.now) {
    return;
  }
  std::erase_if(leases_, [&turn](const auto& lease) { return lease.second <= turn.now; });
  Instant& until = leases_[job_id];
  until = std::max(until, job.not_before());
}

bool Rendezvous::ConcernsPast(const Job& past, const Event& event) {
  if (const auto* const fired = std::get_if<TimerFired>(&event)) {
    return IsForgetTimer(event) || past.agents().contains(fired->id.subject);
  }
  const AgentRef* const sender = std::visit(SenderOf{}, event);
  return sender != nullptr && past.agents().contains(sender->incarnation);
}

Rendezvous::Jobs::iterator Rendezvous::FindOrMake(Turn& turn, Jobs::iterator it,
                                                  const AgentConnected& hello) {
  if (it != jobs_.end()) {
    if (!it->second->ended() || !options_.only_job.empty() ||
        it->second->agents().contains(hello.agent.incarnation)) {
      return it;
    }
    // The job has its result, and this is another one with the same id.
    if (!CheckHello(hello).has_value() && !gone_.Contains(hello.agent)) {
      MakePast(turn, it);
    }
  }
  return MakeJob(turn, hello);
}

void Rendezvous::MakePast(Turn& turn, Jobs::iterator it) {
  std::unique_ptr<Job>& past = past_[it->first];
  if (past != nullptr) {
    past->Drop(turn);
  }
  past = std::move(it->second);
  jobs_.erase(it);
}

Rendezvous::Jobs::iterator Rendezvous::MakeJob(Turn& turn, const AgentConnected& hello) {
  Effects& effects = turn.effects;
  if (auto bad = CheckHello(hello)) {
    Refuse(hello, *std::move(bad), effects);
    return jobs_.end();
  }
  if (gone_.Contains(hello.agent)) {
    Refuse(hello,
           Rejected{Reason::kStaleIncarnation,
                    "this node was part of the job before, and the job is over; start ddlaunch "
                    "again"},
           effects);
    return jobs_.end();
  }
  if (num_jobs() >= limits::kMaxJobs) {
    Refuse(hello,
           Rejected{Reason::kLimit, absl::StrCat("this coordinator serves ", num_jobs(),
                                                 " jobs already, which is its limit")},
           effects);
    return jobs_.end();
  }
  const auto lease = leases_.find(hello.agent.job_id);
  const Instant not_before = std::max(*first_event_ + options_.hold_after_start,
                                      lease == leases_.end() ? Instant{} : lease->second);
  return jobs_.emplace(hello.agent.job_id, std::make_unique<Job>(hello, options_, not_before))
      .first;
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
  return jobs_.size() + past_.size();
}

const Job* Rendezvous::FindJob(const std::string& job_id) const {
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : it->second.get();
}

}  // namespace ddl::core
