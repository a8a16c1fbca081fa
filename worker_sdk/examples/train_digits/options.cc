// One table of options serves parsing, help and the hint at a misspelling.
#include "worker_sdk/examples/train_digits/options.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "agent/base/edit_distance.h"
#include "agent/base/status_macros.h"

namespace ddl::digits {
namespace {

struct Known {
  std::string_view name;
  std::string_view value;  // its name in the help
  std::string_view help;
  // One of the two says where the value goes.
  std::int64_t Options::*number = nullptr;
  std::string Options::*text = nullptr;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

const std::vector<Known>& AllKnown() {
  constexpr std::int64_t kMany = 1'000'000'000;
  constexpr std::int64_t kMaxHidden = 65'536;
  static const std::vector<Known> known = {
      {"--epochs", "N", "epochs to train (20)", &Options::epochs, nullptr, 0, kMany},
      {"--data", "FILE", "digits as CSV, gzipped or not", nullptr, &Options::data},
      {"--checkpoint-dir", "DIR", "resume from here, and save here", nullptr,
       &Options::checkpoint_dir},
      {"--checkpoint-every", "STEPS", "optimizer steps between saves (an epoch)",
       &Options::checkpoint_every, nullptr, 0, kMany},
      {"--seed", "N", "of weights, split and order (1)", &Options::seed, nullptr, 0, kMany},
      {"--hidden", "N", "hidden units (128)", &Options::hidden, nullptr, 1, kMaxHidden},
      {"--metrics-out", "FILE", "a JSON object a step, by rank 0", nullptr, &Options::metrics_out},
      {"--weights-out", "FILE", "the final weights, raw floats, by rank 0", nullptr,
       &Options::weights_out},
      {"--step-delay-ms", "N", "wait before each step (0), to watch it at work",
       &Options::step_delay_ms, nullptr, 0, kMany},
      {"--audit-dir", "DIR", "the sample ids of each step, a file a rank", nullptr,
       &Options::audit_dir},
      {"--oom-above", "N", "larger micro-batches run out of memory, to see what happens",
       &Options::oom_above, nullptr, 0, kMany},
      {"--oom-rank", "RANK", "only on this rank", &Options::oom_rank, nullptr, 0, kMany},
      {"--oom-at-step", "STEP", "only in this step", &Options::oom_at_step, nullptr, 1, kMany},
      {"--stop-rank", "RANK", "this rank stops itself, SIGSTOP, before step 1 of the first round",
       &Options::stop_rank, nullptr, 0, kMany},
  };
  return known;
}

absl::Status Unknown(const std::string& name) {
  const std::vector<Known>& known = AllKnown();
  const auto nearest =
      std::min_element(known.begin(), known.end(), [&](const Known& a, const Known& b) {
        return EditDistance(name, a.name) < EditDistance(name, b.name);
      });
  return absl::InvalidArgumentError("unknown option " + name + "; did you mean " +
                                    std::string(nearest->name) + "? --help lists all");
}

absl::Status Set(const Known& known, const std::string& value, Options* options) {
  if (known.text != nullptr) {
    options->*known.text = value;
    return absl::OkStatus();
  }
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < known.least || number > known.most) {
    return absl::InvalidArgumentError(std::string(known.name) + "=" + value +
                                      " is not a number of " + std::to_string(known.least) +
                                      " to " + std::to_string(known.most));
  }
  options->*known.number = number;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      options.help = true;
      continue;
    }
    const std::vector<Known>& all = AllKnown();
    const auto known =
        std::find_if(all.begin(), all.end(), [&](const Known& k) { return k.name == name; });
    if (known == all.end()) {
      return Unknown(name);
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(name + " needs a value: " + std::string(known->value));
    }
    const std::string value =
        equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1);
    DDL_RETURN_IF_ERROR(Set(*known, value, &options));
  }
  return options;
}

std::string HelpText() {
  constexpr std::size_t kColumn = 28;
  std::string text =
      "train_bin [options]: trains a perceptron on handwritten digits, alone or on every\n"
      "rank that ddlaunch starts. Batch sizes and learning rate are ddlaunch's flags.\n\n";
  for (const Known& known : AllKnown()) {
    std::string left = "  " + std::string(known.name) + " " + std::string(known.value);
    left.resize(std::max(left.size() + 1, kColumn), ' ');
    text += left + std::string(known.help) + "\n";
  }
  return text;
}

}  // namespace ddl::digits
