// The invariants of what agents are told.
#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"
#include "tests/sim/text.h"

namespace ddl::sim {
namespace {

using core::Reason;

// Agents whose stream broke keep their place for a moment.
constexpr std::int64_t kMoreThere = 16;

std::string Name(NodeId node) {
  return absl::StrCat("n", node);
}

}  // namespace

void Checker::CheckReply(const Step& step, const core::Reply& reply) {
  const NodeId to = NodeOfRef(reply.agent);
  Agent* const agent = Find(step.life, to);
  if (agent == nullptr) {
    Fail(absl::StrCat(Name(to), " is told something, but never came"));
    return;
  }
  Job& job = jobs_[static_cast<std::size_t>(agent->job)];
  if (const auto* const rejected = std::get_if<core::Rejected>(&reply.message)) {
    CheckRejected(job, *agent, *rejected);
    return;
  }
  if (!agent->admitted) {
    agent->admitted = true;
    if (agent->surviving_round > 0) {
      job.warned = true;
      job.highest_round = std::max(job.highest_round, agent->surviving_round);
      if (!job.live) {
        job.restart_count = std::max(job.restart_count,
                                     std::min(agent->hello.restart_count, job.terms.max_restarts));
      }
      if (!job.first_survivor_at.has_value()) {
        job.first_survivor_at = step.now;
      }
    }
  }
  if (agent->gone) {
    Fail(absl::StrCat(Name(to), " is told something, but is gone"));
  }
  if (const auto* const stop = std::get_if<core::RoundStop>(&reply.message)) {
    CheckRoundStop(step, to, job, *stop);
  } else if (const auto* const done = std::get_if<core::JobDone>(&reply.message)) {
    CheckResult(step, job, *done);
  } else if (const auto* const spare = std::get_if<core::Spare>(&reply.message)) {
    CheckSpare(to, job, *spare);
    agent->spare = true;
  } else if (const auto* const changed = std::get_if<core::PlanChanged>(&reply.message)) {
    CheckPlanChanged(step, to, job, *changed);
  } else {
    CheckWords(to, job, reply.message);
  }
}

void Checker::CheckRejected(Job& job, Agent& agent, const core::Rejected& rejected) {
  if (agent.admitted) {
    agent.gone = true;
    return;
  }
  // It never was part of the job, and may ask again.
  const NodeId node = NodeOfRef(agent.hello.agent);
  job.agents.erase(std::find(job.agents.begin(), job.agents.end(), node));
  const std::int32_t max_nodes = job.terms.max_nodes;
  const auto there = std::count_if(job.agents.begin(), job.agents.end(),
                                   [this](NodeId other) { return !At(other).gone; });
  if (rejected.reason == Reason::kJobFull && CountReady(job) < 2 * max_nodes - 1 &&
      there < std::int64_t{3} * max_nodes + kMoreThere) {
    Fail(absl::StrCat(Name(node), " is refused for want of room, but there is room"));
  }
  agent = Agent{};
}

void Checker::CheckRoundStop(const Step& step, NodeId to, Job& job, const core::RoundStop& stop) {
  if (stop.reason == Reason::kRecovered) {
    if (At(to).surviving_round != stop.round) {
      Fail(
          absl::StrCat(Name(to), " must stop round ", stop.round, ", from which it does not come"));
    }
    return;
  }
  if (stop.round != job.round || !IsMember(job, to)) {
    Fail(absl::StrCat(Name(to), " must stop round ", stop.round, ", in which it is not"));
  }
  if (job.stop.has_value()) {
    // A failure may turn out to have come of a lost member: who comes back then
    // hears of that.
    const auto is_failure = [](core::Reason reason) {
      return reason == core::Reason::kWorkerFailed || reason == core::Reason::kOutOfMemory;
    };
    const bool forgiven =
        is_failure(job.stop->reason) && stop.reason == core::Reason::kNodeLost && OneIsGone(job);
    const bool same_reason = job.stop->reason == stop.reason ||
                             (is_failure(job.stop->reason) && is_failure(stop.reason));
    // The cause may have turned out to be another since the first heard of it.
    const auto is_cause = [&job](const core::WorkerFailure& failure) {
      return job.cause.has_value() && job.cause->rank == failure.rank &&
             job.cause->exit_code == failure.exit_code;
    };
    const bool same_cause = job.stop->root_cause.has_value() == stop.root_cause.has_value() &&
                            (!stop.root_cause.has_value() || is_cause(*stop.root_cause));
    if (!forgiven && (!same_reason || !same_cause)) {
      Fail("two members heard of different causes of one stop");
    }
    return;
  }
  job.stop = stop;
  job.stop_at = step.now;
  if (stop.reason == Reason::kNodeJoined) {
    const bool somebody = std::any_of(job.agents.begin(), job.agents.end(), [&](NodeId node) {
      return IsReady(At(node)) && !IsMember(job, node);
    });
    if (!somebody || !job.succeeded.empty() ||
        static_cast<std::int32_t>(job.members.size()) >= job.terms.max_nodes) {
      Fail("a round ends for a late node without need, or without room");
    }
  }
  if ((stop.reason == Reason::kOutOfMemory) !=
          (job.stops_for_memory && stop.root_cause.has_value()) ||
      (stop.reason == Reason::kOutOfMemory && !stop.will_restart)) {
    Fail("a smaller micro-batch was left to try, and no restart for it; or the other way round");
  }
  // Where no smaller micro-batch is left, no restart would help.
  const bool may_help =
      !job.cause.has_value() || !job.cause->out_of_memory || !job.in_force.has_value();
  if (stop.reason == Reason::kWorkerFailed &&
      stop.will_restart != (may_help && job.restart_count < job.terms.max_restarts)) {
    Fail("a restart that the budget does not allow, or none though it does");
  }
}

void Checker::CheckSpare(NodeId to, Job& job, const core::Spare& spare) {
  if (job.live && IsMember(job, to)) {
    Fail(absl::StrCat(Name(to), " is a member and told that it is a spare"));
  }
  if (spare.place < 1 || spare.place > 3 * job.terms.max_nodes + kMoreThere) {
    Fail(absl::StrCat(Name(to), " is spare ", spare.place));
  }
}

void Checker::CheckWords(NodeId to, Job& job, const core::Message& message) {
  const bool member = IsMember(job, to);
  if (const auto* const key = std::get_if<core::KeyValue>(&message)) {
    const auto written = job.keys.find(key->key);
    if (!member || key->round != job.round || written == job.keys.end() ||
        written->second != key->value) {
      Fail(absl::StrCat(Name(to), " got a value of key ", key->key,
                        " that is not this round's first"));
    }
  } else if (const auto* const barrier = std::get_if<core::BarrierDone>(&message)) {
    if (!member || barrier->round != job.round ||
        job.barriers[barrier->name].size() != job.members.size()) {
      Fail(absl::StrCat(Name(to), " passed barrier ", barrier->name, " before every member came"));
    }
  } else if (const auto* const plan = std::get_if<core::PlanReply>(&message)) {
    CheckPlanReply(to, job, *plan);
  }
}

// ---- the result -------------------------------------------------------------

void Checker::CheckResult(const Step& step, Job& job, const core::JobDone& done) {
  if (job.result.has_value()) {
    const auto key = [](const core::JobDone& of) {
      return std::tie(of.reason, of.exit_code, of.text, of.restart_count);
    };
    if (key(*job.result) != key(done) || job.result->root_cause != done.root_cause) {
      Fail("a job ended in two results");
    }
    return;
  }
  job.result = done;
  switch (done.reason) {
    case Reason::kAllSucceeded:
      if (done.exit_code != 0 || job.succeeded.size() != job.members.size()) {
        Fail("success, but not every node succeeded");
      }
      return;
    case Reason::kWorkerFailed:
    case Reason::kRestartsExhausted:
      if (job.stops_for_memory) {
        Fail("the job ended by lack of memory, but a smaller micro-batch was left to try");
      }
      if (!job.cause.has_value() || done.exit_code != job.cause->exit_code) {
        Fail("the exit code is not that of the round's root cause");
      }
      return;
    case Reason::kStoppedByUser:
      if (!job.signals.contains(done.exit_code - 128)) {
        Fail("stopped by a user who did not ask for it");
      }
      return;
    case Reason::kJoinTimeout:
      CheckJoinTimeout(step, job);
      return;
    case Reason::kPlanImpossible:  // later on, the nodes that are missing may come back
      if (done.exit_code != 2 || job.highest_round > 0 ||
          !job.terms.plan.global_batch_size.has_value()) {
        Fail("the plan was possible");
      }
      return;
    default:
      Fail(absl::StrCat("a result that cannot be: ", core::ToString(done.reason)));
  }
}

void Checker::CheckJoinTimeout(const Step& step, Job& job) {
  std::int32_t able = 0;
  std::set<std::int32_t> pins;
  bool all_able = true;
  bool survivors = false;
  for (const NodeId node : job.agents) {
    const Agent& agent = At(node);
    survivors = survivors || (agent.admitted && !agent.gone && agent.surviving_round != 0);
    if (IsReady(agent)) {
      ++able;
      all_able = all_able && agent.port != 0 &&
                 (!agent.hello.node_rank.has_value() || pins.insert(*agent.hello.node_rank).second);
    }
  }
  const bool held_back =
      survivors ||
      (job.first_survivor_at.has_value() &&
       step.now < *job.first_survivor_at + options_.heartbeat_timeout + options_.reconnect_grace);
  const bool may_lack_plan = !job.terms.plan.empty();
  if (able >= job.terms.min_nodes && all_able && !held_back && !may_lack_plan && !job.live) {
    Fail("join timeout, but enough nodes were there");
  }
}

}  // namespace ddl::sim
