// The whole command line: workers, supervision, output, plan, refusals.
#include "launcher/cli/parse.h"

#include <chrono>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "launcher/cli/flags.h"
#include "launcher/exit_code.h"
#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class ParseLine : public CliTest {
 protected:
  std::string PrintedBy(const std::vector<std::string>& args) const {
    const auto result = Parse(args);
    if (!result.ok() || !std::holds_alternative<PrintAndExit>(*result)) {
      ADD_FAILURE() << result.status();
      return "";
    }
    return std::get<PrintAndExit>(*result).text;
  }
};

TEST_F(ParseLine, HelpAndVersion_ArePrinted) {
  EXPECT_THAT(PrintedBy({"--help"}), StartsWith("Usage: ddlaunch"));
  EXPECT_THAT(PrintedBy({"--nnodes=junk", "-h"}), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(PrintedBy({"--version"}), StartsWith("ddlaunch "));
}

TEST_F(ParseLine, HelpAfterTheProgram_IsTheProgramsOwn) {
  EXPECT_THAT(Launch({"/bin/true", "--help"}).config.argv, ElementsAre("/bin/true", "--help"));
}

TEST_F(ParseLine, NoProgram_IsAUsageError) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{}, {"--nproc-per-node=2"}, {"--"}, {""}}) {
    const absl::Status status = Parse(args).status();
    EXPECT_EQ(ExitCodeFor(status), 2);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no program given"));
  }
}

TEST_F(ParseLine, WordsInTheTable_AreTheOnesThatAreAccepted) {
  for (const FlagSpec& flag : AllFlags()) {
    const bool is_of_launch = flag.BelongsTo(Command::kLaunch);
    if (flag.choices.empty() || !is_of_launch || flag.id == FlagId::kPrintCompletion) {
      continue;
    }
    const std::string name = absl::StrCat("--", std::string(flag.name), "=");
    for (const std::string_view word : ChoicesOf(flag)) {
      const std::string text =
          absl::StrCat(name, std::string(word), word.ends_with('=') ? "1" : "");
      const absl::Status status = Parse({text, "/bin/true"}).status();
      // A word may be right and still ask for what this host or line has not.
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr("must be"))) << text;
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr("no such"))) << text;
    }
    EXPECT_THAT(UsageError({name + "bogus"}), StartsWith(name + "bogus")) << flag.name;
  }
}

TEST_F(ParseLine, PrintCompletion_IsPrintedWithoutAProgram) {
  for (const char* const shell : {"bash", "zsh"}) {
    const auto result = Parse({"--print-completion", shell, "--bogus"});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(std::get<PrintAndExit>(*result).text, HasSubstr("--nproc-per-node="));
  }
  EXPECT_THAT(UsageError({"--print-completion=tcsh"}), HasSubstr("bash and zsh"));
}

// ---- workers ------------------------------------------------------------------

TEST_F(ParseLine, BadNproc_NamesFlagAndValue) {  // 7
  for (const char* const value : {"0", "-1", "1.5", ""}) {
    EXPECT_THAT(UsageError({std::string("--nproc-per-node=") + value}),
                HasSubstr(std::string("--nproc-per-node=") + value + ": must be a whole number"));
    EXPECT_THAT(UsageError({"--nproc-per-node", value}), HasSubstr("--nproc-per-node="));
  }
}

TEST_F(ParseLine, BadPetValue_NamesTheVariable) {
  around_.environment["PET_NPROC_PER_NODE"] = "many";
  EXPECT_THAT(UsageError({}), HasSubstr("PET_NPROC_PER_NODE=many: must be"));
}

TEST_F(ParseLine, GpuWithoutOne_IsRefused) {  // 7
  EXPECT_THAT(UsageError({"--nproc-per-node=gpu"}),
              AllOf(HasSubstr("--nproc-per-node=gpu"), HasSubstr("no GPU")));
  around_.environment["CUDA_VISIBLE_DEVICES"] = "";  // 31
  WriteFile("dev/nvidia0", "", false);
  EXPECT_THAT(UsageError({"--nproc-per-node=gpu"}), HasSubstr("no GPU"));
}

