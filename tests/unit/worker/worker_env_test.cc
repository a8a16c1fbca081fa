// The whole environment of a worker, name by name.
#include "launcher/worker/worker_env.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

LaunchConfig Config() {
  LaunchConfig config;
  config.role = "trainer";
  return config;
}

// Node 1 of 2, four workers here behind two on node 0.
RoundInfo Round() {
  RoundInfo round;
  round.round = 7;
  round.restart_count = 1;
  round.max_restarts = 3;
  round.node_rank = 1;
  round.num_nodes = 2;
  round.first_rank = 2;
  round.nproc = 4;
  round.world_size = 6;
  round.master_addr = "10.0.0.1";
  round.master_port = 29501;
  round.gateway = "unix:/run/gateway";
  round.job_id = "job-a";
  return round;
}

plan::Plan SomePlan() {
  plan::Plan plan;
  plan.world_size = 6;
  plan.global_batch_size = 96;
  plan.micro_batch_size = 8;
  plan.grad_accum_steps = 2;
  plan.warmup_steps = 5;
  return plan;
}

TEST(WorkerEnvironment, EmptyParent_ExactlyTheseInThisOrder) {
  EXPECT_THAT(
      WorkerEnvironment({}, Config(), Round(), 3, "/logs/3/error.json", 16),
      ElementsAre("RANK=5", "LOCAL_RANK=3", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1",
                  "GROUP_WORLD_SIZE=2", "NODE_RANK=1", "ROLE_NAME=trainer", "ROLE_RANK=5",
                  "ROLE_WORLD_SIZE=6", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29501",
                  "TORCHELASTIC_RESTART_COUNT=1", "TORCHELASTIC_MAX_RESTARTS=3",
                  "TORCHELASTIC_RUN_ID=job-a", "TORCHELASTIC_USE_AGENT_STORE=True",
                  "TORCHELASTIC_ERROR_FILE=/logs/3/error.json", "DDL_GATEWAY=unix:/run/gateway",
                  "DDL_LOCAL_RANK=3", "DDL_ROUND=7", "DDL_JOB_ID=job-a",
                  "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "OMP_NUM_THREADS=4"));
}

TEST(WorkerEnvironment, Plan_ItsNumbersAndHash) {
  RoundInfo round = Round();
  round.plan = SomePlan();
  const auto environment = WorkerEnvironment({}, Config(), round, 0, "", 1);
  EXPECT_THAT(environment, Contains("DDL_GLOBAL_BATCH_SIZE=96"));
  EXPECT_THAT(environment, Contains("DDL_MICRO_BATCH_SIZE=8"));
  EXPECT_THAT(environment, Contains("DDL_GRAD_ACCUM_STEPS=2"));
  EXPECT_THAT(environment, Contains("DDL_WARMUP_STEPS=5"));
  EXPECT_THAT(environment, Contains("DDL_PLAN_HASH=" + plan::Hash(*round.plan)));
  EXPECT_THAT(environment, Not(Contains(StartsWith("DDL_LEARNING_RATE"))));
}

TEST(WorkerEnvironment, UnevenPlan_EachRankItsOwnShare) {
  RoundInfo round = Round();  // ranks 2 to 5 of 6
  round.plan = SomePlan();
  round.plan->global_batch_size = 94;
  EXPECT_THAT(WorkerEnvironment({}, Config(), round, 1, "", 1), Contains("DDL_RANK_BATCH_SIZE=16"));
  EXPECT_THAT(WorkerEnvironment({}, Config(), round, 2, "", 1), Contains("DDL_RANK_BATCH_SIZE=15"));
}

TEST(WorkerEnvironment, Schedule_WhatIsKnownOfIt) {
  RoundInfo round = Round();
  round.plan = SomePlan();
  const auto bare = WorkerEnvironment({}, Config(), round, 0, "", 1);
  EXPECT_THAT(bare, Contains("DDL_LR_DECAY=constant"));
  for (const char* const name : {"DDL_TOTAL", "DDL_ADAM", "DDL_LR_DECAY_", "DDL_WARMUP_START"}) {
    EXPECT_THAT(bare, Not(Contains(StartsWith(name))));
  }
  round.plan->warmup_samples = 480;
  round.plan->warmup_start_lr = 0.01;
  round.plan->total_samples = 9600;
  round.plan->total_steps = 100;
  round.plan->lr_decay = plan::LrDecay::kStep;
  round.plan->lr_decay_samples = 960;
  round.plan->lr_decay_factor = 0.1;
  round.plan->adam = {0.9, 0.98, 1e-8};
  EXPECT_THAT(WorkerEnvironment({}, Config(), round, 0, "", 1),
              IsSupersetOf({"DDL_WARMUP_SAMPLES=480", "DDL_WARMUP_START_LR=0.01",
                            "DDL_TOTAL_SAMPLES=9600", "DDL_TOTAL_STEPS=100", "DDL_LR_DECAY=step",
                            "DDL_LR_DECAY_SAMPLES=960", "DDL_LR_DECAY_FACTOR=0.1",
                            "DDL_ADAM_BETA1=0.9", "DDL_ADAM_BETA2=0.98", "DDL_ADAM_EPS=1e-08"}));
}

TEST(WorkerEnvironment, LearningRate_ShortestTextThatReadsBack) {
  const std::vector<std::pair<double, std::string>> cases = {
      {0.1, "0.1"}, {1e-5, "1e-05"}, {0.30000000000000004, "0.30000000000000004"}, {2.0, "2"}};
  for (const auto& [rate, text] : cases) {
    RoundInfo round = Round();
    round.plan = SomePlan();
    round.plan->learning_rate = rate;
    EXPECT_THAT(WorkerEnvironment({}, Config(), round, 0, "", 1),
                Contains("DDL_LEARNING_RATE=" + text));
    EXPECT_EQ(std::stod(text), rate);
  }
}

TEST(WorkerEnvironment, StaleValuesOfTheParent_DoNotLeakThrough) {
  const std::vector<std::string> parent = {"PATH=/bin",
                                           "RANK=77",
                                           "WORLD_SIZE=88",
                                           "LOCAL_RANK=99",
                                           "MASTER_ADDR=stale",
                                           "RANK=78",
                                           "DDL_PLAN_HASH=stale",
                                           "DDL_RDZV_TOKEN=stale",
                                           "DDL_LEARNING_RATE=9",
                                           "DDL_RANK_BATCH_SIZE=99",
                                           "DDL_TOTAL_SAMPLES=99",
                                           "DDL_LR_DECAY_FACTOR=stale",
                                           "DDL_ADAM_EPS=stale",
                                           "DDL_GATEWAY=stale",
                                           "DDL_ROUND=99",
                                           "ROLE_RANK=99",
                                           "TORCHELASTIC_RUN_ID=stale",
                                           "GROUP_RANK=99",
                                           "NODE_RANK=99",
                                           "RANKING=kept",
                                           "DDL_GRAD_ACCUM_STEPS=99",
                                           "DDL_LOCAL_RANK=99",
                                           "EMPTY=",
                                           "NO_EQUALS"};
  const auto environment = WorkerEnvironment(parent, Config(), Round(), 0, "", 1);
  for (const std::string& entry : environment) {
    EXPECT_EQ(entry.find("stale"), std::string::npos) << entry;
    EXPECT_EQ(entry.find("99"), std::string::npos) << entry;
  }
  EXPECT_EQ(std::count_if(environment.begin(), environment.end(),
                          [](const auto& entry) { return entry.rfind("RANK=", 0) == 0; }),
            1);
  EXPECT_THAT(environment, Contains("PATH=/bin"));
  EXPECT_THAT(environment, Contains("RANKING=kept"));
  EXPECT_THAT(environment, Contains("EMPTY="));
  EXPECT_THAT(environment, Contains("NO_EQUALS"));
}

TEST(WorkerEnvironment, OmpThreads_ShareOfCpusUnlessGivenOrAlone) {
  RoundInfo round = Round();
  const auto with = [&round](std::int32_t nproc, std::int32_t cpus,
                             const std::vector<std::string>& parent) {
    round.nproc = nproc;
    return WorkerEnvironment(parent, Config(), round, 0, "", cpus);
  };
  EXPECT_THAT(with(2, 8, {}), Contains("OMP_NUM_THREADS=4"));
  EXPECT_THAT(with(3, 8, {}), Contains("OMP_NUM_THREADS=2"));
  EXPECT_THAT(with(4, 2, {}), Contains("OMP_NUM_THREADS=1"));
  EXPECT_THAT(with(1, 8, {}), Not(Contains(StartsWith("OMP_NUM_THREADS"))));
  EXPECT_THAT(with(2, 8, {"OMP_NUM_THREADS=3"}), Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(with(1, 8, {"OMP_NUM_THREADS=3"}), Contains("OMP_NUM_THREADS=3"));
}

TEST(WorkerEnvironment, DeviceListOfTheUser_Untouched) {
  const auto environment = WorkerEnvironment(
      {"CUDA_VISIBLE_DEVICES=GPU-1a2b,MIG-3c4d", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0"}, Config(),
      Round(), 0, "", 1);
  EXPECT_THAT(environment, Contains("CUDA_VISIBLE_DEVICES=GPU-1a2b,MIG-3c4d"));
  EXPECT_THAT(environment, Contains("TORCH_NCCL_ASYNC_ERROR_HANDLING=0"));
  EXPECT_THAT(environment, Not(Contains("TORCH_NCCL_ASYNC_ERROR_HANDLING=1")));
}

TEST(WorkerEnvironment, OneGpuEach_ReplacesTheListAndTheLocalRank) {
  LaunchConfig config = Config();
  config.virtual_local_rank = true;
  config.places.resize(4);
  config.places[2].devices = {"CUDA_VISIBLE_DEVICES=GPU-3c4d"};
  const auto environment =
      WorkerEnvironment({"CUDA_VISIBLE_DEVICES=GPU-1a2b,x,GPU-3c4d"}, config, Round(), 2, "", 1);
  EXPECT_THAT(environment, Contains("CUDA_VISIBLE_DEVICES=GPU-3c4d"));
  EXPECT_THAT(environment, Not(Contains(HasSubstr("GPU-1a2b"))));
  EXPECT_THAT(environment, Contains("LOCAL_RANK=0"));
  EXPECT_THAT(environment, Contains("DDL_LOCAL_RANK=2"));
  EXPECT_THAT(environment, Contains("RANK=4"));
  EXPECT_THAT(environment, Contains("LOCAL_WORLD_SIZE=4"));
}

TEST(WorkerEnvironment, BoundWorker_HasTheThreadsThatFitItsCpus) {
  LaunchConfig config = Config();
  config.places.resize(4);
  config.places[1] = {{4, 5, 6}, 3, {}};
  EXPECT_THAT(WorkerEnvironment({}, config, Round(), 1, "", 16), Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(WorkerEnvironment({"OMP_NUM_THREADS=8"}, config, Round(), 1, "", 16),
              Contains("OMP_NUM_THREADS=8"));
}

}  // namespace
}  // namespace ddl
