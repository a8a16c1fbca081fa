// The rendezvous core's vocabulary: what comes in (events), what goes out
// (effects). Plain values; no behaviour. See rendezvous.h for the machine.
//
// These mirror proto/ddlaunch/v1/rendezvous.proto, which documents each field;
// agent/service translates. The core itself knows neither gRPC nor protobuf.
#ifndef DDLAUNCH_AGENT_CORE_TYPES_H_
#define DDLAUNCH_AGENT_CORE_TYPES_H_

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/base/clock.h"
#include "agent/plan/plan.h"

namespace ddl::core {

// Why something was decided. Numbers equal ddlaunch.v1.Reason.
enum class Reason : std::uint8_t {
  kUnspecified = 0,
  kJoined = 1,
  kRoundFormed = 2,
  kWorkerFailed = 3,
  kNodeLost = 4,
  kNodeLeft = 5,
  kStoppedByUser = 6,
  kAllSucceeded = 7,
  kRestartsExhausted = 8,
  kJoinTimeout = 9,
  kStopTimeout = 10,
  kTermsDiffer = 11,
  kPlanDiffers = 12,
  kPlanImpossible = 13,
  kNodeRankTaken = 14,
  kNodeRankOutOfRange = 15,
  kJobFull = 16,
  kJobEnded = 17,
  kStaleIncarnation = 18,
  kStaleRound = 19,
  kInvalid = 20,
  kLimit = 21,
  kVersion = 22,
  kRestarting = 23,
  kNodeJoined = 24,       // a late node: the round ends to take it in
  kParked = 25,           // more nodes than the job wants: a spare
  kUnauthenticated = 26,  // no token, or a wrong one
  kRecovered = 27,        // an agent of a round from before the coordinator's restart
  kOutOfMemory = 28,      // of a device: the micro-batch was too large
};
// "worker_failed"
const char* ToString(Reason reason);

// "host:port" of each worker, by rank; null: not known. Shared, as every member of
// a round is told the same.
using WorkerAddresses = std::shared_ptr<const std::vector<std::string>>;

// One agent process of one job.
struct AgentRef {
  std::string job_id;
  std::string incarnation;
  friend auto operator<=>(const AgentRef&, const AgentRef&) = default;
};

struct WorkerFailure {
  std::int32_t rank = -1;
  std::int32_t local_rank = -1;
  std::int64_t pid = 0;
  std::string host;
  std::int32_t exit_code = 0;
  std::int32_t term_signal = 0;  // 0: it exited with exit_code
  std::int64_t wall_time_s = 0;
  std::string error_text;
  std::string error_file;
  bool blames_peer = false;    // by its own words, another failed before it
  std::string hint;            // what usually is behind it; may be empty
  bool out_of_memory = false;  // of its device: a smaller micro-batch may help
  // With out_of_memory: what was too large; 0: not known.
  std::int64_t micro_batch_size = 0;
  friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

// What the last plan that an agent was told of was solved from: with the global batch
// that is held, and what memory taught.
struct LastPlan {
  plan::Request request;
  std::int64_t world_size = 0;  // 0: it knows of no plan; of the request, the lessons count
  friend bool operator==(const LastPlan&, const LastPlan&) = default;
};

// ---- events ---------------------------------------------------------------

// An agent introduced itself on a new stream (Hello).
struct AgentConnected {
  AgentRef agent;
  std::string host;
  std::string address;
  std::int32_t nproc = 0;
  std::optional<std::int32_t> node_rank;
  std::int32_t min_nodes = 0;
  std::int32_t max_nodes = 0;
  std::int32_t max_restarts = 0;
  Duration join_timeout{};
  Duration last_call_timeout{};
  Duration stop_grace{};
  plan::Request plan;
  std::uint32_t master_port = 0;  // 0: follows with AgentHeard
  // One for each worker, by local rank; or none.
  std::vector<std::uint32_t> worker_ports;
  // The last round this agent was told of, and its restart count; 0: none. A
  // coordinator that was restarted learns from it what must not repeat.
  std::int64_t last_round = 0;
  std::int32_t restart_count = 0;
  // What a coordinator that was restarted holds on to.
  LastPlan last_plan;
};
// Any message at all; `master_port` is non-zero when it changed.
struct AgentHeard {
  AgentRef agent;
  std::uint32_t master_port = 0;
};
// The stream ended without goodbye.
struct AgentDisconnected {
  AgentRef agent;
};
// The agent said goodbye.
struct AgentLeft {
  AgentRef agent;
  std::string why;
};
struct WorkerFailed {
  AgentRef agent;
  std::int64_t round = 0;
  WorkerFailure failure;
  Duration age{};  // how long ago it happened, when this was sent
};
struct WorkersSucceeded {
  AgentRef agent;
  std::int64_t round = 0;
};
struct RoundStopped {
  AgentRef agent;
  std::int64_t round = 0;
};
struct KeyWritten {
  AgentRef agent;
  std::int64_t round = 0;
  std::string key;
  std::string value;
};
struct KeyWanted {
  AgentRef agent;
  std::int64_t round = 0;
  std::string key;
};
struct BarrierReached {
  AgentRef agent;
  std::int64_t round = 0;
  std::string name;
};
struct PlanProposed {
  AgentRef agent;
  std::int64_t round = 0;
  plan::Request request;
};
// A worker ran out of device memory and waits for a smaller micro-batch.
struct OutOfMemory {
  AgentRef agent;
  std::int64_t round = 0;
  std::int32_t rank = 0;
  std::int64_t micro_batch_size = 0;  // that was too large
  std::int64_t step = 0;              // the optimizer step it was in
  std::string text;                   // what is known of the memory; may be empty
};
// The user stopped one node's ddlaunch: the job ends, or, with `node_only`, an
// elastic job goes on without the node.
struct StopRequested {
  AgentRef agent;
  std::int32_t signal = 0;
  bool node_only = false;
};

// What a timer is for. One timer of a kind for a subject at a time: arming it
// again moves it. The core ignores one that no longer means anything.
enum class TimerKind : std::uint8_t {
  kHeartbeat,  // subject: incarnation
  kReconnect,  // subject: incarnation
  kJoin,       // subject: empty; nodes still missing
  kStop,       // subject: empty; RoundStopped still missing
  kLastCall,   // subject: empty; enough nodes, and time for more
  kForget,     // subject: empty; an ended job's record goes
};
struct TimerId {
  TimerKind kind{};
  std::string job_id;
  std::string subject;
  friend auto operator<=>(const TimerId&, const TimerId&) = default;
};
struct TimerFired {
  TimerId id;
};
// What Persist asked for is durable.
struct StoreDone {
  std::string job_id;
  std::int64_t sequence = 0;
};

using Event = std::variant<AgentConnected, AgentHeard, AgentDisconnected, AgentLeft, WorkerFailed,
                           WorkersSucceeded, RoundStopped, KeyWritten, KeyWanted, BarrierReached,
                           PlanProposed, OutOfMemory, StopRequested, TimerFired, StoreDone>;

// ---- messages to agents ---------------------------------------------------

struct Welcome {
  Duration heartbeat_interval{};
  Duration heartbeat_timeout{};
  Duration reconnect_grace{};
};
// The answer to each AgentHeard: an agent that hears nothing for long must take
// itself for lost, and stop its workers before others replace them.
struct HeartbeatAck {};
struct Rejected {
  Reason reason{};
  std::string text;
};
struct Waiting {
  std::int32_t nodes_joined = 0;
  std::int32_t nodes_needed = 0;
  std::string text;
};
// Parked: it takes over when a member is lost. `place` counts from 1.
struct Spare {
  std::int32_t place = 0;
  std::string text;
};
struct RoundStart {
  std::int64_t round = 0;
  std::int32_t restart_count = 0;
  std::int32_t max_restarts = 0;
  std::int32_t node_rank = 0;
  std::int32_t first_rank = 0;
  std::int32_t nproc = 0;
  std::int32_t num_nodes = 0;
  std::int32_t world_size = 0;
  std::string master_addr;
  std::uint32_t master_port = 0;
  std::optional<plan::Plan> plan;
  plan::Request plan_request;
  WorkerAddresses worker_addresses;
  std::uint32_t first_worker_port = 0;  // rank 0's; 0: none was given
};
struct RoundStop {
  std::int64_t round = 0;
  Reason reason{};
  std::string text;
  std::optional<WorkerFailure> root_cause;
  bool will_restart = false;
};
struct KeyValue {
  std::int64_t round = 0;
  std::string key;
  std::string value;
};
struct BarrierDone {
  std::int64_t round = 0;
  std::string name;
};
struct PlanReply {
  std::int64_t round = 0;
  std::optional<plan::Plan> plan;
  std::string error;
  plan::Request plan_request;  // what was asked for; with a plan
};
// From optimizer step `step` on, which is done again, this plan holds. The answer
// to OutOfMemory: to all members; an error to the one that asked.
struct PlanChanged {
  std::int64_t round = 0;
  std::int32_t revision = 0;  // counts up in a round; 0: the plan it started with
  std::optional<plan::Plan> plan;
  plan::Request plan_request;  // with the micro-batch's new cap, for later rounds
  std::int64_t step = 0;
  std::string text;
  std::string error;      // no plan then
  std::int32_t rank = 0;  // who ran out of memory
};
struct JobDone {
  Reason reason{};
  std::int32_t exit_code = 0;
  std::string text;
  std::optional<WorkerFailure> root_cause;
  std::int32_t restart_count = 0;
};
using Message = std::variant<Welcome, HeartbeatAck, Rejected, Waiting, Spare, RoundStart, RoundStop,
                             KeyValue, BarrierDone, PlanReply, PlanChanged, JobDone>;

// ---- effects --------------------------------------------------------------

// What must survive the coordinator: enough that a round number never repeats
// and the restart budget is not forgotten. Answered by StoreDone(sequence).
struct Persist {
  std::string job_id;
  std::int64_t sequence = 0;
  std::int64_t round = 0;
  std::int32_t restart_count = 0;
  bool ended = false;
};
struct Reply {
  AgentRef agent;
  Message message;
};
struct ArmTimer {
  TimerId id;
  Instant deadline;
};
// A decision in words, for the log: what, to whom, why.
struct Explain {
  std::string job_id;
  Reason reason{};
  std::string text;
};
// In the order in which they are to be carried out.
using Effect = std::variant<Persist, Reply, ArmTimer, Explain>;
using Effects = std::vector<Effect>;

}  // namespace ddl::core

#endif  // DDLAUNCH_AGENT_CORE_TYPES_H_
