// Every bound of the wire and of the coordinator's tables, in one place.
//
// A limit is here when a peer, a user or a worker could otherwise make a table
// or a message grow without end. What lies beyond a limit is refused with an
// error that names the value and the limit; nothing is cut silently.
#ifndef DDLAUNCH_AGENT_BASE_LIMITS_H_
#define DDLAUNCH_AGENT_BASE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace ddl::limits {

// The wire. Sizes in bytes.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 20U;
inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = std::size_t{512} << 10U;
inline constexpr std::size_t kMaxTextBytes = std::size_t{4} << 10U;
inline constexpr std::size_t kMaxErrorTextBytes = std::size_t{64} << 10U;
inline constexpr std::size_t kMaxJobIdBytes = 256;
inline constexpr std::size_t kMaxHostBytes = 256;
inline constexpr std::size_t kMaxTokenBytes = 256;
// The addresses of a round's workers, each with four bytes more for quotes and a
// comma: as TF_CONFIG they must fit into one string of execve(2), of 128 KiB.
inline constexpr std::size_t kMaxWorkerAddressesBytes = std::size_t{120} << 10U;
inline constexpr std::size_t kWorkerAddressExtraBytes = 4;

// Tables.
inline constexpr std::int32_t kMaxNodes = 131'072;
inline constexpr std::int32_t kMaxWorkersPerNode = 1'024;
inline constexpr std::size_t kMaxJobs = 4'096;
// A job's round number, as an agent may claim it.
inline constexpr std::int64_t kMaxRounds = std::int64_t{1} << 40U;
// Streams whose Hello has not come yet.
inline constexpr std::size_t kMaxUnintroducedStreams = 1'024;
inline constexpr std::size_t kMaxKeysPerRound = 1'048'576;
inline constexpr std::size_t kMaxStoreBytesPerRound = std::size_t{256} << 20U;
inline constexpr std::size_t kMaxBarriersPerRound = 65'536;
inline constexpr std::size_t kMaxGroupsPerWorker = 256;
// Calls of a node's workers that wait for a change of the plan.
inline constexpr std::size_t kMaxPlanCallsPerNode = 8'192;
// Messages that wait for one agent's stream to take them; beyond it the agent is
// too slow to be kept.
inline constexpr std::size_t kMaxOutgoingMessages = 65'536;
inline constexpr std::size_t kMaxOutgoingBytes = std::size_t{64} << 20U;

}  // namespace ddl::limits

#endif  // DDLAUNCH_AGENT_BASE_LIMITS_H_
