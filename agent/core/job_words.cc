// Job, what workers exchange within a round: keys, barriers, the plan.
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/core/job.h"

namespace ddl::core {
namespace {

Reason ReasonOf(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted ? Reason::kLimit : Reason::kInvalid;
}

std::string Refusal(const Member& member, const absl::Status& status) {
  return absl::StrCat("host ", member.host, " is refused: ", status.message());
}

}  // namespace

void Job::On(Turn& turn, const KeyWritten& written) {
  const Member* const member = HearRunning(turn, written.agent, written.round, "key written");
  if (member == nullptr) {
    return;
  }
  auto told = round_->store.Put(written.key, written.value);
  if (!told.ok()) {
    Say(turn, ReasonOf(told.status()), Refusal(*member, told.status()));
    told.emplace();
  }
  // The writer is told what holds: its own value, or the first one.
  const std::string* const value = round_->store.Find(written.key);
  if (value == nullptr) {
    return;
  }
  told->insert(written.agent.incarnation);
  for (const std::string& incarnation : *told) {
    Tell(turn, AgentRef{first_.agent.job_id, incarnation},
         KeyValue{written.round, written.key, *value});
  }
}

void Job::On(Turn& turn, const KeyWanted& wanted) {
  const Member* const member = HearRunning(turn, wanted.agent, wanted.round, "key wanted");
  if (member == nullptr) {
    return;
  }
  auto value = round_->store.Want(wanted.key, wanted.agent.incarnation);
  if (!value.ok()) {
    Say(turn, ReasonOf(value.status()), Refusal(*member, value.status()));
  } else if (value->has_value()) {
    Tell(turn, wanted.agent, KeyValue{wanted.round, wanted.key, **std::move(value)});
  }
}

void Job::On(Turn& turn, const BarrierReached& reached) {
  const Member* const member = HearRunning(turn, reached.agent, reached.round, "barrier reached");
  if (member == nullptr) {
    return;
  }
  const auto barrier =
      round_->store.Reach(reached.name, reached.agent.incarnation, round_->members.size());
  if (!barrier.ok()) {
    Say(turn, ReasonOf(barrier.status()), Refusal(*member, barrier.status()));
    return;
  }
  const BarrierDone done{reached.round, reached.name};
  switch (*barrier) {
    case RoundStore::Barrier::kWaiting:
      return;
    case RoundStore::Barrier::kWasComplete:
      Tell(turn, reached.agent, done);
      return;
    case RoundStore::Barrier::kComplete:
      for (const Member& other : round_->members) {
        Tell(turn, other.agent, done);
      }
      return;
  }
}

void Job::On(Turn& turn, const PlanProposed& proposed) {
  const Member* const member = HearRunning(turn, proposed.agent, proposed.round, "plan proposed");
  if (member == nullptr) {
    return;
  }
  const auto answer = plan_.Propose(
      absl::StrCat(member->host, " (node rank ", member->node_rank, ")"), proposed.request);
  if (answer.ok()) {
    Tell(turn, proposed.agent, PlanReply{proposed.round, *answer, "", plan_.InForce()->request});
    return;
  }
  const bool differs = answer.status().code() == absl::StatusCode::kFailedPrecondition;
  const std::string text(answer.status().message());
  Say(turn, differs ? Reason::kPlanDiffers : Reason::kPlanImpossible, text);
  Tell(turn, proposed.agent, PlanReply{proposed.round, std::nullopt, text, {}});
}

}  // namespace ddl::core
