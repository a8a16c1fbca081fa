// The reasons' names, as logs and transcripts show them.
#include "agent/core/types.h"

namespace ddl::core {

const char* ToString(Reason reason) {
  switch (reason) {
    case Reason::kUnspecified:
      return "unspecified";
    case Reason::kJoined:
      return "joined";
    case Reason::kRoundFormed:
      return "round_formed";
    case Reason::kWorkerFailed:
      return "worker_failed";
    case Reason::kNodeLost:
      return "node_lost";
    case Reason::kNodeLeft:
      return "node_left";
    case Reason::kStoppedByUser:
      return "stopped_by_user";
    case Reason::kAllSucceeded:
      return "all_succeeded";
    case Reason::kRestartsExhausted:
      return "restarts_exhausted";
    case Reason::kJoinTimeout:
      return "join_timeout";
    case Reason::kStopTimeout:
      return "stop_timeout";
    case Reason::kTermsDiffer:
      return "terms_differ";
    case Reason::kPlanDiffers:
      return "plan_differs";
    case Reason::kPlanImpossible:
      return "plan_impossible";
    case Reason::kNodeRankTaken:
      return "node_rank_taken";
    case Reason::kNodeRankOutOfRange:
      return "node_rank_out_of_range";
    case Reason::kJobFull:
      return "job_full";
    case Reason::kJobEnded:
      return "job_ended";
    case Reason::kStaleIncarnation:
      return "stale_incarnation";
    case Reason::kStaleRound:
      return "stale_round";
    case Reason::kInvalid:
      return "invalid";
    case Reason::kLimit:
      return "limit";
    case Reason::kVersion:
      return "version";
    case Reason::kRestarting:
      return "restarting";
    case Reason::kNodeJoined:
      return "node_joined";
    case Reason::kParked:
      return "parked";
    case Reason::kUnauthenticated:
      return "unauthenticated";
    case Reason::kOutOfMemory:
      return "out_of_memory";
    case Reason::kRecovered:
      return "recovered";
  }
  return "unknown";
}

}  // namespace ddl::core
