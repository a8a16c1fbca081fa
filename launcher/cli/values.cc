// The value parsers: see values.h.
#include "launcher/cli/values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"

namespace ddl::cli {
namespace {

absl::Status MustBe(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", what));
}

std::optional<std::int64_t> WholeNumber(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed_to, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed_to != end) {
    return std::nullopt;
  }
  return value;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

absl::Status NotAnEndpoint() {
  return MustBe("HOST, HOST:PORT or [IPV6]:PORT, with a port up to 65535");
}

// What stands before and after the port's colon.
struct HostAndPort {
  std::string_view host;
  std::optional<std::string_view> port;
};

// Nothing when the text has no such form.
std::optional<HostAndPort> SplitHostAndPort(std::string_view text) {
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (rest.empty()) {
      return HostAndPort{host, std::nullopt};
    }
    return rest.starts_with(':') ? std::optional(HostAndPort{host, rest.substr(1)}) : std::nullopt;
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return HostAndPort{text, std::nullopt};
  }
  if (text.find(':', colon + 1) != std::string_view::npos) {
    return std::nullopt;  // an IPv6 address without brackets: which colon is the port's?
  }
  return HostAndPort{text.substr(0, colon), text.substr(colon + 1)};
}

bool IsHostCharacter(unsigned char c) {
  constexpr std::string_view kOthers = ".-_:%";  // ':' and '%': IPv6, with a zone
  return std::isalnum(c) != 0 || kOthers.find(static_cast<char>(c)) != std::string_view::npos;
}

}  // namespace

absl::StatusOr<std::int64_t> ParseInteger(std::string_view text, std::int64_t min,
                                          std::int64_t max) {
  const std::optional<std::int64_t> value = WholeNumber(text);
  if (!value.has_value() || *value < min || *value > max) {
    // Of a number that is too large, "or more" would be no answer.
    const bool is_huge =
        !text.empty() && text.find_first_not_of("0123456789") == text.npos && !value.has_value();
    return max == std::numeric_limits<std::int64_t>::max() && !is_huge
               ? MustBe(absl::StrCat("a whole number of ", min, " or more"))
               : MustBe(absl::StrCat("a whole number from ", min, " to ", max));
  }
  return *value;
}

absl::StatusOr<double> ParseNumber(std::string_view text, Zero zero) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed_to, error] = std::from_chars(text.data(), end, value);
  const bool in_range = zero == Zero::kAllowed ? value >= 0 : value > 0;
  if (error != std::errc() || parsed_to != end || !std::isfinite(value) || !in_range) {
    return MustBe(zero == Zero::kAllowed ? "a number of 0 or more" : "a number above 0");
  }
  return value;
}

absl::StatusOr<Duration> ParseSeconds(std::string_view text, Zero zero) {
  const absl::StatusOr<double> seconds = ParseNumber(text, zero);
  if (!seconds.ok() || *seconds > kMaxSeconds) {
    return MustBe(zero == Zero::kAllowed ? "a number of seconds, 0 or more (at most a year)"
                                         : "a number of seconds above 0 (at most a year)");
  }
  return std::chrono::round<Duration>(std::chrono::duration<double>(*seconds));
}

absl::StatusOr<bool> ParseBool(std::string_view text) {
  constexpr std::array<std::string_view, 5> kTrue = {"1", "true", "t", "yes", "on"};
  constexpr std::array<std::string_view, 5> kFalse = {"0", "false", "f", "no", "off"};
  const std::string lower = LowerCase(text);
  if (std::find(kTrue.begin(), kTrue.end(), lower) != kTrue.end()) {
    return true;
  }
  if (std::find(kFalse.begin(), kFalse.end(), lower) != kFalse.end()) {
    return false;
  }
  return MustBe("0 or 1");
}

absl::StatusOr<NodeRange> ParseNodeRange(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, ':');
  const std::optional<std::int64_t> min = WholeNumber(parts.front());
  const std::optional<std::int64_t> max = WholeNumber(parts.back());
  if (parts.size() > 2 || !min.has_value() || !max.has_value() || *min < 1 || *max < *min ||
      *max > limits::kMaxNodes) {
    return MustBe(absl::StrCat("N or MIN:MAX with 0 < MIN <= MAX <= ", limits::kMaxNodes));
  }
  return NodeRange{static_cast<std::int32_t>(*min), static_cast<std::int32_t>(*max)};
}

