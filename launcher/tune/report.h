// What tune leaves behind and says: lines of the terminal, trials.csv, tune.yaml and
// the gnuplot script of the picture. Texts only; pure.
#ifndef DDLAUNCH_LAUNCHER_TUNE_REPORT_H_
#define DDLAUNCH_LAUNCHER_TUNE_REPORT_H_

#include <string>

#include "launcher/tune/findings.h"
#include "launcher/tune/tune_config.h"

namespace ddl::tune {

// Half the micro-batch in two micro-steps gives the same loss: the mean of the
// differences, step by step, is at most this part of the mean loss. Equal sums differ
// by rounding only (1e-6 or so); what a program draws at random is in the rest.
inline constexpr double kLossTolerance = 0.05;
// Workers that together do less than this part of their number times one worker's
// throughput wait for each other: communication-bound (8 devices under 6 times).
inline constexpr double kGoodScaling = 0.75;

// "fits", "out of memory", ...
const char* ToString(Outcome outcome);

// "micro-batch 64: 8123 samples/s, 11.2 MiB (0.1 % of the memory)".
std::string TrialLine(const TrialResult& trial);
// What was chosen and why: "knee: micro-batch 24, ...". REQUIRES: there is a choice.
std::string ChoiceLine(const TuneConfig& config, const Findings& findings);
// That the proposal goes without --min-micro-batch-size; empty: it does not.
// REQUIRES: there is a choice.
std::string FloorLine(const TuneConfig& config, const Findings& findings);
// The words for the end of the two checks, with their numbers.
std::string LossLine(const Findings& findings);
std::string ScalingLine(const Findings& findings);

// Of trials.csv, each with its newline.
std::string CsvHeader();
std::string CsvLine(const TrialResult& trial);

// tune.yaml, for --config. REQUIRES: there is a choice.
std::string YamlText(const TuneConfig& config, const Findings& findings);

// A script that makes tune.svg and tune.png in its working directory; it has the
// data in it.
std::string GnuplotScript(const TuneConfig& config, const Findings& findings);

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_REPORT_H_