TEST_F(ParseLine, Gpu_CountsDeviceFiles) {
  for (const char* const name :
       {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "nvidia1x"}) {
    WriteFile(std::string("dev/") + name, "", false);
  }
  const LaunchCommand command = Launch({"--nproc-per-node=gpu"});
  EXPECT_EQ(command.config.nproc, 3);
  EXPECT_THAT(TextsOf(command.notices), Contains(HasSubstr("3 workers, one for each GPU")));
}

TEST_F(ParseLine, Gpu_CountsVisibleDevicesUntouched) {  // 31
  around_.environment["CUDA_VISIBLE_DEVICES"] = "GPU-1a2b,MIG-3c4d";
  EXPECT_EQ(Launch({"--nproc-per-node=gpu"}).config.nproc, 2);
  EXPECT_EQ(Launch({"--nproc-per-node=auto"}).config.nproc, 2);
  around_.environment["CUDA_VISIBLE_DEVICES"] = "0,2,-1,3";
  EXPECT_EQ(Launch({"--nproc-per-node=gpu"}).config.nproc, 2) << "-1 ends the list";
}

TEST_F(ParseLine, CpuAndAutoWithoutGpu_CountCpusAndSayTheNumber) {  // 7
  for (const char* const word : {"cpu", "auto"}) {
    const LaunchCommand command = Launch({"--nproc-per-node", word});
    EXPECT_GE(command.config.nproc, 1);
    EXPECT_THAT(TextsOf(command.notices),
                Contains(AllOf(HasSubstr(std::to_string(command.config.nproc)),
                               HasSubstr("one for each CPU"))));
  }
}

TEST_F(ParseLine, OmpThreads_OneLineUnlessTheUserChoseOrIsAlone) {  // 30
  around_.environment.erase("OMP_NUM_THREADS");
  EXPECT_THAT(TextsOf(Launch({"--nproc-per-node=2"}).notices),
              ElementsAre(AllOf(HasSubstr("OMP_NUM_THREADS="), HasSubstr("each of 2 workers"))));
  EXPECT_THAT(Launch({"--nproc-per-node=1"}).notices, IsEmpty());
  around_.environment["OMP_NUM_THREADS"] = "3";
  EXPECT_THAT(Launch({"--nproc-per-node=2"}).notices, IsEmpty());
}

