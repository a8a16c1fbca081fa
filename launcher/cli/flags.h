// The launcher's flags: one table that drives parsing, the PET_ variables, the
// help text and the suggestions for a mistyped name. No behaviour lives here.
#ifndef DDLAUNCH_LAUNCHER_CLI_FLAGS_H_
#define DDLAUNCH_LAUNCHER_CLI_FLAGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::cli {

// What ddlaunch is asked to do: start a job's workers here; or, by its first word,
// `coordinator`: serve the meetings of many jobs; `plan`: show what would be agreed
// on; `tune`: find the micro-batch that suits a program.
enum class Command : std::uint8_t { kLaunch, kCoordinator, kPlan, kTune };

// In the order of the table, which is the order of the help text.
enum class FlagId : std::uint8_t {
  kNnodes,
  kNprocPerNode,
  kNodeRank,
  kRdzvBackend,
  kRdzvEndpoint,
  kRdzvId,
  kListen,
  kRdzvConf,
  kRdzvTokenFile,
  kStandalone,
  kMasterAddr,
  kMasterPort,
  kLocalAddr,
  kWorkerStore,
  kModule,
  kNoPython,
  kRunPath,
  kRole,
  kEnv,
  kNumaBinding,
  kVirtualLocalRank,
  kMaxRestarts,
  kShutdownTimeout,
  kSignalsToHandle,
  kLogDir,
  kRedirects,
  kTee,
  kLocalRanksFilter,
  kLogLinePrefixTemplate,
  kDuplicateStdoutFilters,
  kDuplicateStderrFilters,
  kEventLogHandler,
  kVerbose,
  kQuiet,
  kGlobalBatchSize,
  kMicroBatchSize,
  kMaxMicroBatchSize,
  kGradAccumSteps,
  kBatchPolicy,
  kMinMicroBatchSize,
  kOomExitCodes,
  kBaseLr,
  kBaseBatchSize,
  kLrScaling,
  kTotalSamples,
  kEpochSamples,
  kWarmupSteps,
  kWarmupRatio,
  kWarmupEpochs,
  kWarmupStartLr,
  kLrDecay,
  kLrDecaySteps,
  kLrDecayEpochs,
  kLrDecayFactor,
  kAdamBeta1,
  kAdamBeta2,
  kAdamEps,
  kScaleAdam,
  kWorld,
  kJson,
  kTuneDir,
  kTrialSteps,
  kTrialSeconds,
  kTrialTimeout,
  kMemoryLimit,
  kCheckLoss,
  kCheckScaling,
  kConfig,
  kPrintCompletion,
  kHelp,
  kVersion,
  // Taken for torchrun's sake; they change nothing here.
  kMonitorInterval,
  kStartMethod,
  kExitBarrierTimeout,
  // Known, and refused with the way to do it here.
  kLogsSpecs,
};

enum class FlagGroup : std::uint8_t {
  kJob,
  kMeeting,
  kProgram,
  kSupervision,
  kOutput,
  kPlan,
  kRate,
  kTune,
  kOther,
  kIgnored,
  kRefused,
};

struct FlagSpec {
  FlagId id;
  FlagGroup group;
  // "nproc-per-node"; --nproc_per_node and PET_NPROC_PER_NODE follow from it.
  std::string_view name;
  char short_name;  // 0: none
  // What the help text calls the value; empty: a switch that takes none.
  std::string_view value_name;
  std::string_view default_text;
  std::string_view help;
  // A second variable it can come from, of lower rank than PET_. A switch's is
  // PyTorch's own: "1" is on, as there, and everything else is off.
  std::string_view other_variable;
  // Of which commands it is one.
  enum class Of : std::uint8_t {
    kLaunch,
    kTrial,  // a launch, and the trials of tune
    kCoordinator,
    kServing,
    kMeeting,  // a launch, and the coordinator
    kBatch,
    kChosen,  // of the batch: what tune chooses
    kProposal,
    kPlan,
    kTune,
    kEvery
  };
  Of command = Of::kLaunch;
  // The words that a value may be, or be made of, with spaces between; empty: there
  // is no such list. A number may be allowed too.
  std::string_view choices = {};

  [[nodiscard]] bool BelongsTo(Command asked) const {
    switch (command) {
      case Of::kLaunch:
        return asked == Command::kLaunch;
      case Of::kTrial:
        return asked == Command::kLaunch || asked == Command::kTune;
      case Of::kCoordinator:
        return asked == Command::kCoordinator;
      case Of::kServing:
        return asked != Command::kPlan;
      case Of::kMeeting:
        return asked == Command::kLaunch || asked == Command::kCoordinator;
      case Of::kBatch:
        return asked != Command::kCoordinator;
      case Of::kChosen:
        return asked == Command::kLaunch || asked == Command::kPlan;
      case Of::kProposal:
        return asked == Command::kPlan || asked == Command::kTune;
      case Of::kPlan:
        return asked == Command::kPlan;
      case Of::kTune:
        return asked == Command::kTune;
      case Of::kEvery:
        return true;
    }
    return false;
  }
  [[nodiscard]] bool takes_value() const { return !value_name.empty(); }
  // "NAME,..": several, with commas between them.
  [[nodiscard]] bool takes_list() const { return value_name.ends_with(",.."); }
};

// Every flag, in the order of FlagId.
std::span<const FlagSpec> AllFlags();
const FlagSpec& Flag(FlagId id);

// Among the flags of `command`: by its long name in either spelling, without the
// dashes; null: it has no such flag.
const FlagSpec* FindFlag(std::string_view name, Command command);
// Every flag whose long name starts with `prefix` (either spelling), as
// argparse would complete it.
std::vector<const FlagSpec*> FlagsStartingWith(std::string_view prefix, Command command);
const FlagSpec* FindShortFlag(char short_name, Command command);

// The words of flag.choices.
std::vector<std::string_view> ChoicesOf(const FlagSpec& flag);

// It is one of torchrun's too; the others are ddlaunch's own.
bool IsTorchruns(const FlagSpec& flag);
// False for what is asked for on the command line only, such as help.
bool ReadsVariables(const FlagSpec& flag);

// "PET_NPROC_PER_NODE": where the flag's default comes from, as in torchrun.
std::string PetVariable(const FlagSpec& flag);

// The long names of the command's flags that a mistyped one was most likely meant for
// (see edit_distance.h), without the dashes; what other launchers call a flag is known.
std::vector<std::string_view> NearestFlags(std::string_view name, Command command);

}  // namespace ddl::cli

#endif  // DDLAUNCH_LAUNCHER_CLI_FLAGS_H_
