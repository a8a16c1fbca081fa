// Job, what becomes of a round: running, stopping, ending.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "agent/base/check.h"
#include "agent/base/device_memory.h"
#include "agent/core/job.h"
#include "agent/core/wording.h"

namespace ddl::core {

namespace {

// A worker's exit may be read late, and its traceback was written before its exit.
// What is older than this comes of a clock that was set meanwhile.
constexpr Duration kMaxFailureAge = std::chrono::minutes(10);

}  // namespace

// ---- running ----------------------------------------------------------------

void Job::On(Turn& turn, const WorkerFailed& failed) {
  const Member* const member = HearMember(turn, failed.agent, failed.round, "worker failed");
  if (member == nullptr) {
    return;
  }
  WorkerFailure failure = failed.failure;
  if (failure.host.empty()) {
    failure.host = member->host;
  }
  const Instant happened_at =
      turn.now - std::clamp<Duration>(failed.age, Duration::zero(), kMaxFailureAge);
  if (state_ == State::kStopping) {
    NoteFurtherFailure(turn, failed.agent, std::move(failure), happened_at);
    return;
  }
  Verdict verdict = Judge(failure);
  round_->failure_from = failed.agent.incarnation;
  BeginStop(turn, verdict.reason, verdict.text, std::move(failure), std::move(verdict.result));
  if (round_.has_value() && round_->stopping.has_value()) {
    round_->stopping->caused_at = happened_at;
  }
}

// The first to be heard of is the root cause, unless one comes that does not blame
// a peer while it does, or one of the same kind that happened before it: a rank
// that failed may take longer to end than those whose connections it broke.
void Job::NoteFurtherFailure(Turn& turn, const AgentRef& from, WorkerFailure failure,
                             Instant happened_at) {
  Stopping& stopping = *round_->stopping;
  if (stopping.message.root_cause == failure) {
    return;  // said again after a reconnect
  }
  ++round_->num_secondary_failures;
  const std::optional<WorkerFailure>& cause = stopping.message.root_cause;
  const bool replaces = cause.has_value() && (cause->blames_peer != failure.blames_peer
                                                  ? cause->blames_peer
                                                  : happened_at < stopping.caused_at);
  if (!replaces) {
    Say(turn, Reason::kWorkerFailed, absl::StrCat("secondary: ", Describe(failure)));
    return;
  }
  Say(turn, Reason::kWorkerFailed,
      absl::StrCat("the root cause is another: ", Describe(failure), "; that of rank ", cause->rank,
                   " came after it"));
  round_->failure_from = from.incarnation;
  stopping.caused_at = happened_at;
  if (stopping.result.has_value() && !stopping.result->root_cause.has_value()) {
    stopping.message.text = DescribeAndWhatFollows(failure);  // the user stopped it meanwhile
  } else {
    Verdict verdict = Judge(failure);
    if (verdict.reason == Reason::kOutOfMemory) {
      Say(turn, verdict.reason, verdict.text);
    }
    stopping.message.reason = verdict.reason;
    stopping.message.text = std::move(verdict.text);
    stopping.result = verdict.result.has_value() ? std::move(verdict.result) : stopping.user_stop;
    stopping.message.will_restart = !stopping.result.has_value();
  }
  stopping.message.root_cause = std::move(failure);
}

Job::Verdict Job::Judge(WorkerFailure& failure) {
  Verdict verdict{Reason::kWorkerFailed, "", std::nullopt};
  std::string words = DescribeAndWhatFollows(failure);
  if (failure.out_of_memory) {
    const absl::StatusOr<std::string> lesson = LearnFromFailure(failure);
    if (lesson.ok()) {
      return {Reason::kOutOfMemory,
              absl::StrCat(Describe(failure), " for lack of device memory; the next round: ",
                           *lesson, "; this costs no restart"),
              std::nullopt};
    }
    // The micro-batch is no way out any more.
    failure.hint =
        absl::StrReplaceAll(failure.hint, {{DeviceMemoryHints(true), DeviceMemoryHints(false)}});
    const std::string why =
        absl::StrCat("; it ran out of device memory: ", lesson.status().message());
    if (plan_.InForce().has_value()) {  // and no restart would make the same batch fit
      verdict.text = Describe(failure) + why;
      verdict.result = MakeDone(Reason::kWorkerFailed, ExitCodeOf(failure), verdict.text);
      verdict.result->root_cause = failure;
      return verdict;
    }
    words += why;
  }
  if (restart_count_ >= first_.max_restarts) {
    verdict.result = MakeFailed(failure, words);
  }
  verdict.text = std::move(words);
  return verdict;
}

std::string Job::DescribeAndWhatFollows(const WorkerFailure& failure) const {
  if (restart_count_ < first_.max_restarts) {
    return absl::StrCat(Describe(failure), "; restart ", restart_count_ + 1, " of ",
                        first_.max_restarts, " follows");
  }
  return first_.max_restarts == 0 ? Describe(failure)
                                  : absl::StrCat(Describe(failure), "; all ", first_.max_restarts,
                                                 " restarts are used up");
}

JobDone Job::MakeFailed(const WorkerFailure& failure, std::string words) const {
  JobDone done =
      MakeDone(first_.max_restarts > 0 ? Reason::kRestartsExhausted : Reason::kWorkerFailed,
               ExitCodeOf(failure), std::move(words));
  done.root_cause = failure;
  return done;
}

void Job::On(Turn& turn, const WorkersSucceeded& succeeded) {
  Member* const member = HearRunning(turn, succeeded.agent, succeeded.round, "workers succeeded");
  if (member == nullptr || member->succeeded) {
    return;
  }
  member->succeeded = true;
  ++round_->num_succeeded;
  Say(turn, Reason::kAllSucceeded,
      absl::StrCat("all workers of host ", member->host, " (node rank ", member->node_rank,
                   ") succeeded: ", round_->num_succeeded, " of ",
                   Counted(static_cast<std::int64_t>(round_->members.size()), "node")));
  if (round_->num_succeeded == round_->members.size()) {
    End(turn, MakeDone(Reason::kAllSucceeded, 0, "all workers succeeded"));
  }
}

// ---- stopping ---------------------------------------------------------------

void Job::BeginStop(Turn& turn, Reason reason, const std::string& text,
                    std::optional<WorkerFailure> root_cause, std::optional<JobDone> result) {
  state_ = State::kStopping;
  Stopping& stopping = round_->stopping.emplace();
  stopping.began = turn.now;
  stopping.message.round = round_->number;
  stopping.message.reason = reason;
  stopping.message.text = text;
  stopping.message.root_cause = std::move(root_cause);
  stopping.message.will_restart = !result.has_value();
  stopping.result = std::move(result);
  Say(turn, reason, absl::StrCat("round ", round_->number, " stops: ", text));
  Duration longest_grace = Duration::zero();
  for (Member& member : round_->members) {
    const auto agent = agents_.find(member.agent.incarnation);
    if (agent == agents_.end()) {
      member.stopped = true;
      continue;
    }
    ++stopping.num_missing;
    longest_grace = std::max(longest_grace, agent->second.hello.stop_grace);
    Tell(turn, member.agent, stopping.message);
  }
  stopping.deadline = turn.now + longest_grace + options_.stop_margin;
  if (stopping.num_missing == 0) {
    FinishStop(turn);
    return;
  }
  Arm(turn, TimerKind::kStop, "", stopping.deadline);
}

void Job::On(Turn& turn, const RoundStopped& stopped) {
  if (const auto it = agents_.find(stopped.agent.incarnation);
      it != agents_.end() && it->second.surviving_round == stopped.round && stopped.round != 0) {
    it->second.last_heard = turn.now;
    EndSurvival(turn, it->second);
    return;
  }
  Member* const member = HearMember(turn, stopped.agent, stopped.round, "round stopped");
  if (member == nullptr) {
    return;
  }
  if (state_ == State::kStopping) {
    MarkStopped(turn, *member);
    return;
  }
  if (member->succeeded) {
    return;
  }
  // It could not reach us and stopped for that; the round cannot go on.
  const std::string text =
      absl::StrCat("host ", member->host, " (node rank ", member->node_rank,
                   ") stopped its workers by itself, cut off from the coordinator");
  BeginStop(turn, Reason::kNodeLost, text, std::nullopt, std::nullopt);
  MarkStopped(turn, *member);
}

void Job::MarkStopped(Turn& turn, Member& member) {
  if (member.stopped) {
    return;
  }
  member.stopped = true;
  DDL_CHECK(round_->stopping->num_missing > 0);
  if (--round_->stopping->num_missing == 0) {
    FinishStop(turn);
  }
}

void Job::OnStopTimer(Turn& turn) {
  if (state_ != State::kStopping) {
    return;
  }
  if (turn.now < round_->stopping->deadline) {
    Arm(turn, TimerKind::kStop, "", round_->stopping->deadline);
    return;
  }
  std::vector<std::string> silent;
  for (const Member& member : round_->members) {
    if (!member.stopped) {
      silent.push_back(member.agent.incarnation);
    }
  }
  // The last of them ends the stop, and perhaps the job.
  for (const std::string& incarnation : silent) {
    const auto it = agents_.find(incarnation);
    DDL_CHECK(it != agents_.end());
    GiveUpUnstopped(turn, it);
  }
}

void Job::FinishStop(Turn& turn) {
  const Stopping stopping = *std::move(round_->stopping);
  if (stopping.result.has_value()) {
    JobDone done = *stopping.result;
    if (done.root_cause.has_value() && round_->num_secondary_failures > 0) {
      absl::StrAppend(&done.text, " (", round_->num_secondary_failures, " more failed after it)");
    }
    End(turn, std::move(done));
    return;
  }
  if (stopping.message.reason == Reason::kWorkerFailed) {
    ++restart_count_;
    Say(turn, Reason::kRestarting,
        absl::StrCat("round ", round_->number, " has stopped; restart ", restart_count_, " of ",
                     first_.max_restarts));
  } else {
    Say(turn, Reason::kRestarting,
        absl::StrCat("round ", round_->number,
                     " has stopped; the nodes gather again, which costs "
                     "no restart"));
  }
  BeginGathering(turn);
}

// ---- ending -----------------------------------------------------------------

JobDone Job::MakeDone(Reason reason, std::int32_t exit_code, std::string text) const {
  JobDone done;
  done.reason = reason;
  done.exit_code = exit_code;
  done.text = std::move(text);
  done.restart_count = restart_count_;
  return done;
}

void Job::End(Turn& turn, JobDone result) {
  state_ = State::kEnded;
  round_.reset();
  spares_.clear();
  result_ = std::move(result);
  forget_deadline_ = turn.now + options_.forget_after;
  Say(turn, result_->reason,
      absl::StrCat("the job ends with exit code ", result_->exit_code, ": ", result_->text));
  static_cast<void>(PersistNow(turn, /*ended=*/true));
  for (const auto& [incarnation, agent] : agents_) {
    Tell(turn, RefOf(agent), *result_);
  }
  Arm(turn, TimerKind::kForget, "", forget_deadline_);
}

std::int64_t Job::PersistNow(Turn& turn, bool ended) {
  Persist persist;
  persist.job_id = first_.agent.job_id;
  persist.sequence = ++turn.sequence;
  persist.round = last_round_;
  persist.restart_count = restart_count_;
  persist.ended = ended;
  turn.effects.emplace_back(std::move(persist));
  return turn.sequence;
}

}  // namespace ddl::core
