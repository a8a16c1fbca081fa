// LaunchConfig: everything the user asked for, validated once. launcher/cli
// makes it; the rest of the launcher only reads it. A plain value.
#ifndef DDLAUNCH_LAUNCHER_LAUNCH_CONFIG_H_
#define DDLAUNCH_LAUNCHER_LAUNCH_CONFIG_H_

#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/plan/plan.h"
#include "launcher/binding/worker_place.h"

namespace ddl {

enum class RdzvBackend : std::uint8_t {
  kStatic,   // master address and port are given; the default
  kDynamic,  // torchrun's name for it: c10d
};

// Which of a worker's streams: bits, as torchrun's -r and -t take them.
enum StreamSet : std::uint8_t { kNoStream = 0, kStdout = 1, kStderr = 2, kBothStreams = 3 };

// One value for every local rank, or one for each (others get the default).
struct StreamMap {
  StreamSet all = kNoStream;
  std::map<std::int32_t, StreamSet> by_local_rank;
  [[nodiscard]] StreamSet of(std::int32_t local_rank) const {
    const auto it = by_local_rank.find(local_rank);
    return it == by_local_rank.end() ? all : it->second;
  }
};

// Whose variables each worker gets, besides those of ddlaunch itself.
struct Frameworks {
  bool torch = true;  // torchrun's, and Accelerate's
  bool tensorflow = false;
  bool jax = false;
  bool mpi = false;
};

struct LaunchConfig {
  // What to run: argv[0] is an absolute path, found and executable. For a .py
  // script argv is {python3, "-u", script, ...}.
  std::vector<std::string> argv;
  // The script or program as the user wrote it, for messages.
  std::string program_name;

  // Membership. The job has min_nodes..max_nodes nodes of ddlaunch each.
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  std::int32_t nproc = 1;  // workers of this node
  std::optional<std::int32_t> node_rank;
  std::string job_id = "none";

  // Where to meet. One node without an endpoint hosts on a free loopback port.
  RdzvBackend backend = RdzvBackend::kStatic;
  std::string endpoint_host;  // empty: no endpoint was given
  std::uint16_t endpoint_port = 0;
  // As the user said. Unset: node 0 of a static job; else whether endpoint_host
  // is an address of this host.
  std::optional<bool> is_host;
  // MASTER_ADDR / MASTER_PORT as given; empty / 0: chosen by the agent.
  std::string master_addr;
  std::uint16_t master_port = 0;
  // The secret that admits this node, and others if the coordinator is hosted
  // here; empty: none. Never to be shown.
  std::string rdzv_token;
  std::string local_addr;  // what this node advertises; empty: found out
  // Rank 0's worker serves PyTorch's store at MASTER_PORT, not its node.
  bool worker_store = false;
  // Until the nodes are there; once min_nodes are, for more of them; and how
  // long the coordinator's host waits for the others' goodbyes.
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call_timeout = std::chrono::seconds(5);
  Duration close_timeout = std::chrono::seconds(5);
  // For the coordinator if it is hosted here: how often a node says that it is
  // there, and after what silence it is lost.
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(5);

  // Supervision.
  std::int32_t max_restarts = 0;
  Duration shutdown_timeout = std::chrono::seconds(30);  // SIGTERM to SIGKILL
  // These stop the job; SIGHUP not when it is ignored at start (nohup).
  std::vector<int> stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  std::string role = "default";
  std::string cwd;  // empty: the caller's

  // What a worker gets.
  Frameworks frameworks;
  NumaBinding numa_binding = NumaBinding::kNone;
  bool virtual_local_rank = false;  // one GPU each, LOCAL_RANK=0
  // By local rank, what became of these two; empty: neither was asked for.
  std::vector<WorkerPlace> places;

  // Logs. Files go to log_dir/<job id>_<random>/attempt_<n>/<local rank>/; no
  // directory is made unless -r or -t ask for files or log_dir is given.
  std::string log_dir;  // empty: a new temporary directory when needed
  StreamMap redirects;  // to a file only; nothing where log_dir is /dev/null
  StreamMap tee;        // to a file and the console
  // Whose console output is shown; empty: everybody's.
  std::set<std::int32_t> local_ranks_filter;
  // ${role_name} ${local_rank} ${rank} ${hostname}; empty: "[default0]:".
  std::string log_line_prefix_template;
  // Lines of any rank that contain one of these also go to the attempt's
  // filtered_stdout.log or filtered_stderr.log.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  bool event_log = false;  // events as JSON lines on stderr
  bool verbose = false;
  bool quiet = false;

  plan::Request plan;
  // By which a program says that it ran out of device memory.
  std::set<std::int32_t> oom_exit_codes;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_LAUNCH_CONFIG_H_
