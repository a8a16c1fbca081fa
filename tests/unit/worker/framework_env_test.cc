// What each framework's programs find, and what of the parent's they do not.
#include "launcher/worker/framework_env.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/binding/node_devices.h"
#include "launcher/worker/worker_env.h"

namespace ddl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

// Node 1 of 2, two workers on each.
RoundInfo Round() {
  RoundInfo round;
  round.node_rank = 1;
  round.num_nodes = 2;
  round.first_rank = 2;
  round.nproc = 2;
  round.world_size = 4;
  round.master_addr = "10.0.0.1";
  round.master_port = 29501;
  round.first_worker_port = 11;
  round.worker_addresses = std::make_shared<const std::vector<std::string>>(
      std::vector<std::string>{"10.0.0.1:11", "10.0.0.1:12", "[fd00::2]:13", "[fd00::2]:14"});
  return round;
}

RoundInfo Alone() {
  RoundInfo round;
  round.master_addr = "127.0.0.1";
  round.first_worker_port = 11;
  return round;
}

plan::Plan SomePlan() {
  plan::Plan plan;
  plan.world_size = 4;
  plan.global_batch_size = 64;
  plan.micro_batch_size = 8;
  plan.grad_accum_steps = 2;
  return plan;
}

LaunchConfig With(bool Frameworks::*chosen) {
  LaunchConfig config;
  config.frameworks.torch = false;
  config.frameworks.*chosen = true;
  return config;
}

TEST(FrameworkVariables, TorchWithoutPlan_None) {
  EXPECT_THAT(FrameworkVariables({}, LaunchConfig{}, Round(), 0), IsEmpty());
}

TEST(FrameworkVariables, TorchWithPlan_ItsAccumulationReachesAccelerate) {
  RoundInfo round = Round();
  round.plan = SomePlan();
  EXPECT_THAT(FrameworkVariables({}, LaunchConfig{}, round, 0),
              ElementsAre(Pair("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2")));
}

