// Any words as a command line, any PET_ variables, any --rdzv-conf: understood
// into a configuration that makes sense, or refused with a clear status, never
// worse. No path that exists is made up but /bin/true, the program.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/cli/flags.h"
#include "launcher/cli/parse.h"
#include "launcher/cli/rdzv_conf.h"

namespace ddl::cli {
namespace {

constexpr std::size_t kMaxWords = 12;
constexpr std::size_t kMaxWordBytes = 200;

// Pieces of which values are made that get past the first check.
constexpr std::array<std::string_view, 62> kPieces = {"0",
                                                      "1",
                                                      "2",
                                                      "3",
                                                      "-1",
                                                      "4",
                                                      ":",
                                                      "2:4",
                                                      ",",
                                                      "=",
                                                      "1.5",
                                                      "1e3",
                                                      "inf",
                                                      "nan",
                                                      "2147483648",
                                                      "9223372036854775807",
                                                      "auto",
                                                      "gpu",
                                                      "cpu",
                                                      "0:3,1:1",
                                                      "static",
                                                      "c10d",
                                                      "etcd",
                                                      "127.0.0.1",
                                                      "[::1]",
                                                      "::1",
                                                      "localhost",
                                                      "29400",
                                                      "65536",
                                                      "host",
                                                      "true",
                                                      "none",
                                                      "linear",
                                                      "sqrt",
                                                      "spawn",
                                                      "..",
                                                      "exact",
                                                      "nearest",
                                                      "fail",
                                                      "step",
                                                      "cosine",
                                                      "null",
                                                      "join_timeout",
                                                      "last_call_timeout",
                                                      "close_timeout",
                                                      "heartbeat_timeout",
                                                      "keep_alive_interval",
                                                      "keep_alive_max_attempt",
                                                      "read_timeout",
                                                      "is_host",
                                                      "store_type",
                                                      "use_libuv",
                                                      "timeout",
                                                      "rank",
                                                      "=3",
                                                      "=1",
                                                      "=0,",
                                                      "=30,",
                                                      "${rank}",
                                                      "/nonexistent",
                                                      " ",
                                                      "\n"};

void Require(bool holds, const char* what, const std::vector<std::string>& args) {
  if (!holds) {
    std::fprintf(stderr, "cli_fuzz: %s\n", what);
    for (const std::string& arg : args) {
      std::fprintf(stderr, "  '%s'\n", arg.c_str());
    }
    std::abort();
  }
}

std::string AnyValue(FuzzedDataProvider& data) {
  constexpr int kMostPieces = 4;
  const int pieces = data.ConsumeIntegralInRange(-1, kMostPieces);
  if (pieces < 0) {
    return data.ConsumeRandomLengthString(kMaxWordBytes);
  }
  std::string value;
  for (int i = 0; i < pieces; ++i) {
    value += kPieces[data.ConsumeIntegralInRange<std::size_t>(0, kPieces.size() - 1)];
  }
  return value;
}

const FlagSpec& AnyFlag(FuzzedDataProvider& data) {
  const auto flags = AllFlags();
  return flags[data.ConsumeIntegralInRange<std::size_t>(0, flags.size() - 1)];
}

void AppendWords(FuzzedDataProvider& data, std::vector<std::string>& args) {
  std::string name = "--" + std::string(AnyFlag(data).name);
  switch (data.ConsumeIntegralInRange(0, 5)) {
    case 0:
      args.push_back(AnyValue(data));
      return;
    case 1:
      args.push_back(name);
      return;
    case 2:
      args.push_back(name);
      args.push_back(AnyValue(data));
      return;
    case 3:
      std::replace(name.begin() + 2, name.end(), '-', '_');
      break;
    case 4:  // a part of the name
      name.resize(data.ConsumeIntegralInRange<std::size_t>(1, name.size()));
      break;
    default:
      break;
  }
  args.push_back(name + "=" + AnyValue(data));
}

void CheckHeartbeats(Duration interval, Duration timeout, const std::vector<std::string>& args) {
  Require(interval > Duration::zero() && timeout > interval, "a heartbeat fits into its timeout",
          args);
}

void CheckConfig(const LaunchConfig& config, const std::vector<std::string>& args) {
  Require(config.nproc >= 1, "there is a worker", args);
  Require(config.min_nodes >= 1 && config.min_nodes <= config.max_nodes, "1 <= min <= max", args);
  Require(!config.node_rank.has_value() ||
              (*config.node_rank >= 0 && *config.node_rank < config.max_nodes),
          "the node rank is within --nnodes", args);
  Require(config.max_restarts >= 0, "restarts are not negative", args);
  for (const Duration wait : {config.join_timeout, config.last_call_timeout, config.close_timeout,
                              config.shutdown_timeout}) {
    Require(wait >= Duration::zero(), "no wait is negative", args);
  }
  CheckHeartbeats(config.heartbeat_interval, config.heartbeat_timeout, args);
  Require(!config.argv.empty() && config.argv[0].starts_with('/'), "the program was found", args);
}

void CheckStatus(const absl::Status& status, const std::vector<std::string>& args) {
  const bool known = absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
                     absl::IsPermissionDenied(status);
  Require(known, "the error is one of those that parse.h names", args);
  Require(!status.message().empty(), "an error says what is wrong", args);
}

void TryCommandLine(FuzzedDataProvider& data) {
  Surroundings around;
  around.places.cwd = "/nonexistent";
  around.devices = {"/nonexistent", "/nonexistent", "/nonexistent"};
  around.environment["PATH"] = "/bin";
  const std::size_t variables = data.ConsumeIntegralInRange<std::size_t>(0, 3);
  for (std::size_t i = 0; i < variables; ++i) {
    std::string name = data.ConsumeBool() ? PetVariable(AnyFlag(data)) : AnyValue(data);
    around.environment[std::move(name)] = AnyValue(data);
  }
  std::vector<std::string> args;
  const std::size_t words = data.ConsumeIntegralInRange<std::size_t>(0, kMaxWords);
  for (std::size_t i = 0; i < words; ++i) {
    AppendWords(data, args);
  }
  switch (data.ConsumeIntegralInRange(0, 4)) {
    case 0:
      args.insert(args.begin(), "coordinator");
      break;
    case 1:
      args.insert(args.begin(), "plan");
      break;
    case 2:
      args.insert(args.begin(), "tune");
      args.emplace_back("/bin/true");
      break;
    default:
      args.emplace_back("/bin/true");
      break;
  }
  const auto result = ParseCommandLine(args, around);
  if (!result.ok()) {
    CheckStatus(result.status(), args);
  } else if (const auto* const launch = std::get_if<LaunchCommand>(&*result)) {
    CheckConfig(launch->config, args);
  } else if (const auto* const print = std::get_if<PrintAndExit>(&*result)) {
    Require(!print->text.empty(), "what is printed says something", args);
  } else if (const auto* const tune = std::get_if<TuneCommand>(&*result)) {
    Require(tune->config.first_micro_batch_size >= 1 &&
                tune->config.first_micro_batch_size <= tune->config.max_micro_batch_size,
            "the search has a range", args);
    Require(!tune->config.worlds.empty() && !tune->config.program.empty(),
            "there are worlds and a program", args);
  } else if (const auto* const coordinator = std::get_if<CoordinatorCommand>(&*result)) {
    CheckHeartbeats(coordinator->config.heartbeat_interval, coordinator->config.heartbeat_timeout,
                    args);
  }
}

void TryRdzvConf(FuzzedDataProvider& data) {
  const std::string text = AnyValue(data) + AnyValue(data);
  for (const auto& conf : {ParseRdzvConf(text), ParseCoordinatorConf(text)}) {
    if (!conf.ok()) {
      CheckStatus(conf.status(), {text});
    } else if (conf->heartbeats.has_value()) {
      CheckHeartbeats(conf->heartbeats->interval, conf->heartbeats->timeout, {text});
    }
  }
}

}  // namespace
}  // namespace ddl::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider provider(data, size);
  if (provider.ConsumeIntegralInRange(0, 3) == 0) {
    ddl::cli::TryRdzvConf(provider);
  } else {
    ddl::cli::TryCommandLine(provider);
  }
  return 0;
}