absl::StatusOr<NprocRequest> ParseNproc(std::string_view text) {
  using Kind = NprocRequest::Kind;
  if (text == "cpu") {
    return NprocRequest{Kind::kCpu, 0};
  }
  if (text == "gpu") {
    return NprocRequest{Kind::kGpu, 0};
  }
  if (text == "auto") {
    return NprocRequest{Kind::kAuto, 0};
  }
  const std::optional<std::int64_t> number = WholeNumber(text);
  if (!number.has_value() || *number < 1 || *number > limits::kMaxWorkersPerNode) {
    return MustBe(absl::StrCat("a whole number from 1 to ", limits::kMaxWorkersPerNode,
                               ", or cpu, gpu or auto"));
  }
  return NprocRequest{Kind::kNumber, static_cast<std::int32_t>(*number)};
}

absl::StatusOr<std::string> ParseHost(std::string_view text) {
  if (text.size() > 2 && text.starts_with('[') && text.ends_with(']')) {
    text = text.substr(1, text.size() - 2);
  }
  if (text.empty() || text.size() > limits::kMaxHostBytes ||
      !std::all_of(text.begin(), text.end(), IsHostCharacter)) {
    return MustBe("a host name or an address");
  }
  return std::string(text);
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text, std::uint16_t default_port) {
  const std::optional<HostAndPort> split = SplitHostAndPort(text);
  if (!split.has_value()) {
    return NotAnEndpoint();
  }
  absl::StatusOr<std::string> host = ParseHost(split->host);
  if (!host.ok()) {
    return NotAnEndpoint();
  }
  if (!split->port.has_value()) {
    return Endpoint{*std::move(host), default_port};
  }
  const absl::StatusOr<std::int64_t> port =
      ParseInteger(*split->port, 0, std::numeric_limits<std::uint16_t>::max());
  if (!port.ok()) {
    return NotAnEndpoint();
  }
  return Endpoint{*std::move(host), static_cast<std::uint16_t>(*port)};
}

absl::StatusOr<Endpoint> ParseListen(std::string_view text) {
  const std::string_view digits = text.starts_with(':') ? text.substr(1) : text;
  if (!digits.empty() && std::all_of(digits.begin(), digits.end(),
                                     [](unsigned char c) { return std::isdigit(c) != 0; })) {
    const absl::StatusOr<std::int64_t> port =
        ParseInteger(digits, 0, std::numeric_limits<std::uint16_t>::max());
    if (port.ok()) {
      return Endpoint{kEveryAddress, static_cast<std::uint16_t>(*port)};
    }
  } else if (absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text, kDefaultListenPort);
             endpoint.ok()) {
    return endpoint;
  }
  return MustBe("HOST:PORT, [IPV6]:PORT, :PORT or PORT, with a port up to 65535 (0: a free one)");
}

absl::StatusOr<StreamMap> ParseStreamMap(std::string_view text) {
  const auto wrong = [] {
    return MustBe("0 (none), 1 (stdout), 2 (stderr) or 3 (both), or by local rank: 0:3,1:1");
  };
  const auto streams = [](std::string_view digit) -> std::optional<StreamSet> {
    const absl::StatusOr<std::int64_t> value = ParseInteger(digit, kNoStream, kBothStreams);
    return value.ok() ? std::optional(static_cast<StreamSet>(*value)) : std::nullopt;
  };
  StreamMap map;
  if (text.find(':') == std::string_view::npos) {
    const std::optional<StreamSet> all = streams(text);
    if (!all.has_value()) {
      return wrong();
    }
    map.all = *all;
    return map;
  }
  for (const std::string_view entry : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(entry, ':');
    const absl::StatusOr<std::int64_t> rank =
        ParseInteger(parts.front(), 0, limits::kMaxWorkersPerNode - 1);
    const std::optional<StreamSet> set = streams(parts.back());
    if (parts.size() != 2 || !rank.ok() || !set.has_value() ||
        !map.by_local_rank.emplace(*rank, *set).second) {
      return wrong();
    }
  }
  return map;
}

