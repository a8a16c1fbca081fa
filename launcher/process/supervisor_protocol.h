// What ddlaunch and its supervisor process say to each other: records of fixed
// size over a SOCK_SEQPACKET pair. Both ends are the same program, so there is
// no version and no byte order.
#ifndef DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_PROTOCOL_H_
#define DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_PROTOCOL_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ddl {

// A worker's name between the two: never repeats within one supervisor's life.
using WorkerId = std::uint32_t;
inline constexpr WorkerId kEveryWorker = 0;

enum class SupervisorRequestType : std::uint32_t {
  kSpawn,        // with four descriptors: payload (spawn_payload.h), stdin, stdout, stderr
  kSignal,       // `signal` to `worker`, or to every live worker; SIGSTOP and SIGCONT to its group
  kKillAll,      // SIGKILL to all descendants, until none is left or `timeout_ms` has passed
  kRemoveAtEnd,  // `path` is a directory to remove when ddlaunch is gone
  kLease,        // workers may live until `lease_until_ns`, or a later kLease says otherwise
};

// The longest path with its closing zero: PATH_MAX.
inline constexpr std::size_t kMaxPathBytes = 4096;

// How long a process may take to die of SIGKILL before it is left behind: one
// that hangs in the kernel (state D) does not die until its device answers.
inline constexpr auto kKillTimeout = std::chrono::seconds(5);

struct SupervisorRequest {
  SupervisorRequestType type{};
  WorkerId worker = kEveryWorker;  // kKillAll: the ticket that its answer names
  std::int32_t signal = 0;
  std::int32_t timeout_ms = 0;             // kKillAll
  std::int64_t lease_until_ns = 0;         // kLease: of CLOCK_MONOTONIC; the largest: no limit
  std::array<char, kMaxPathBytes> path{};  // kRemoveAtEnd only; else not sent
};
inline constexpr std::size_t kRequestHeaderBytes = offsetof(SupervisorRequest, path);

// Where a worker's way into its program ended.
enum class SpawnStep : std::uint32_t {
  kReceive,  // descriptors or payload did not arrive whole
  kFork,
  kSetUp,  // standard streams, limits
  kChdir,
  kBind,  // to its CPUs
  kExec,
  kInterpreter,  // the program exists, what its first line or its ELF header names does not
};

enum class SupervisorEventType : std::uint32_t {
  kSpawned,      // the program runs as `pid`
  kSpawnFailed,  // `status` is an errno, `step` where
  kExited,       // `status` is a wait status; the pid has been reaped
  kLeftBehind,   // `pid`, in state `status` (a letter), has not died of SIGKILL; a
                 // kAllGone follows. `worker` is kEveryWorker for what is none
  kAllGone,      // nobody is left but those; `worker` is the last kKillAll's ticket
  kLeasePassed,  // the lease has, while workers lived: all get SIGKILL, their kExited follow
};

struct SupervisorEvent {
  SupervisorEventType type{};
  WorkerId worker = kEveryWorker;
  std::int32_t pid = 0;
  std::int32_t status = 0;
  SpawnStep step{};
  // kExited: neither a worker nor anything started by one is left.
  std::uint32_t none_left = 0;
  std::int64_t wall_time_s = 0;  // kExited: since 1970
  std::int64_t ended_at_ns = 0;  // kExited: of CLOCK_MONOTONIC
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_PROCESS_SUPERVISOR_PROTOCOL_H_
