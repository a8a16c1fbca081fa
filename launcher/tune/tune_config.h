// TuneConfig: everything that `ddlaunch tune` was asked for, validated once.
// launcher/cli makes it; the rest only reads it. A plain value.
#ifndef DDLAUNCH_LAUNCHER_TUNE_TUNE_CONFIG_H_
#define DDLAUNCH_LAUNCHER_TUNE_TUNE_CONFIG_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "agent/plan/plan.h"

namespace ddl {

struct TuneConfig {
  // The program as the user wrote it, and its arguments.
  std::vector<std::string> program;
  // Flags of a launch that hold for each trial: "--role=a".
  std::vector<std::string> launch_flags;

  // The search, in samples of one rank: from where, and how far at most.
  std::int64_t first_micro_batch_size = 1;
  std::int64_t max_micro_batch_size = std::int64_t{1} << 40U;
  std::string bounded_by;  // the flag and its value that say how far; empty: none does

  // The proposal: what was asked for besides the micro-batch, the same as names of
  // flags and their values, and the worlds.
  plan::Request plan;
  std::vector<std::pair<std::string, std::string>> plan_flags;
  std::vector<std::int64_t> worlds;

  // A trial.
  std::string directory = "ddlaunch-tune";
  std::int64_t trial_steps = 20;
  Duration trial_time = std::chrono::seconds(10);
  Duration trial_timeout = std::chrono::seconds(300);
  Duration shutdown_timeout = std::chrono::seconds(30);
  double memory_limit = 0.9;
  std::set<std::int32_t> oom_exit_codes;

  // Checks at the end.
  bool check_loss = false;
  bool check_scaling = false;
  std::int32_t nproc = 1;  // workers of the latter

  bool verbose = false;
  bool quiet = false;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_TUNE_TUNE_CONFIG_H_