absl::StatusOr<std::set<std::int32_t>> ParseRankSet(std::string_view text) {
  std::set<std::int32_t> ranks;
  for (const std::string_view entry : Split(text, ',')) {
    const absl::StatusOr<std::int64_t> rank =
        ParseInteger(entry, 0, limits::kMaxWorkersPerNode - 1);
    if (!rank.ok()) {
      return MustBe("local ranks with commas between them, such as 0,2");
    }
    ranks.insert(static_cast<std::int32_t>(*rank));
  }
  return ranks;
}

absl::StatusOr<std::set<std::int32_t>> ParseExitCodes(std::string_view text) {
  constexpr std::int64_t kMaxExitCode = 255;
  std::set<std::int32_t> codes;
  for (const std::string_view entry : Split(text, ',')) {
    const absl::StatusOr<std::int64_t> code = ParseInteger(entry, 1, kMaxExitCode);
    if (!code.ok()) {
      return MustBe("exit codes from 1 to 255 with commas between them, such as 77,137");
    }
    codes.insert(static_cast<std::int32_t>(*code));
  }
  return codes;
}

absl::StatusOr<Frameworks> ParseFrameworks(std::string_view text) {
  Frameworks frameworks{.torch = false};
  for (const std::string_view name : Split(text, ',')) {
    if (name == "torch") {
      frameworks.torch = true;
    } else if (name == "tensorflow") {
      frameworks.tensorflow = true;
    } else if (name == "jax") {
      frameworks.jax = true;
    } else if (name == "mpi") {
      frameworks.mpi = true;
    } else {
      return MustBe("of torch, tensorflow, jax and mpi, with commas between them");
    }
  }
  return frameworks;
}

absl::StatusOr<NumaBinding> ParseNumaBinding(std::string_view text) {
  if (text == "none") {
    return NumaBinding::kNone;
  }
  if (text == "node") {
    return NumaBinding::kNode;
  }
  if (text == "socket") {
    return NumaBinding::kSocket;
  }
  if (text == "exclusive") {
    return NumaBinding::kExclusive;
  }
  if (text == "core-complex") {
    return NumaBinding::kCoreComplex;
  }
  return MustBe("none, node, socket, exclusive or core-complex");
}

absl::StatusOr<std::vector<int>> ParseSignals(std::string_view text) {
  struct Named {
    std::string_view name;
    int signal;
  };
  constexpr std::array<Named, 9> kSignals = {{{"TERM", SIGTERM},
                                              {"INT", SIGINT},
                                              {"HUP", SIGHUP},
                                              {"QUIT", SIGQUIT},
                                              {"USR1", SIGUSR1},
                                              {"USR2", SIGUSR2},
                                              {"ALRM", SIGALRM},
                                              {"XCPU", SIGXCPU},
                                              {"PWR", SIGPWR}}};
  std::vector<int> signals;
  for (const std::string_view given : Split(text, ',')) {
    const std::string lower = LowerCase(given);
    const std::string_view name = std::string_view(lower).substr(lower.starts_with("sig") ? 3 : 0);
    const auto* const it =
        std::find_if(kSignals.begin(), kSignals.end(),
                     [name](const Named& signal) { return LowerCase(signal.name) == name; });
    if (it == kSignals.end()) {
      return MustBe(
          "names of signals with commas between them, of SIGTERM, SIGINT, SIGHUP, SIGQUIT, "
          "SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU and SIGPWR");
    }
    signals.push_back(it->signal);
  }
  return signals;
}

absl::StatusOr<std::vector<std::string>> ParseTexts(std::string_view text) {
  std::vector<std::string> texts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      texts.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      texts.back() += ',';
      ++i;
    } else {
      texts.emplace_back();
    }
  }
  texts.erase(std::remove(texts.begin(), texts.end(), std::string()), texts.end());
  return texts;
}

absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(std::string_view text) {
  std::map<std::string, std::string> values;
  for (const std::string_view entry : Split(text, ',')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == entry.size()) {
      return MustBe("KEY=VALUE,KEY=VALUE, each with a value");
    }
    if (!values.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("names ", std::string(entry.substr(0, equals)), " twice"));
    }
  }
  return values;
}

}  // namespace ddl::cli