// It would take the most micro-steps of a rank, each as large as the largest, on all.
TEST(FrameworkVariables, TorchWithUnevenShares_AccelerateIsToldNothing) {
  RoundInfo round = Round();
  plan::Request request;
  request.global_batch_size = 48;
  request.max_micro_batch_size = 4;
  request.batch_policy = plan::BatchPolicy::kExact;
  round.plan = plan::Solve(request, 5).value();
  ASSERT_FALSE(round.plan->even());
  EXPECT_THAT(FrameworkVariables({}, LaunchConfig{}, round, 0), IsEmpty());
  EXPECT_EQ(OverruledByPlan({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4"}, LaunchConfig{}, round),
            "");
}

TEST(FrameworkVariables, NoAcceleratorOnTheNode_AccelerateIsToldUnlessTheUserSaidSomething) {
  RoundInfo round = Round();
  round.devices.no_accelerator = true;
  EXPECT_THAT(FrameworkVariables({}, LaunchConfig{}, round, 0),
              ElementsAre(Pair("ACCELERATE_USE_CPU", "true")));
  EXPECT_THAT(FrameworkVariables({"ACCELERATE_USE_CPU=false"}, LaunchConfig{}, round, 0),
              IsEmpty());
  round.world_size = 1;
  EXPECT_THAT(FrameworkVariables({}, LaunchConfig{}, round, 0), IsEmpty());
}

TEST(FrameworkVariables, TensorFlow_TheClusterAndThisTask) {
  EXPECT_THAT(
      FrameworkVariables({}, With(&Frameworks::tensorflow), Round(), 1),
      ElementsAre(Pair("TF_CONFIG",
                       R"({"cluster":{"worker":["10.0.0.1:11","10.0.0.1:12","[fd00::2]:13",)"
                       R"("[fd00::2]:14"]},"task":{"index":3,"type":"worker"}})")));
}

TEST(FrameworkVariables, Jax_RankZerosOwnPortAndThisProcess) {
  EXPECT_THAT(
      FrameworkVariables({}, With(&Frameworks::jax), Round(), 1),
      ElementsAre(Pair("JAX_COORDINATOR_ADDRESS", "10.0.0.1:11"), Pair("JAX_NUM_PROCESSES", "4"),
                  Pair("JAX_PROCESS_ID", "3"), Pair("OMPI_MCA_orte_hnp_uri", "ddlaunch"),
                  Pair("OMPI_COMM_WORLD_RANK", "3"), Pair("OMPI_COMM_WORLD_SIZE", "4"),
                  Pair("OMPI_COMM_WORLD_LOCAL_RANK", "1"), Pair("JAX_LOCAL_DEVICE_IDS", "1")));
}

TEST(FrameworkVariables, JaxOnIpv6_AddressInBrackets) {
  RoundInfo round = Round();
  round.master_addr = "fd00::1";
  EXPECT_THAT(FrameworkVariables({}, With(&Frameworks::jax), round, 1),
              Contains(Pair("JAX_COORDINATOR_ADDRESS", "[fd00::1]:11")));
}

TEST(FrameworkVariables, JaxOnOneNode_ListensOnLoopbackOnly) {
  EXPECT_THAT(FrameworkVariables({}, With(&Frameworks::jax), Alone(), 0),
              Contains(Pair("JAX_COORDINATOR_BIND_ADDRESS", "127.0.0.1:11")));
}

TEST(FrameworkVariables, JaxDevices_OneEachOrAllForOneThatIsAloneOnItsNode) {
  const auto devices = [](const std::vector<std::string>& parent, const LaunchConfig& config,
                          const RoundInfo& round) {
    std::string found = "unset";
    for (const auto& [name, value] : FrameworkVariables(parent, config, round, 0)) {
      found = name == "JAX_LOCAL_DEVICE_IDS" ? value : found;
    }
    return found;
  };
  LaunchConfig config = With(&Frameworks::jax);
  RoundInfo round = Round();
  round.nproc = 1;
  round.devices.num_gpus = 3;
  EXPECT_EQ(devices({}, config, round), "0,1,2");
  EXPECT_EQ(devices({"JAX_LOCAL_DEVICE_IDS=2"}, config, round), "2");
  round.devices.num_gpus = 0;
  EXPECT_EQ(devices({}, config, round), "unset");
  round.nproc = 2;
  EXPECT_EQ(devices({"JAX_LOCAL_DEVICE_IDS=2"}, config, round), "0");
  config.virtual_local_rank = true;
  EXPECT_EQ(devices({}, config, round), "0");
}

TEST(FrameworkVariables, Mpi_WhatProgramsReadTheirRankFrom) {
  EXPECT_THAT(
      FrameworkVariables({}, With(&Frameworks::mpi), Round(), 1),
      ElementsAre(Pair("OMPI_COMM_WORLD_RANK", "3"), Pair("OMPI_COMM_WORLD_SIZE", "4"),
                  Pair("OMPI_COMM_WORLD_LOCAL_RANK", "1"), Pair("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                  Pair("OMPI_COMM_WORLD_NODE_RANK", "1"), Pair("HOROVOD_RANK", "3"),
                  Pair("HOROVOD_SIZE", "4"), Pair("HOROVOD_LOCAL_RANK", "1"),
                  Pair("HOROVOD_LOCAL_SIZE", "2")));
}

TEST(FrameworkVariables, AllAtOnce_EachNameOnce) {
  LaunchConfig config;
  config.frameworks = {.torch = true, .tensorflow = true, .jax = true, .mpi = true};
  std::vector<std::string> names;
  for (const auto& [name, value] : FrameworkVariables({}, config, Round(), 0)) {
    EXPECT_THAT(names, Not(Contains(name)));
    names.push_back(name);
  }
  EXPECT_THAT(names, Contains("TF_CONFIG"));
  EXPECT_THAT(names, Contains("HOROVOD_RANK"));
  EXPECT_THAT(names, Contains("JAX_PROCESS_ID"));
}

// As srun and Open MPI's mpirun set them.
const std::vector<std::string>& OtherLaunchersParent() {
  static const auto& parent = *new std::vector<std::string>{
      "PATH=/bin",         "SLURM_PROCID=stale",          "SLURM_LOCALID=stale",
      "SLURM_GTIDS=stale", "OMPI_COMM_WORLD_RANK=stale",  "OMPI_MCA_orte_hnp_uri=stale",
      "PMIX_RANK=stale",   "OMPI_MCA_ess=stale",          "PMI_RANK=stale",
      "TF_CONFIG=stale",   "HOROVOD_RANK=stale",          "JAX_PROCESS_ID=stale",
      "SLURM_JOB_ID=kept", "SLURM_JOB_NODELIST=kept",     "OMPI_MCA_btl=kept",
      "PMIX_MCA_gds=kept", "JAX_COORDINATOR_ADDRESS=set", "HOROVOD_CACHE_CAPACITY=kept"};
  return parent;
}

TEST(WorkerEnvironment, IdentityGivenByAnotherLauncher_ReachesNoWorkerOfAWorld) {
  const auto environment =
      WorkerEnvironment(OtherLaunchersParent(), LaunchConfig{}, Round(), 0, "", 1);
  EXPECT_THAT(environment, Not(Contains(HasSubstr("stale"))));
  for (const char* const kept :
       {"SLURM_JOB_ID=kept", "SLURM_JOB_NODELIST=kept", "OMPI_MCA_btl=kept", "PMIX_MCA_gds=kept",
        "HOROVOD_CACHE_CAPACITY=kept", "JAX_COORDINATOR_ADDRESS=set"}) {
    EXPECT_THAT(environment, Contains(kept));
  }
}

// As sbatch sets them; srun in a worker reads them.
TEST(WorkerEnvironment, CountsOfAnAllocation_AreKeptButWhereProgramsTakeThemForTheWorld) {
  const std::vector<std::string> counts = {"SLURM_NTASKS=8", "SLURM_NPROCS=8",
                                           "SLURM_NTASKS_PER_NODE=4", "SLURM_TASKS_PER_NODE=4(x2)"};
  for (const auto chosen : {&Frameworks::torch, &Frameworks::tensorflow}) {
    const auto environment = WorkerEnvironment(counts, With(chosen), Round(), 0, "", 1);
    for (const std::string& count : counts) {
      EXPECT_THAT(environment, Contains(count));
    }
  }
  for (const auto chosen : {&Frameworks::jax, &Frameworks::mpi}) {
    EXPECT_THAT(WorkerEnvironment(counts, With(chosen), Round(), 0, "", 1),
                Not(Contains(StartsWith("SLURM_"))));
  }
}

TEST(WorkerEnvironment, WorkerAloneInItsJob_KeepsWhatItsParentHas) {
  const auto environment =
      WorkerEnvironment(OtherLaunchersParent(), LaunchConfig{}, Alone(), 0, "", 1);
  for (const std::string& entry : OtherLaunchersParent()) {
    EXPECT_THAT(environment, Contains(entry));
  }
}

TEST(WorkerEnvironment, ChosenFramework_NothingStaleAlsoForOneThatIsAlone) {
  for (const auto chosen : {&Frameworks::jax, &Frameworks::mpi}) {
    const auto environment =
        WorkerEnvironment(OtherLaunchersParent(), With(chosen), Alone(), 0, "", 1);
    for (const char* const name : {"OMPI_", "PMIX_RANK", "SLURM_PROCID"}) {
      EXPECT_THAT(environment,
                  Not(Contains(::testing::AllOf(StartsWith(name), HasSubstr("stale")))));
    }
  }
}

TEST(KeptFromWorkers, NamesWhatIsDropped) {
  EXPECT_THAT(
      KeptFromWorkers({"A=1", "SLURM_PROCID=0", "B=2", "PMIX_RANK=0"}, Frameworks{}, Round()),
      ElementsAre("SLURM_PROCID", "PMIX_RANK"));
  EXPECT_THAT(KeptFromWorkers({"SLURM_PROCID=0"}, Frameworks{}, Alone()), IsEmpty());
}

TEST(OverruledByPlan, OtherAccumulationInTheEnvironment_IsSaid) {
  RoundInfo round = Round();
  const std::vector<std::string> parent = {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4"};
  EXPECT_EQ(OverruledByPlan(parent, LaunchConfig{}, round), "");
  round.plan = SomePlan();
  const std::string words = OverruledByPlan(parent, LaunchConfig{}, round);
  EXPECT_THAT(words, HasSubstr("ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4"));
  EXPECT_THAT(words, HasSubstr("the workers get 2"));
  EXPECT_EQ(OverruledByPlan({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2"}, LaunchConfig{}, round),
            "");
  EXPECT_EQ(OverruledByPlan(parent, With(&Frameworks::jax), round), "");
}

TEST(CheckFrameworks, WhatTheyNeedDidNotCome_IsSaid) {
  RoundInfo round = Round();
  EXPECT_TRUE(CheckFrameworks(With(&Frameworks::tensorflow).frameworks, round).ok());
  round.worker_addresses = nullptr;
  EXPECT_TRUE(CheckFrameworks(With(&Frameworks::jax).frameworks, round).ok());
  EXPECT_THAT(CheckFrameworks(With(&Frameworks::tensorflow).frameworks, round).message(),
              HasSubstr("120 KiB"));
  round.first_worker_port = 0;
  EXPECT_THAT(CheckFrameworks(With(&Frameworks::jax).frameworks, round).message(),
              HasSubstr("older ddlaunch"));
  EXPECT_TRUE(CheckFrameworks(Frameworks{}, round).ok());
}

TEST(NeedsWorkerPorts, OfTensorFlowAndJax) {
  EXPECT_FALSE(NeedsWorkerPorts(Frameworks{}));
  EXPECT_FALSE(NeedsWorkerPorts(With(&Frameworks::mpi).frameworks));
  EXPECT_TRUE(NeedsWorkerPorts(With(&Frameworks::tensorflow).frameworks));
  EXPECT_TRUE(NeedsWorkerPorts(With(&Frameworks::jax).frameworks));
}

TEST(LookAtDevices, NoneOnlyWhereNoFileSaysOtherwise) {
  const std::filesystem::path directory = std::filesystem::path(::testing::TempDir()) / "ddl_dev";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory / "dri");
  DeviceSources sources;
  sources.device_dir = directory.string();
  const auto touch = [&](const char* name) { std::ofstream(directory / name) << ""; };
  touch("null");
  touch("dri/card0");  // a screen
  EXPECT_TRUE(LookAtDevices({}, sources).no_accelerator);
  EXPECT_FALSE(LookAtDevices({"CUDA_VISIBLE_DEVICES=0"}, sources).no_accelerator);
  EXPECT_EQ(LookAtDevices({"CUDA_VISIBLE_DEVICES=0"}, sources).num_gpus, 1);
  touch("nvidia0");
  EXPECT_EQ(LookAtDevices({}, sources).num_gpus, 1);
  EXPECT_EQ(LookAtDevices({"CUDA_VISIBLE_DEVICES="}, sources).num_gpus, 0);
  std::filesystem::remove(directory / "nvidia0");
  for (const char* const name : {"kfd", "dri/renderD128", "accel0", "davinci0"}) {
    touch(name);
    EXPECT_FALSE(LookAtDevices({}, sources).no_accelerator) << name;
    std::filesystem::remove(directory / name);
  }
  EXPECT_TRUE(LookAtDevices({}, sources).no_accelerator);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace ddl
