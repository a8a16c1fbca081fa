// What ddlaunch and its supervisor process say to each other: records of fixed
// size over a SOCK_SEQPACKET pair. Both ends are the same program, so there is
// no version and no byte order.
#ifndef DDLAUNCH_LAUNCHER_WORKER_SUPERVISOR_PROTOCOL_H_
#define DDLAUNCH_LAUNCHER_WORKER_SUPERVISOR_PROTOCOL_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddl {

// A worker's name between the two: never repeats within one supervisor's life.
using WorkerId = std::uint32_t;
inline constexpr WorkerId kEveryWorker = 0;

enum class SupervisorRequestType : std::uint32_t {
  kSpawn,        // with four descriptors: payload (spawn_payload.h), stdin, stdout, stderr
  kSignal,       // `signal` to `worker`, or to every live worker
  kKillAll,      // SIGKILL to all descendants until none is left
  kRemoveAtEnd,  // `path` is a directory to remove when ddlaunch is gone
};

// The longest path with its closing zero: PATH_MAX.
inline constexpr std::size_t kMaxPathBytes = 4096;

struct SupervisorRequest {
  SupervisorRequestType type{};
  WorkerId worker = kEveryWorker;
  std::int32_t signal = 0;
  std::int32_t reserved = 0;
  std::array<char, kMaxPathBytes> path;  // kRemoveAtEnd only; else not sent
};
inline constexpr std::size_t kRequestHeaderBytes = offsetof(SupervisorRequest, path);

// Where a worker's way into its program ended.
enum class SpawnStep : std::uint32_t {
  kReceive,  // descriptors or payload did not arrive whole
  kFork,
  kSetUp,  // standard streams, limits
  kChdir,
  kExec,
};

enum class SupervisorEventType : std::uint32_t {
  kSpawned,      // the program runs as `pid`
  kSpawnFailed,  // `status` is an errno, `step` where
  kExited,       // `status` is a wait status; the pid has been reaped
  kAllGone,      // the answer to kKillAll, one to each
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
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_WORKER_SUPERVISOR_PROTOCOL_H_