TEST_F(ParseLine, FewerVisibleGpusThanWorkers_OneWarningNamesTwoRanks) {  // 32
  around_.environment["CUDA_VISIBLE_DEVICES"] = "0";
  const LaunchCommand command = Launch({"--nproc-per-node=2"});
  ASSERT_EQ(command.notices.size(), 1U);
  EXPECT_EQ(command.notices[0].level, Notice::Level::kWarning);
  EXPECT_THAT(command.notices[0].text, HasSubstr("local ranks 0 and 1 would share one"));
  around_.environment["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_THAT(Launch({"--nproc-per-node=2"}).notices, IsEmpty());
}

TEST_F(ParseLine, VirtualLocalRank_EachWorkerHasItsGpu) {
  around_.environment["CUDA_VISIBLE_DEVICES"] = "GPU-1a2b,MIG-3c4d";
  const LaunchConfig config = Launch({"--nproc-per-node=2", "--virtual-local-rank"}).config;
  ASSERT_EQ(config.places.size(), 2U);
  EXPECT_THAT(config.places[1].devices, ElementsAre("CUDA_VISIBLE_DEVICES=MIG-3c4d"));
  EXPECT_THAT(UsageError({"--nproc-per-node=3", "--virtual-local-rank"}),
              AllOf(HasSubstr("--virtual-local-rank"), HasSubstr("none is left for local rank 2")));
}

TEST_F(ParseLine, NumaBinding_IsWorkedOutBeforeAnythingStarts) {
  const LaunchConfig config = Launch({"--nproc-per-node=1", "--numa-binding=exclusive"}).config;
  ASSERT_EQ(config.places.size(), 1U);
  EXPECT_FALSE(config.places[0].cpus.empty());
  EXPECT_THAT(Launch({"--nproc-per-node=2"}).config.places, IsEmpty());
  EXPECT_THAT(UsageError({"--nproc-per-node=1024", "--numa-binding=exclusive"}),
              HasSubstr("--numa-binding=exclusive: NUMA node "));
  EXPECT_THAT(UsageError({"--numa-binding=near"}), HasSubstr("--numa-binding=near: must be"));
}

// ---- supervision ----------------------------------------------------------------

TEST_F(ParseLine, Supervision_IsApplied) {
  const LaunchConfig config =
      Launch({"--max-restarts=3", "--shutdown-timeout=0.5", "--role=trainer"}).config;
  EXPECT_EQ(config.max_restarts, 3);
  EXPECT_EQ(config.shutdown_timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(config.role, "trainer");
  EXPECT_EQ(Launch({"--shutdown-timeout=0"}).config.shutdown_timeout, Duration::zero());
}

TEST_F(ParseLine, BadSupervision_IsRefused) {
  EXPECT_THAT(UsageError({"--max-restarts=-1"}), HasSubstr("--max-restarts=-1"));
  EXPECT_THAT(UsageError({"--shutdown-timeout=-1"}), HasSubstr("--shutdown-timeout=-1"));
  EXPECT_THAT(UsageError({"--monitor-interval=0"}), HasSubstr("--monitor-interval=0"));
  EXPECT_THAT(UsageError({"--start-method=thread"}), HasSubstr("spawn, fork or forkserver"));
  EXPECT_THAT(UsageError({"--role="}), HasSubstr("--role="));
}

TEST_F(ParseLine, FlagsWithoutEffect_AreTakenAndSaidAtDebugLevel) {
  const LaunchCommand command = Launch({"--monitor-interval=5", "--start-method=fork"});
  ASSERT_EQ(command.notices.size(), 2U);
  EXPECT_EQ(command.notices[0].level, Notice::Level::kDebug);
  EXPECT_THAT(command.notices[0].text, HasSubstr("--monitor-interval has no effect"));
}

// ---- output -----------------------------------------------------------------------

TEST_F(ParseLine, Output_IsApplied) {
  around_.environment["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "${rank}: ";
  const LaunchConfig config =
      Launch({"-r", "0:3", "-t2", "--local-ranks-filter=0,1", "--log-dir=logs", "-v"}).config;
  EXPECT_EQ(config.redirects.of(0), kBothStreams);
  EXPECT_EQ(config.tee.of(5), kStderr);
  EXPECT_THAT(config.local_ranks_filter, ElementsAre(0, 1));
  EXPECT_EQ(config.log_dir, dir_ + "/cwd/logs");
  EXPECT_EQ(config.log_line_prefix_template, "${rank}: ");
  EXPECT_TRUE(config.verbose);
}

TEST_F(ParseLine, LogLinePrefix_UnknownNameIsRefused) {
  EXPECT_THAT(UsageError({"--log-line-prefix-template=${host}"}), HasSubstr("${hostname}"));
}

TEST_F(ParseLine, StreamMapOfRanksElsewhere_IsANotice) {
  EXPECT_THAT(TextsOf(Launch({"--nproc-per-node=2", "--tee=0:3,2:1"}).notices),
              Contains(AllOf(HasSubstr("--tee names local rank 2"), HasSubstr("0 to 1"))));
  EXPECT_THAT(TextsOf(Launch({"--nproc-per-node=2", "--tee=0:3,1:1"}).notices), IsEmpty());
}

TEST_F(ParseLine, LongFlagWithOneDash_IsRefused) {
  EXPECT_THAT(UsageError({"-tee=3"}), HasSubstr("--tee=ee=3: must be"));
}

TEST_F(ParseLine, LogDir_AFileIsRefusedAndDevNullIsNot) {
  const std::string file = WriteFile("file", "", false);
  EXPECT_THAT(UsageError({"--log-dir=" + file}), HasSubstr("a file is there"));
  const LaunchConfig no_files = Launch({"--log-dir=/dev/null", "-r", "3"}).config;
  EXPECT_EQ(no_files.log_dir, "/dev/null");
  EXPECT_EQ(no_files.redirects.all, kNoStream) << "the console has what no file takes";
  EXPECT_EQ(Launch({"--log-dir=" + dir_}).config.log_dir, dir_);
}

TEST_F(ParseLine, VerboseAndQuiet_ContradictEachOther) {
  EXPECT_THAT(UsageError({"-vq"}), HasSubstr("contradict"));
}

TEST_F(ParseLine, FilterThatShowsNobody_IsWarnedOf) {
  EXPECT_THAT(TextsOf(Launch({"--local-ranks-filter=4", "--nproc-per-node=4"}).notices),
              Contains(HasSubstr("shows no worker")));
}

// ---- the plan -----------------------------------------------------------------------

TEST_F(ParseLine, PlanFlags_AreRead) {
  const plan::Request request =
      Launch({"--nproc-per-node=2", "--global-batch-size=128", "--max-micro-batch-size=48",
              "--base-lr=1e-3", "--base-batch-size=32", "--lr-scaling=linear", "--warmup-steps=0"})
          .config.plan;
  EXPECT_EQ(request.global_batch_size, 128);
  EXPECT_EQ(request.max_micro_batch_size, 48);
  EXPECT_EQ(request.base_lr, 1e-3);
  EXPECT_EQ(request.base_batch_size, 32);
  EXPECT_EQ(request.lr_scaling, plan::LrScaling::kLinear);
  EXPECT_EQ(request.warmup_steps, 0);
  EXPECT_FALSE(request.micro_batch_size.has_value());
}

TEST_F(ParseLine, PlanThatDoesNotMultiplyOut_IsRefusedBeforeAnythingStarts) {
  EXPECT_THAT(UsageError({"--nproc-per-node=4", "--global-batch-size=100", "--micro-batch-size=8",
                          "--grad-accum-steps=2"}),
              AllOf(HasSubstr("100"), HasSubstr("8")));
}

TEST_F(ParseLine, PlanOfSeveralNodes_IsLeftToTheRound) {
  EXPECT_EQ(Launch({"--nnodes=2", "--rdzv-endpoint=h", "--nproc-per-node=3",
                    "--global-batch-size=100", "--micro-batch-size=10"})
                .config.plan.global_batch_size,
            100);
}

TEST_F(ParseLine, RateWithoutBatch_IsLeftToTheProgramsDefaults) {
  EXPECT_EQ(Launch({"--lr-scaling=linear", "--base-lr=0.1"}).config.plan.base_lr, 0.1);
  EXPECT_EQ(Launch({"--lr-scaling=linear", "--global-batch-size=8", "--micro-batch-size=8"})
                .config.plan.lr_scaling,
            plan::LrScaling::kLinear);
}

TEST_F(ParseLine, RateThatNoProgramCanMend_IsRefusedWhateverTheNodes) {
  EXPECT_THAT(UsageError({"--nnodes=1:4", "--rdzv-endpoint=a:1", "--rdzv-id=x", "--lr-decay=cosine",
                          "--lr-decay-factor=0.5"}),
              HasSubstr("--lr-decay-factor=0.5 with --lr-decay=cosine"));
  EXPECT_THAT(UsageError({"--lr-scaling=linear", "--scale-adam"}),
              HasSubstr("nearest: --lr-scaling=sqrt"));
  EXPECT_THAT(UsageError({"--warmup-ratio=0.1", "--warmup-steps=5"}),
              HasSubstr("are lengths of the one warm-up"));
}

TEST_F(ParseLine, BadPlanValues_NameTheFlag) {
  EXPECT_THAT(UsageError({"--global-batch-size=0"}),
              HasSubstr("--global-batch-size=0: must be a whole number of 1 or more"));
  EXPECT_THAT(UsageError({"--grad-accum-steps=0"}), HasSubstr("--grad-accum-steps=0"));  // 65
  EXPECT_THAT(UsageError({"--base-lr=0"}), HasSubstr("--base-lr=0: must be a number above 0"));
  EXPECT_THAT(UsageError({"--lr-scaling=cubic"}),
              HasSubstr("--lr-scaling=cubic: must be none, linear or sqrt"));
  EXPECT_THAT(UsageError({"--warmup-steps=-1"}), HasSubstr("--warmup-steps=-1"));
}

// ---- workers: variables, binding -----------------------------------------------------

TEST_F(ParseLine, Env_IsExactlyTheNamedFrameworks) {
  EXPECT_TRUE(Launch({}).config.frameworks.torch);
  const Frameworks frameworks = Launch({"--env=jax,mpi"}).config.frameworks;
  EXPECT_FALSE(frameworks.torch);
  EXPECT_FALSE(frameworks.tensorflow);
  EXPECT_TRUE(frameworks.jax);
  EXPECT_TRUE(frameworks.mpi);
  EXPECT_THAT(UsageError({"--env=torch,theano"}),
              HasSubstr("--env=torch,theano: must be of torch, tensorflow, jax and mpi"));
}

TEST_F(ParseLine, NumaBinding_IsOneOfTorchrunsKinds) {
  EXPECT_EQ(Launch({}).config.numa_binding, NumaBinding::kNone);
  EXPECT_EQ(Launch({"--numa_binding=core-complex"}).config.numa_binding, NumaBinding::kCoreComplex);
  EXPECT_THAT(UsageError({"--numa-binding=numa"}), HasSubstr("must be none, node, socket"));
}

TEST_F(ParseLine, Switches_ComeFromTheEnvironmentToo) {
  around_.environment["PET_VIRTUAL_LOCAL_RANK"] = "1";
  around_.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  const LaunchConfig config = Launch({}).config;
  EXPECT_TRUE(config.virtual_local_rank);
  EXPECT_TRUE(config.worker_store);
  around_.environment["PET_VIRTUAL_LOCAL_RANK"] = "0";
  EXPECT_FALSE(Launch({}).config.virtual_local_rank);
}

// As PyTorch reads it: "true" means nothing to it, and must not mean more here.
TEST_F(ParseLine, SwitchOfPyTorchsOwnVariable_IsOnByOneOnly) {
  for (const char* const off : {"0", "2", "true", "yes", " 1", ""}) {
    around_.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = off;
    EXPECT_FALSE(Launch({}).config.worker_store) << off;
    EXPECT_TRUE(Launch({"--worker-store"}).config.worker_store) << off;
  }
  around_.environment["PET_WORKER_STORE"] = "1";
  EXPECT_TRUE(Launch({}).config.worker_store);
  around_.environment["PET_WORKER_STORE"] = "0";
  around_.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  EXPECT_FALSE(Launch({}).config.worker_store);
}

// ---- torchrun's others ----------------------------------------------------------------

TEST_F(ParseLine, SignalsToHandle_AreReadByName) {
  EXPECT_THAT(Launch({"--signals-to-handle=SIGTERM,usr1"}).config.stop_signals,
              ElementsAre(SIGTERM, SIGUSR1));
  EXPECT_THAT(Launch({}).config.stop_signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(UsageError({"--signals-to-handle=SIGKILL"}),
              HasSubstr("--signals-to-handle=SIGKILL"));
}

TEST_F(ParseLine, DuplicateFilters_AreTexts) {
  const LaunchConfig config =
      Launch({"--duplicate-stdout-filters=loss,a,,b", "--duplicate-stderr-filters="}).config;
  EXPECT_THAT(config.duplicate_stdout_filters, ElementsAre("loss", "a,b"));
  EXPECT_THAT(config.duplicate_stderr_filters, ElementsAre());
}

TEST_F(ParseLine, EventLogHandler_IsNullOrConsole) {
  EXPECT_TRUE(Launch({"--event-log-handler=console"}).config.event_log);
  EXPECT_FALSE(Launch({"--event-log-handler=null"}).config.event_log);
  EXPECT_THAT(UsageError({"--event-log-handler=file"}), HasSubstr("must be null"));
}

TEST_F(ParseLine, ExitBarrierTimeout_IsCheckedAndHasNoEffect) {
  Launch({"--exit-barrier-timeout=300.0"});
  EXPECT_THAT(UsageError({"--exit-barrier-timeout=-1"}), HasSubstr("--exit-barrier-timeout=-1"));
}

TEST_F(ParseLine, LogsSpecs_AreRefusedWithTheWayToDoIt) {
  EXPECT_THAT(UsageError({"--logs-specs=mine"}),
              AllOf(HasSubstr("--logs-specs=mine"), HasSubstr("--log-dir")));
}

// ---- slips ------------------------------------------------------------------------------

TEST_F(ParseLine, UnknownFlag_RunsNothing) {
  EXPECT_THAT(UsageError({"--max-restart-count=1"}), HasSubstr("no such flag"));
}

TEST_F(ParseLine, UnknownPetVariable_IsWarnedOf) {
  around_.environment["PET_MAX_RESTART"] = "3";
  EXPECT_THAT(TextsOf(Launch({}).notices),
              Contains(AllOf(HasSubstr("PET_MAX_RESTART is set"), HasSubstr("PET_MAX_RESTARTS?"))));
}

TEST_F(ParseLine, PetVariableOfAFlagThatReadsNone_DoesNotSuggestItself) {
  around_.environment["PET_HELP"] = "1";
  EXPECT_THAT(TextsOf(Launch({}).notices),
              Contains(AllOf(HasSubstr("PET_HELP is set"), Not(HasSubstr("did you mean")))));
}

TEST_F(ParseLine, PlainRun_HasNothingToSay) {
  EXPECT_THAT(Launch({"--nproc-per-node=2"}).notices, IsEmpty());
}

TEST_F(ParseLine, ProgramModes_ContradictEachOther) {
  EXPECT_THAT(UsageError({"-m", "--no-python"}),
              HasSubstr("--module and --no-python contradict each other"));
}

TEST_F(ParseLine, SwitchByVariable_IsHonoured) {
  around_.environment["PET_NO_PYTHON"] = "1";
  const std::string script = WriteFile("cwd/x.py", "#!/bin/sh\n", true);
  EXPECT_THAT(Launch({script}).config.argv, ElementsAre(script));
  around_.environment["PET_NO_PYTHON"] = "yes please";
  EXPECT_THAT(UsageError({}), HasSubstr("PET_NO_PYTHON=yes please: must be 0 or 1"));
}

TEST(ExitCodeFor, EachKindOfError_HasItsCode) {
  EXPECT_EQ(ExitCodeFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeFor(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeFor(absl::PermissionDeniedError("")), 126);
  EXPECT_EQ(ExitCodeFor(absl::NotFoundError("")), 127);
  EXPECT_EQ(ExitCodeFor(absl::ResourceExhaustedError("")), 1);
}

TEST(Surroundings, OfThisProcess_AreItsOwn) {
  const std::array<const char*, 4> environment = {"A=1", "B=x=y", "C=", nullptr};
  const Surroundings around = SurroundingsOfThisProcess(environment.data());
  EXPECT_EQ(around.environment, (Environment{{"A", "1"}, {"B", "x=y"}, {"C", ""}}));
  EXPECT_EQ(around.places.cwd, std::filesystem::current_path().string());
  EXPECT_TRUE(std::filesystem::exists(around.places.self_dir + "/cli_test"));
}

TEST(ParseCommandLine, Argv_SkipsTheProgramsOwnName) {
  const std::array<const char*, 3> argv = {"ddlaunch", "--version", nullptr};
  const auto result = ParseCommandLine(2, argv.data(), Surroundings{});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(std::holds_alternative<PrintAndExit>(*result));
}

}  // namespace
}  // namespace ddl::cli
