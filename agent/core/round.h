// Round: one agreed membership of a job, while it forms, runs and stops. A
// plain record; job.h holds the machine that moves it.
#ifndef DDLAUNCH_AGENT_CORE_ROUND_H_
#define DDLAUNCH_AGENT_CORE_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/core/plan_agreement.h"
#include "agent/core/round_store.h"
#include "agent/core/types.h"

namespace ddl::core {

struct Member {
  AgentRef agent;
  std::string host;
  std::int32_t node_rank = 0;
  std::int32_t first_rank = 0;
  std::int32_t nproc = 0;
  bool succeeded = false;  // all its workers exited 0
  bool left = false;       // it said goodbye: it is not waited for
  bool stopped = false;    // while stopping: its workers are gone, or the node is
};

// What stopping was for, and what comes after it.
struct Stopping {
  RoundStop message;  // what every member was told
  Instant deadline;   // when those that did not answer are given up
  Instant began;
  Instant caused_at;  // when message.root_cause happened
  std::size_t num_missing = 0;
  // Set: the job ends with it. Else the nodes gather for another round.
  std::optional<JobDone> result;
  // The user stopped it while it was to end by a failure: the result, if that failure
  // turns out to be none that ends the job.
  std::optional<JobDone> user_stop;
};

struct Round {
  std::int64_t number = 0;
  std::int32_t restart_count = 0;
  std::int32_t max_restarts = 0;
  std::int32_t world_size = 0;
  std::string master_addr;
  std::uint32_t master_port = 0;
  WorkerAddresses worker_addresses;
  std::uint32_t first_worker_port = 0;
  PlanAgreement::Agreed agreed;         // the plan it started with
  std::string lesson;                   // what a worker that ran out of memory changes for the next
  std::optional<PlanChanged> revision;  // the last that replaced it
  std::optional<plan::Plan> unrevised;  // the plan in force before the first
  std::vector<Member> members;          // by node rank

  std::int64_t persist_sequence = 0;  // forming: the StoreDone that starts it
  Instant store_deadline;             // forming
  RoundStore store;
  std::size_t num_succeeded = 0;
  std::size_t num_secondary_failures = 0;
  std::string failure_from;  // the incarnation that told of the root cause
  std::optional<Stopping> stopping;

  // Appends a member with the next node rank and the next global ranks.
  void AddMember(AgentRef agent, std::string host, std::int32_t nproc);
  // Some of them, for people.
  [[nodiscard]] std::string NameHosts() const;
  // Null: not a member. Valid until the next AddMember.
  [[nodiscard]] Member* FindMember(const std::string& incarnation);
  // What the member is told.
  [[nodiscard]] RoundStart StartFor(const Member& member) const;

 private:
  std::map<std::string, std::size_t> index_;  // incarnation -> place in members
};

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_ROUND_H_
