// The invariants of a new round: when it may form, and with whom.
#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"
#include "tests/sim/text.h"

namespace ddl::sim {
namespace {

std::string Name(NodeId node) {
  return absl::StrCat("n", node);
}

}  // namespace

// Persist of a job that goes on: a round is formed of those who are ready.
void Checker::CheckFormed(const Step& step, Job& job, const core::Persist& persist) {
  persisted_[persist.sequence] = {static_cast<std::int32_t>(&job - jobs_.data()), persist.round};
  if (job.ended) {
    Fail("something is stored after the job ended");
  }
  job.ended = persist.ended;
  if (persist.ended) {
    return;
  }
  NoteGathering(job, step.now);  // what went before in this very step counts
  const std::int32_t ready = CountReady(job);
  const bool last_call_over =
      job.enough_since.has_value() && step.now >= *job.enough_since + job.terms.last_call_timeout;
  bool somebody_waited_long = false;
  for (const NodeId node : job.agents) {
    const Agent& agent = At(node);
    if (agent.admitted && !agent.gone && agent.surviving_round != 0) {
      Fail(absl::StrCat("a round forms while ", Name(node), " may still run round ",
                        agent.surviving_round));
    }
    somebody_waited_long =
        somebody_waited_long ||
        step.now >= std::max(agent.joined_at, job.gathers_since) + agent.hello.join_timeout;
  }
  if (ready < job.terms.min_nodes) {
    Fail("a round forms of fewer nodes than the job wants");
  }
  if (ready < job.terms.max_nodes && ready < job.wanted && !last_call_over &&
      !somebody_waited_long && !job.formed_before) {
    Fail("a round forms before its last call is over");
  }
  job.formed_before = true;
  if (job.first_survivor_at.has_value() &&
      step.now < *job.first_survivor_at + options_.heartbeat_timeout + options_.reconnect_grace) {
    Fail("a round forms while nodes of the coordinator's last life may not have given up");
  }
  if (persist.round <= job.highest_round) {
    Fail("a round's number came again");
  }
  job.highest_round = persist.round;
  job.num_formed = std::min(ready, job.terms.max_nodes);
  job.formed_unwarned = step.life > 1 && !job.warned;
}

void Checker::CheckNewRound(const Step& step) {
  Starts starts;
  for (const core::Effect& effect : step.effects) {
    const auto* const reply = std::get_if<core::Reply>(&effect);
    const auto* const start =
        reply == nullptr ? nullptr : std::get_if<core::RoundStart>(&reply->message);
    if (start == nullptr) {
      continue;
    }
    const NodeId to = NodeOfRef(reply->agent);
    if (step.job.result.has_value()) {
      Fail("a round starts after the job ended");
    }
    if (start->round != step.job.round || !step.job.live) {
      starts.emplace_back(to, *start);
      continue;
    }
    // Repeated to one that came back.
    const auto told = std::find_if(step.job.members.begin(), step.job.members.end(),
                                   [to](const auto& member) { return member.first == to; });
    if (told == step.job.members.end() || told->second.first_rank != start->first_rank ||
        told->second.master_port != start->master_port || step.job.stop.has_value()) {
      Fail(absl::StrCat(Name(to), " is told of its round again, but otherwise"));
    }
  }
  if (starts.empty()) {
    return;
  }
  const std::int64_t round = starts.front().second.round;
  if (round <= step.job.round) {
    Fail("a round's number came again");
  }
  if (step.job.stored_round < round) {
    Fail("a round started before its number was stored");
  }
  CheckMembersGone(step);
  CheckSize(step, starts);
  CheckRanks(step, starts);
  CheckSticky(step, starts);
  CheckAgreement(step, starts);
  BeginRound(step, starts);
}

// At most one live round: every member of the last has stopped, is gone, or was
// given all the time it may have.
void Checker::CheckMembersGone(const Step& step) {
  if (step.job.live) {
    Fail("a new round starts while the last one lives");
  }
  for (const NodeId node : step.job.agents) {
    const Agent& agent = At(node);
    if (agent.admitted && !agent.gone && agent.surviving_round != 0) {
      Fail(absl::StrCat("a new round starts while ", Name(node), " may still run round ",
                        agent.surviving_round));
    }
  }
}

void Checker::CheckSize(const Step& step, const Starts& starts) {
  const auto size = static_cast<std::int32_t>(starts.size());
  if (size < step.job.terms.min_nodes || size > step.job.terms.max_nodes) {
    Fail(absl::StrCat("a round of ", size, " nodes in a job of ", step.job.terms.min_nodes, " to ",
                      step.job.terms.max_nodes));
  }
  // With a plan, a larger world may have none.
  if (size != step.job.num_formed && (step.job.terms.plan.empty() || size > step.job.num_formed)) {
    Fail(absl::StrCat("a round of ", size, " nodes was formed when ", step.job.num_formed,
                      " were ready"));
  }
}

void Checker::CheckRanks(const Step& /*step*/, const Starts& starts) {
  std::vector<const core::RoundStart*> by_node(starts.size(), nullptr);
  for (const auto& [node, start] : starts) {
    const Agent& agent = At(node);
    if (start.node_rank < 0 || static_cast<std::size_t>(start.node_rank) >= starts.size() ||
        by_node[static_cast<std::size_t>(start.node_rank)] != nullptr) {
      Fail("two nodes have one node rank, or one has none");
      return;
    }
    by_node[static_cast<std::size_t>(start.node_rank)] = &start;
    if (agent.gone || start.nproc != agent.hello.nproc) {
      Fail(absl::StrCat(Name(node), " is gone, or has another number of workers"));
    }
    const std::optional<std::int32_t> pin = agent.hello.node_rank;
    if (pin.has_value() && *pin < start.num_nodes && *pin != start.node_rank) {
      Fail(absl::StrCat(Name(node), " did not get the --node-rank it asked for"));
    }
  }
  std::int32_t next_rank = 0;
  for (const core::RoundStart* const start : by_node) {
    if (start->first_rank != next_rank) {
      Fail("ranks are not contiguous");
    }
    next_rank += start->nproc;
  }
  for (const auto& [node, start] : starts) {
    if (start.world_size != next_rank ||
        start.num_nodes != static_cast<std::int32_t>(starts.size())) {
      Fail(absl::StrCat(Name(node), " got another world than there is"));
    }
  }
}

void Checker::CheckSticky(const Step& /*step*/, const Starts& starts) {
  std::set<std::int32_t> pinned;
  const auto size = static_cast<std::int32_t>(starts.size());
  for (const auto& [node, start] : starts) {
    if (const auto rank = At(node).hello.node_rank; rank.has_value()) {
      if (*rank >= size) {
        return;  // it takes the highest seats, whoever held them
      }
      pinned.insert(*rank);
    }
  }
  for (const auto& [node, start] : starts) {
    const Agent& agent = At(node);
    if (agent.held.has_value() && *agent.held < size && !agent.hello.node_rank.has_value() &&
        !pinned.contains(*agent.held) && start.node_rank != *agent.held) {
      Fail(absl::StrCat(Name(node), " lost its node rank ", *agent.held, " to get ",
                        start.node_rank));
    }
  }
}

bool Checker::OneIsGone(const Job& job) {
  return std::any_of(job.members.begin(), job.members.end(),
                     [this](const auto& member) { return At(member.first).gone; });
}

void Checker::CheckAgreement(const Step& step, const Starts& starts) {
  const core::RoundStart& first = starts.front().second;
  const bool charged = step.job.stop.has_value() && !step.job.stops_for_memory &&
                       (step.job.stop->reason == core::Reason::kWorkerFailed ||
                        step.job.stop->reason == core::Reason::kOutOfMemory);
  // A failure costs nothing if a member turned out to be lost, and a job whose
  // members are all gone may begin anew.
  const bool all_are_gone =
      !step.job.members.empty() &&
      std::all_of(step.job.members.begin(), step.job.members.end(),
                  [this](const auto& member) { return At(member.first).gone; });
  const std::int32_t expected = step.job.restart_count + (charged ? 1 : 0);
  const bool forgiven =
      charged && OneIsGone(step.job) && first.restart_count == step.job.restart_count;
  const bool anew = all_are_gone && first.restart_count == 0;
  if (all_are_gone) {
    step.job.cap.reset();
  }
  if ((first.restart_count != expected && !forgiven && !anew) ||
      first.restart_count > first.max_restarts) {
    Fail("the restart count is not that of the failures so far");
  }
  for (const auto& [node, start] : starts) {
    if (start.round != first.round || start.restart_count != first.restart_count ||
        start.master_addr != first.master_addr || start.master_port != first.master_port ||
        start.plan != first.plan || !(start.plan_request == first.plan_request)) {
      Fail("members of one round were told different things");
    }
    const Agent& agent = At(node);
    if (start.node_rank == 0 &&
        (start.master_addr != agent.hello.address || start.master_port != agent.port)) {
      Fail("the master is not node rank 0 at the port it told last");
    }
  }
}

void Checker::BeginRound(const Step& step, const Starts& starts) {
  Job& job = step.job;
  job.live = true;
  job.round = starts.front().second.round;
  job.restart_count = starts.front().second.restart_count;
  job.members = starts;
  job.stopped.clear();
  job.succeeded.clear();
  job.barriers.clear();
  job.keys.clear();
  job.plan.reset();
  job.cause.reset();
  job.stop.reset();
  NotePlanOfRound(job, starts.front().second);
  for (const NodeId node : job.agents) {
    At(node).held.reset();
  }
  for (const auto& [node, start] : starts) {
    At(node).held = start.node_rank;
  }
}

}  // namespace ddl::sim
