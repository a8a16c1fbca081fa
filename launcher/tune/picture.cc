// The picture: throughput and memory against the micro-batch with the knee marked,
// and curves of the loss, one over the other.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/tune/report.h"

namespace ddl::tune {
namespace {

constexpr double kMiB = 1024 * 1024;
// Points of one curve: more cannot be told apart, and make a large file.
constexpr std::size_t kCurvePoints = 120;
constexpr std::size_t kMostCurves = 5;

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

// "micro samples/s MiB" of each trial that ran.
std::string TrialData(const Findings& findings) {
  std::set<std::int64_t> micros;
  for (const TrialResult& trial : findings.trials) {
    micros.insert(trial.request.micro_batch_size);
  }
  std::string text = "$trials << EOD\n";
  for (const std::int64_t micro : micros) {
    const TrialResult* const trial = findings.TrialOf(micro);
    if (trial->measured.steps == 0) {
      continue;
    }
    absl::StrAppend(
        &text, micro, " ", trial->measured.samples_per_s, " ",
        trial->peak_bytes > 0 ? absl::StrCat(static_cast<double>(trial->peak_bytes) / kMiB) : "NaN",
        "\n");
  }
  return text + "EOD\n";
}

// "samples loss": the mean of each stretch of the trial's steps.
std::string LossData(const std::string& name, const std::vector<Step>& steps, std::size_t count) {
  const std::size_t stretch = std::max<std::size_t>(1, (count + kCurvePoints - 1) / kCurvePoints);
  std::string text = absl::StrCat("$", name, " << EOD\n");
  double samples = 0;
  for (std::size_t begin = 0; begin < count; begin += stretch) {
    const std::size_t end = std::min(count, begin + stretch);
    double loss = 0;
    for (std::size_t i = begin; i < end; ++i) {
      loss += steps[i].loss;
      samples += steps[i].samples;
    }
    loss /= static_cast<double>(end - begin);
    absl::StrAppend(&text, samples, " ", std::isfinite(loss) ? absl::StrCat(loss) : "NaN", "\n");
  }
  return text + "EOD\n";
}

struct LossCurves {
  std::string data;
  std::string plot;  // the arguments of `plot`; empty: there are none
};

void AddCurve(const TrialResult& trial, std::size_t count, const char* style, LossCurves* curves) {
  const std::string name =
      absl::StrCat("loss", trial.request.micro_batch_size, "x", trial.request.grad_accum_steps);
  absl::StrAppend(&curves->data, LossData(name, trial.steps, count));
  absl::StrAppend(&curves->plot, curves->plot.empty() ? "" : ", \\\n  ", "$", name,
                  " using 1:2 with lines ", style, " title 'micro ", trial.request.micro_batch_size,
                  " x accumulation ", trial.request.grad_accum_steps, "'");
}

// The two of the check; else those of the trials up to and around the choice.
LossCurves CurvesOf(const Findings& findings) {
  LossCurves curves;
  const TrialResult* const chosen = findings.Chosen();
  if (chosen != nullptr && findings.half_micro.has_value()) {
    const std::size_t count = std::min(chosen->steps.size(), findings.half_micro->steps.size());
    // One lies on the other: the first is the wider.
    AddCurve(*chosen, count, "lw 7 lc rgb '#a6cee3'", &curves);
    AddCurve(*findings.half_micro, count, "lw 2 lc rgb '#dd181f'", &curves);
    return curves;
  }
  std::vector<const TrialResult*> trials;
  for (const TrialResult& trial : findings.trials) {
    if (trial.outcome == Outcome::kFits) {
      trials.push_back(&trial);
    }
  }
  for (std::size_t i = trials.size() - std::min(trials.size(), kMostCurves); i < trials.size();
       ++i) {
    AddCurve(*trials[i], trials[i]->steps.size(), "lw 2", &curves);
  }
  return curves;
}

}  // namespace

std::string GnuplotScript(const TuneConfig& config, const Findings& findings) {
  const LossCurves curves = CurvesOf(findings);
  const bool has_loss = !curves.plot.empty();
  std::string draw = absl::StrCat(
      "set multiplot layout ", has_loss ? 2 : 1, ",1\n", "set title ",
      Quoted("Throughput and memory of " + config.program.front()), " noenhanced\n",
      "set logscale x 2\nset xlabel 'micro-batch (samples)'\nset ylabel 'samples/s'\n"
      "set y2label 'peak memory (MiB)'\nset ytics nomirror\nset y2tics\nset yrange [0:*]\n"
      "set y2range [0:*]\nset key at graph 0.98, graph 0.22\nset grid\n");
  if (findings.choice.has_value()) {
    const std::int64_t micro = findings.choice->micro_batch_size;
    const bool is_knee = findings.choice->reason == Reason::kKnee;
    absl::StrAppend(&draw, "set arrow 1 from ", micro, ", graph 0 to ", micro,
                    ", graph 1 nohead dt 2 lw 2 lc rgb '#444444'\n", "set label 1 '",
                    is_knee ? absl::StrCat("knee: ", micro)
                            : absl::StrCat("choice: ", micro, " (still rising)"),
                    "' at ", micro, ", graph 0.08 right offset -1,0\n");
  }
  absl::StrAppend(
      &draw,
      "plot $trials using 1:2 with linespoints lw 2 pt 7 lc rgb '#0060ad' title "
      "'samples/s', \\\n  $trials using 1:3 axes x1y2 with linespoints lw 2 pt 5 lc rgb "
      "'#dd181f' title 'memory'\n"
      "unset arrow 1\nunset label 1\nunset logscale\nunset y2tics\nunset y2label\n"
      "set ytics mirror\nset yrange [*:*]\n");
  if (has_loss) {
    absl::StrAppend(&draw,
                    "set title 'Loss'\nset xlabel 'samples'\nset ylabel 'mean loss of a step'\n"
                    "set key default\nset key top right\nplot ",
                    curves.plot, "\n");
  }
  absl::StrAppend(&draw, "unset multiplot\nreset\n");
  const int height = has_loss ? 800 : 400;
  return absl::StrCat(
      "# Made by ddlaunch tune; run it with gnuplot to make tune.svg and tune.png again.\n",
      TrialData(findings), curves.data, "set terminal svg size 800,", height,
      " font 'sans-serif,12' background '#ffffff'\nset output 'tune.svg'\n", draw,
      "set terminal png size 800,", height, "\nset output 'tune.png'\n", draw, "unset output\n");
}

}  // namespace ddl::tune
