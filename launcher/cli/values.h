// Parsers for the values of flags: text in, a value or what would be allowed.
// Pure functions. Each error is INVALID_ARGUMENT with a message that says what
// the value must be ("must be a port from 1 to 65535"); the caller puts the
// flag and the value in front.
#ifndef DDLAUNCH_LAUNCHER_CLI_VALUES_H_
#define DDLAUNCH_LAUNCHER_CLI_VALUES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "launcher/launch_config.h"

namespace ddl::cli {

// A whole number in decimal, `min`..`max`: no sign but '-', no space.
absl::StatusOr<std::int64_t> ParseInteger(std::string_view text, std::int64_t min,
                                          std::int64_t max);
// A finite number of at least 0, or above 0.
enum class Zero : std::uint8_t { kAllowed, kRefused };
absl::StatusOr<double> ParseNumber(std::string_view text, Zero zero);
// Seconds, also a fraction of one; at most kMaxSeconds, a year, which is what
// the wire takes.
inline constexpr double kMaxSeconds = 366.0 * 24 * 3600;
absl::StatusOr<Duration> ParseSeconds(std::string_view text, Zero zero);
// 0/1, true/false, yes/no, on/off, in any case.
absl::StatusOr<bool> ParseBool(std::string_view text);

// "4" or "2:4".
struct NodeRange {
  std::int32_t min = 1;
  std::int32_t max = 1;
};
absl::StatusOr<NodeRange> ParseNodeRange(std::string_view text);

// What --nproc-per-node may say.
struct NprocRequest {
  enum class Kind : std::uint8_t { kNumber, kCpu, kGpu, kAuto };
  Kind kind = Kind::kNumber;
  std::int32_t number = 1;
};
absl::StatusOr<NprocRequest> ParseNproc(std::string_view text);

// "host", "host:29400", "[::1]:29400", "[::1]"; without a port, the port is
// `default_port`. Port 0 is accepted: a free one.
struct Endpoint {
  std::string host;  // an IPv6 address without its brackets
  std::uint16_t port = 0;
};
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text, std::uint16_t default_port);
// Where to listen: as an endpoint, or ":29400" or "29400" for every address.
inline constexpr const char* kEveryAddress = "::";
inline constexpr std::uint16_t kDefaultListenPort = 29400;
absl::StatusOr<Endpoint> ParseListen(std::string_view text);
// A host name or an address, IPv6 with or without brackets (they go).
absl::StatusOr<std::string> ParseHost(std::string_view text);

// "3", or "0:3,1:1": 0 none, 1 stdout, 2 stderr, 3 both.
absl::StatusOr<StreamMap> ParseStreamMap(std::string_view text);

// "0,2,5".
absl::StatusOr<std::set<std::int32_t>> ParseRankSet(std::string_view text);

// "77,137": 1 to 255 each.
absl::StatusOr<std::set<std::int32_t>> ParseExitCodes(std::string_view text);

// "1,2,4", "1..64" or both: world sizes, in the order given, each once.
absl::StatusOr<std::vector<std::int64_t>> ParseWorlds(std::string_view text);

// "torch,jax": exactly these.
absl::StatusOr<Frameworks> ParseFrameworks(std::string_view text);
// none, node, socket, exclusive or core-complex.
absl::StatusOr<NumaBinding> ParseNumaBinding(std::string_view text);
// "SIGTERM,SIGUSR1", also without SIG and in any case: signals that can be
// waited for and are meant to say something to a program.
absl::StatusOr<std::vector<int>> ParseSignals(std::string_view text);
// "a,b": texts with commas between them; ",," is a comma inside one. Empty ones
// are left out.
absl::StatusOr<std::vector<std::string>> ParseTexts(std::string_view text);

// "k=v,k=v"; a key without a value, or twice, is an error.
absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(std::string_view text);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_VALUES_H_
