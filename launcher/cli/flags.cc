// The table of flags and the look-ups in it.
#include "launcher/cli/flags.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>

#include "agent/base/check.h"
#include "agent/base/edit_distance.h"

namespace ddl::cli {
namespace {

using G = FlagGroup;
using I = FlagId;
using C = FlagSpec::Of;

// clang-format off: a table is read by its columns.
constexpr FlagSpec kFlags[] = {
    {I::kNnodes, G::kJob, "nnodes", 0, "N", "1",
     "Nodes of the job, or MIN:MAX: they may come and go", "", C::kTrial},
    {I::kNprocPerNode, G::kJob, "nproc-per-node", 0, "N", "1",
     "Workers of this node: a number, cpu, gpu or auto", "", C::kTrial, "auto cpu gpu"},
    {I::kNodeRank, G::kJob, "node-rank", 0, "R", "", "This node's rank (static: 0 unless given)",
     ""},
    {I::kRdzvBackend, G::kMeeting, "rdzv-backend", 0, "B", "static",
     "static, or c10d (ranks by order of arrival)", "", C::kLaunch, "static c10d"},
    {I::kRdzvEndpoint, G::kMeeting, "rdzv-endpoint", 0, "HOST[:PORT]", "",
     "Where the nodes meet; port 29400 (c10d), 29500 (static)", ""},
    {I::kRdzvId, G::kMeeting, "rdzv-id", 0, "ID", "none", "The job's id, the same on every node",
     ""},
    {I::kListen, G::kMeeting, "listen", 0, "ADDR", ":29400",
     "HOST:PORT or [V6]:PORT; :PORT or PORT: every address", "", C::kCoordinator},
    {I::kRdzvConf, G::kMeeting, "rdzv-conf", 0, "K=V,..", "", "Timeouts and more; see below", "",
     C::kMeeting, "join_timeout= last_call_timeout= close_timeout= heartbeat_timeout= is_host="},
    {I::kRdzvTokenFile, G::kMeeting, "rdzv-token-file", 0, "FILE", "",
     "The secret that admits nodes; or DDL_RDZV_TOKEN", "", C::kMeeting},
    {I::kStandalone, G::kMeeting, "standalone", 0, "", "",
     "One node that meets nobody; ignores --rdzv-*", "", C::kTrial},
    {I::kMasterAddr, G::kMeeting, "master-addr", 0, "HOST", "",
     "MASTER_ADDR; static: where the nodes meet", ""},
    {I::kMasterPort, G::kMeeting, "master-port", 0, "PORT", "", "MASTER_PORT; default: a free one",
     ""},
    {I::kLocalAddr, G::kMeeting, "local-addr", 0, "ADDR", "",
     "The address this node gives to the others", ""},
    {I::kWorkerStore, G::kMeeting, "worker-store", 0, "", "",
     "Rank 0, not ddlaunch, serves PyTorch's store at MASTER_PORT",
     "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", C::kTrial},
    {I::kModule, G::kProgram, "module", 'm', "", "", "PROGRAM is a Python module (python3 -u -m)",
     "", C::kTrial},
    {I::kNoPython, G::kProgram, "no-python", 0, "", "", "Execute PROGRAM as it is, also a .py file",
     "", C::kTrial},
    {I::kRunPath, G::kProgram, "run-path", 0, "", "", "Run the script by Python's runpy", "",
     C::kTrial},
    {I::kRole, G::kProgram, "role", 0, "NAME", "default",
     "ROLE_NAME, and the prefix of output lines", "", C::kTrial},
    {I::kEnv, G::kProgram, "env", 0, "NAME,..", "torch",
     "Variables for workers: torch, tensorflow, jax, mpi", "", C::kTrial,
     "torch tensorflow jax mpi"},
    {I::kNumaBinding, G::kProgram, "numa-binding", 0, "KIND", "none",
     "To CPUs: node, socket, exclusive, core-complex", "", C::kTrial,
     "none node socket exclusive core-complex"},
    {I::kVirtualLocalRank, G::kProgram, "virtual-local-rank", 0, "", "",
     "Each worker sees its one GPU only, and LOCAL_RANK=0", "", C::kTrial},
    {I::kMaxRestarts, G::kSupervision, "max-restarts", 0, "N", "0",
     "Restarts of the whole job after a failure", ""},
    {I::kShutdownTimeout, G::kSupervision, "shutdown-timeout", 0, "S", "30",
     "Seconds from SIGTERM to SIGKILL", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", C::kTrial},
    {I::kSignalsToHandle, G::kSupervision, "signals-to-handle", 0, "SIG,..", "TERM,INT,HUP,QUIT",
     "Signals that stop the job; else passed on", "", C::kLaunch,
     "SIGTERM SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2"},
    {I::kLogDir, G::kOutput, "log-dir", 0, "DIR", "", "Where log files go; /dev/null: no files",
     ""},
    {I::kRedirects, G::kOutput, "redirects", 'r', "STREAMS", "0",
     "To files only: 0 none, 1 out, 2 err, 3 both, or 0:3,1:1", "", C::kLaunch, "0 1 2 3"},
    {I::kTee, G::kOutput, "tee", 't', "STREAMS", "0",
     "To files and to the console, in the same form", "", C::kLaunch, "0 1 2 3"},
    {I::kLocalRanksFilter, G::kOutput, "local-ranks-filter", 0, "R,..", "",
     "Show only these local ranks", ""},
    {I::kLogLinePrefixTemplate, G::kOutput, "log-line-prefix-template", 0, "T", "",
     "${role_name} ${local_rank} ${rank} ${hostname}", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    {I::kDuplicateStdoutFilters, G::kOutput, "duplicate-stdout-filters", 0, "T,..", "",
     "Lines with one of these also go to filtered_stdout.log", ""},
    {I::kDuplicateStderrFilters, G::kOutput, "duplicate-stderr-filters", 0, "T,..", "",
     "The same for stderr", ""},
    {I::kEventLogHandler, G::kOutput, "event-log-handler", 0, "H", "null",
     "null, or console: a JSON line for each change of state", "", C::kLaunch, "null console"},
    {I::kVerbose, G::kOutput, "verbose", 'v', "", "", "Say more about what ddlaunch does", "",
     C::kServing},
    {I::kQuiet, G::kOutput, "quiet", 'q', "", "", "Say only what went wrong", "", C::kTrial},
    {I::kGlobalBatchSize, G::kPlan, "global-batch-size", 0, "N", "",
     "Samples of one optimizer step, all ranks", "", C::kBatch},
    {I::kMicroBatchSize, G::kPlan, "micro-batch-size", 0, "N", "",
     "Samples of one rank in one micro-step", "", C::kChosen},
    {I::kMaxMicroBatchSize, G::kPlan, "max-micro-batch-size", 0, "N", "",
     "The most that fits a device's memory", "", C::kBatch},
    {I::kGradAccumSteps, G::kPlan, "grad-accum-steps", 0, "N", "",
     "Micro-steps of one optimizer step", "", C::kChosen},
    {I::kBatchPolicy, G::kPlan, "batch-policy", 0, "P", "",
     "Global batch that cannot be: exact, nearest, fail", "", C::kBatch, "exact nearest fail"},
    {I::kMinMicroBatchSize, G::kPlan, "min-micro-batch-size", 0, "N", "1",
     "The least that a split or out of memory makes of it", "", C::kBatch},
    {I::kOomExitCodes, G::kPlan, "oom-exit-codes", 0, "N,..", "",
     "Exit codes by which a program says out of memory", "", C::kTrial},
    {I::kBaseLr, G::kRate, "base-lr", 0, "RATE", "", "Learning rate at --base-batch-size", "",
     C::kBatch},
    {I::kBaseBatchSize, G::kRate, "base-batch-size", 0, "N", "",
     "Global batch that --base-lr is meant for", "", C::kBatch},
    {I::kLrScaling, G::kRate, "lr-scaling", 0, "RULE", "none", "none, linear or sqrt", "",
     C::kBatch, "none linear sqrt"},
    {I::kTotalSamples, G::kRate, "total-samples", 0, "N", "", "Samples of the whole training", "",
     C::kBatch},
    {I::kEpochSamples, G::kRate, "epoch-samples", 0, "N", "", "Samples of the training set", "",
     C::kBatch},
    {I::kWarmupSteps, G::kRate, "warmup-steps", 0, "N", "0",
     "Warm-up in optimizer steps at the batch asked for", "", C::kBatch},
    {I::kWarmupRatio, G::kRate, "warmup-ratio", 0, "PART", "",
     "Warm-up as a part of --total-samples, 0 to 1", "", C::kBatch},
    {I::kWarmupEpochs, G::kRate, "warmup-epochs", 0, "N", "", "Warm-up in epochs", "", C::kBatch},
    {I::kWarmupStartLr, G::kRate, "warmup-start-lr", 0, "RATE", "0",
     "Learning rate that the warm-up begins at", "", C::kBatch},
    {I::kLrDecay, G::kRate, "lr-decay", 0, "KIND", "constant",
     "Then constant, step, cosine or linear", "", C::kBatch, "constant step cosine linear"},
    {I::kLrDecaySteps, G::kRate, "lr-decay-steps", 0, "N", "",
     "step: its interval in optimizer steps", "", C::kBatch},
    {I::kLrDecayEpochs, G::kRate, "lr-decay-epochs", 0, "N", "", "step: its interval in epochs", "",
     C::kBatch},
    {I::kLrDecayFactor, G::kRate, "lr-decay-factor", 0, "F", "0.1",
     "step: what the rate is multiplied by", "", C::kBatch},
    {I::kAdamBeta1, G::kRate, "adam-beta1", 0, "B", "0.9", "Adam at --base-batch-size", "",
     C::kBatch},
    {I::kAdamBeta2, G::kRate, "adam-beta2", 0, "B", "0.999", "Adam at --base-batch-size", "",
     C::kBatch},
    {I::kAdamEps, G::kRate, "adam-eps", 0, "E", "1e-08", "Adam at --base-batch-size", "",
     C::kBatch},
    {I::kScaleAdam, G::kRate, "scale-adam", 0, "", "",
     "Scale Adam's numbers with the batch, as sqrt does the rate", "", C::kBatch},
    {I::kWorld, G::kPlan, "world", 0, "N,..", "", "Worlds to show the plan of, as 1,2,4 or 1..64",
     "", C::kProposal},
    {I::kJson, G::kPlan, "json", 0, "", "", "One JSON object in place of the table", "", C::kPlan},
    {I::kTuneDir, G::kTune, "tune-dir", 0, "DIR", "ddlaunch-tune",
     "Where results and each trial's output go", "", C::kTune},
    {I::kTrialSteps, G::kTune, "trial-steps", 0, "N", "20", "Steps that a trial measures at least",
     "", C::kTune},
    {I::kTrialSeconds, G::kTune, "trial-seconds", 0, "S", "10",
     "Time that a trial has from its first step on", "", C::kTune},
    {I::kTrialTimeout, G::kTune, "trial-timeout", 0, "S", "300",
     "Time that a trial has until its first step", "", C::kTune},
    {I::kMemoryLimit, G::kTune, "memory-limit", 0, "PART", "0.9",
     "The part of the memory that a trial may use", "", C::kTune},
    {I::kCheckLoss, G::kTune, "check-loss", 0, "", "",
     "Compare the loss with half the micro-batch, accumulated", "", C::kTune},
    {I::kCheckScaling, G::kTune, "check-scaling", 0, "", "",
     "Measure --nproc-per-node workers against one", "", C::kTune},
    {I::kConfig, G::kOther, "config", 0, "FILE", "", "Flags from a YAML file; flags here win", "",
     C::kBatch},
    {I::kPrintCompletion, G::kOther, "print-completion", 0, "SHELL", "",
     "A script that completes ddlaunch's flags: bash or zsh", "", C::kLaunch, "bash zsh"},
    {I::kHelp, G::kOther, "help", 'h', "", "", "This text", "", C::kEvery},
    {I::kVersion, G::kOther, "version", 0, "", "", "ddlaunch's version", "", C::kTrial},
    {I::kMonitorInterval, G::kIgnored, "monitor-interval", 0, "S", "0.1", "nothing polls here", ""},
    {I::kStartMethod, G::kIgnored, "start-method", 0, "M", "spawn", "workers are always spawned",
     "", C::kLaunch, "spawn fork forkserver"},
    {I::kExitBarrierTimeout, G::kIgnored, "exit-barrier-timeout", 0, "S", "300",
     "every node hears the job's result at once", "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT"},
    {I::kLogsSpecs, G::kRefused, "logs-specs", 0, "NAME", "", "", ""},
};
// clang-format on

// What mpirun, srun, accelerate launch, deepspeed and training scripts call these.
struct NameElsewhere {
  std::string_view theirs;
  std::string_view ours;
};
constexpr NameElsewhere kNamesElsewhere[] = {
    {"n", "nproc-per-node"},
    {"np", "nproc-per-node"},
    {"nprocs", "nproc-per-node"},
    {"num-processes", "nproc-per-node"},
    {"num-gpus", "nproc-per-node"},
    {"ntasks-per-node", "nproc-per-node"},
    {"num-machines", "nnodes"},
    {"num-nodes", "nnodes"},
    {"nodes", "nnodes"},
    {"N", "nnodes"},
    {"machine-rank", "node-rank"},
    {"main-process-ip", "master-addr"},
    {"hostfile", "rdzv-endpoint"},
    {"main-process-port", "master-port"},
    {"lr", "base-lr"},
    {"learning-rate", "base-lr"},
};

std::string WithDashes(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

}  // namespace

std::span<const FlagSpec> AllFlags() {
  return kFlags;
}

const FlagSpec& Flag(FlagId id) {
  const FlagSpec& flag = AllFlags()[static_cast<std::size_t>(id)];
  DDL_CHECK(flag.id == id);  // the table is in the order of the enum
  return flag;
}

const FlagSpec* FindFlag(std::string_view name, Command command) {
  const std::string dashed = WithDashes(name);
  const auto* const it = std::find_if(
      std::begin(kFlags), std::end(kFlags),
      [&](const FlagSpec& flag) { return flag.name == dashed && flag.BelongsTo(command); });
  return it == std::end(kFlags) ? nullptr : it;
}

std::vector<const FlagSpec*> FlagsStartingWith(std::string_view prefix, Command command) {
  const std::string dashed = WithDashes(prefix);
  std::vector<const FlagSpec*> found;
  for (const FlagSpec& flag : kFlags) {
    if (flag.name.starts_with(dashed) && flag.BelongsTo(command)) {
      found.push_back(&flag);
    }
  }
  return found;
}

const FlagSpec* FindShortFlag(char short_name, Command command) {
  const auto* const it =
      std::find_if(std::begin(kFlags), std::end(kFlags), [=](const FlagSpec& flag) {
        return flag.short_name == short_name && flag.BelongsTo(command);
      });
  return it == std::end(kFlags) || short_name == 0 ? nullptr : it;
}

std::vector<std::string_view> ChoicesOf(const FlagSpec& flag) {
  std::vector<std::string_view> words;
  for (std::string_view left = flag.choices; !left.empty();) {
    const std::size_t end = std::min(left.find(' '), left.size());
    words.push_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return words;
}

bool IsTorchruns(const FlagSpec& flag) {
  switch (flag.id) {
    case FlagId::kListen:
    case FlagId::kRdzvTokenFile:
    case FlagId::kWorkerStore:
    case FlagId::kEnv:
    case FlagId::kVerbose:
    case FlagId::kQuiet:
    case FlagId::kVersion:
    case FlagId::kConfig:
      return false;
    default:
      return flag.group != FlagGroup::kPlan && flag.group != FlagGroup::kRate &&
             flag.group != FlagGroup::kTune;
  }
}

bool ReadsVariables(const FlagSpec& flag) {
  return flag.id != FlagId::kHelp && flag.id != FlagId::kVersion &&
         flag.id != FlagId::kPrintCompletion;
}

std::string PetVariable(const FlagSpec& flag) {
  std::string name = "PET_";
  for (const char c : flag.name) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::string_view> NearestFlags(std::string_view name, Command command) {
  const std::string dashed = WithDashes(name);
  for (const NameElsewhere& known : kNamesElsewhere) {
    if (known.theirs == dashed && FindFlag(known.ours, command) != nullptr) {
      return {known.ours};
    }
  }
  std::vector<std::string_view> names;
  for (const FlagSpec& flag : kFlags) {
    if (flag.BelongsTo(command) && flag.group != FlagGroup::kRefused) {
      names.push_back(flag.name);
    }
  }
  return NearestNames(dashed, names);
}

}  // namespace ddl::cli
