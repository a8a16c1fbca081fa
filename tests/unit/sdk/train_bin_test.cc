// train_bin itself, as processes over the real wire: the same training at every
// world size, exact resumption after a kill, and its messages.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddl/checkpoint.h"
#include "tests/unit/sdk/gateway_server.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;
using ::ddl::testing::GatewayOptions;
using ::ddl::testing::GatewayServer;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A started train_bin; its output goes to a file.
struct Process {
  pid_t pid = -1;
  std::string output;

  // The exit code, or 128 + the signal.
  int Wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    constexpr int kSignalBase = 128;
    return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
  }
};

class TrainBinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ddl-train-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  [[nodiscard]] std::string Path(const std::string& name) const { return root_ + "/" + name; }

  // With a server: local rank `rank` of its world. Without: by hand.
  Process Start(std::vector<std::string> arguments, const GatewayServer* server = nullptr,
                int rank = 0) {
    Process process;
    process.output = Path("output-" + std::to_string(started_++));
    std::vector<std::string> environment;
    if (server != nullptr) {
      environment = {"DDL_GATEWAY=" + server->address(), "DDL_ROUND=1",
                     "LOCAL_RANK=" + std::to_string(rank)};
    }
    arguments.insert(arguments.begin(), DDL_TRAIN_BIN);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, process.output.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    EXPECT_EQ(::posix_spawn(&process.pid, DDL_TRAIN_BIN, &actions, nullptr,
                            Pointers(arguments).data(), Pointers(environment).data()),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    return process;
  }

  std::vector<Process> StartWorld(const std::vector<std::string>& arguments,
                                  const GatewayServer& server, int world) {
    std::vector<Process> processes;
    for (int rank = 0; rank < world; ++rank) {
      processes.push_back(Start(arguments, &server, rank));
    }
    return processes;
  }

  struct Run {
    std::vector<Json> metrics;
    std::vector<float> weights;
  };

  // Trains with `options` to the end; every rank must succeed.
  Run Train(const GatewayOptions& options, const std::string& name,
            std::vector<std::string> arguments) {
    const GatewayServer server(options);
    arguments.insert(arguments.end(), {"--metrics-out", Path(name + ".json"), "--weights-out",
                                       Path(name + ".weights")});
    for (Process& process : StartWorld(arguments, server, options.world_size)) {
      EXPECT_EQ(process.Wait(), 0) << ReadFile(process.output);
    }
    return Load(name);
  }

  [[nodiscard]] Run Load(const std::string& name) const {
    Run run;
    std::ifstream in(Path(name + ".json"));
    for (std::string line; std::getline(in, line);) {
      run.metrics.push_back(Json::parse(line));
    }
    const std::string bytes = ReadFile(Path(name + ".weights"));
    run.weights.resize(bytes.size() / sizeof(float));
    bytes.copy(reinterpret_cast<char*>(run.weights.data()), bytes.size());
    return run;
  }

  std::string root_;

 private:
  static std::vector<char*> Pointers(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) {
      pointers.push_back(text.data());
    }
    pointers.push_back(nullptr);
    return pointers;
  }

  int started_ = 0;
};

// Steps, rates and sample counts equal; losses and weights within `tolerance`.
template <typename Run>
void ExpectSameTraining(const Run& a, const Run& b, double tolerance) {
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (std::size_t i = 0; i + 1 < a.metrics.size(); ++i) {
    const Json& x = a.metrics[i];
    const Json& y = b.metrics[i];
    ASSERT_EQ(x["step"], y["step"]);
    ASSERT_EQ(x["epoch"], y["epoch"]);
    ASSERT_EQ(x["lr"], y["lr"]);
    ASSERT_EQ(x["samples"], y["samples"]);
    ASSERT_NEAR(x["loss"].template get<double>(), y["loss"].template get<double>(), tolerance)
        << "step " << i + 1;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
  ASSERT_GT(a.weights.size(), 0U);
  double largest = 0;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.weights[i]) - b.weights[i]));
  }
  EXPECT_LE(largest, tolerance);
}

GatewayOptions World(int world_size, std::int64_t micro_batch_size = 0) {
  GatewayOptions options;
  options.world_size = world_size;
  if (micro_batch_size > 0) {
    options.global_batch_size = 32;
    options.micro_batch_size = micro_batch_size;
  }
  return options;
}

TEST_F(TrainBinTest, AnyWorldAndAccumulation_TrainsTheSame) {
  const std::vector<std::string> arguments = {"--epochs=3"};
  const Run one = Train(World(1), "one", arguments);
  EXPECT_THAT(one.metrics, SizeIs(3 * 45 + 1));
  EXPECT_EQ(one.metrics[44]["samples"], 29);  // the incomplete last batch: 1437 = 44 x 32 + 29
  // Only the order of float additions differs.
  constexpr double kTolerance = 1e-3;
  ExpectSameTraining(one, Train(World(1, 8), "one-accumulated", arguments), kTolerance);
  ExpectSameTraining(one, Train(World(2), "two", arguments), kTolerance);
  ExpectSameTraining(one, Train(World(2, 4), "two-accumulated", arguments), kTolerance);
  ExpectSameTraining(one, Train(World(4), "four", arguments), kTolerance);
}

TEST_F(TrainBinTest, ByHandWithDefaults_ReachesNinetyFivePercent) {
  Process process =
      Start({"--metrics-out", Path("alone.json"), "--weights-out", Path("alone.weights")});
  ASSERT_EQ(process.Wait(), 0) << ReadFile(process.output);
  const Run run = Load("alone");
  const Json& last = run.metrics.back();
  EXPECT_TRUE(last["final"].get<bool>());
  EXPECT_GE(last["accuracy"].get<double>(), 0.95);
  EXPECT_EQ(last["steps"], 900);
  EXPECT_EQ(last["world"], 1);
  EXPECT_EQ(last["restart_count"], 0);
  EXPECT_THAT(ReadFile(process.output),
              HasSubstr("global batch 32 = micro 32 x accumulation 1 x world 1"));
}

TEST_F(TrainBinTest, OutOfMemoryOnOneRankOrAll_TrainsTheSame) {
  const Run calm = Train(World(4), "calm", {"--epochs=2"});
  // 8 samples, then 4, then 2: twice in one step.
  const std::vector<std::string> arguments = {"--epochs=2", "--oom-above=3", "--oom-at-step=50"};
  ExpectSameTraining(calm, Train(World(4), "all", arguments), 1e-3);
  std::vector<std::string> one = arguments;
  one.insert(one.end(), {"--oom-rank=2", "--audit-dir", Path("audit")});
  ExpectSameTraining(calm, Train(World(4), "one", one), 1e-3);
  const std::string audit = ReadFile(Path("audit/rank-2.jsonl"));
  EXPECT_EQ(std::count(audit.begin(), audit.end(), '\n'), 90) << "one line a step, none for tries";
}

TEST_F(TrainBinTest, OutOfMemoryAtTheFloor_EndsEveryRankWithWords) {
  const GatewayServer server(World(4));
  std::vector<Process> processes =
      StartWorld({"--epochs=2", "--oom-above=0", "--oom-rank=1", "--oom-at-step=3"}, server, 4);
  for (Process& process : processes) {
    EXPECT_EQ(process.Wait(), 1) << ReadFile(process.output);
  }
  EXPECT_THAT(ReadFile(processes[1].output),
              ::testing::AllOf(HasSubstr("ddl: rank 1, step 3: out of memory: only 0 of 8 samples"),
                               HasSubstr("step 3, a micro-batch of 1: only 0 of 1 samples fit"),
                               HasSubstr("one sample does not fit the device")));
  EXPECT_THAT(ReadFile(processes[0].output),
              ::testing::AllOf(HasSubstr("the connection to a peer broke"),
                               ::testing::Not(HasSubstr("mixed precision"))));
  EXPECT_EQ(server.exiting_reports(), 1);
}

// Waits until the metrics file has `lines` whole lines.
void WaitForLines(const std::string& path, std::ptrdiff_t lines) {
  for (;;) {
    const std::string text = ReadFile(path);
    if (std::count(text.begin(), text.end(), '\n') >= lines) {
      return;
    }
    ::usleep(1000);
  }
}

TEST_F(TrainBinTest, KilledInMidEpoch_ResumesToTheSameMetricsAndWeights) {
  const std::vector<std::string> arguments = {"--epochs=2", "--checkpoint-every=7"};
  const Run whole = Train(World(2), "whole", arguments);

  const std::string metrics = Path("killed.json");
  const std::vector<std::string> resumable = {
      "--epochs=2",    "--checkpoint-every=7", "--metrics-out",    metrics,
      "--weights-out", Path("killed.weights"), "--checkpoint-dir", Path("checkpoints")};
  std::vector<std::string> slow = resumable;
  slow.insert(slow.end(), {"--step-delay-ms", "5"});
  {
    const GatewayServer server(World(2));
    std::vector<Process> processes = StartWorld(slow, server, 2);
    WaitForLines(metrics, 25);
    ASSERT_EQ(::kill(processes[1].pid, SIGKILL), 0);
    EXPECT_EQ(processes[1].Wait(), 128 + SIGKILL);
    // The survivor notices and says so, long before any timeout.
    EXPECT_EQ(processes[0].Wait(), 1);
    EXPECT_THAT(ReadFile(processes[0].output), HasSubstr("the connection to a peer broke"));
  }
  GatewayOptions again = World(2);
  again.restart_count = 1;
  const GatewayServer server(again);
  std::vector<Process> processes = StartWorld(resumable, server, 2);
  for (Process& process : processes) {
    EXPECT_EQ(process.Wait(), 0) << ReadFile(process.output);
    EXPECT_THAT(ReadFile(process.output), HasSubstr("of 2, restart 1"));
  }
  EXPECT_THAT(ReadFile(processes[0].output), HasSubstr("resumed at step"));
  const Run killed = Load("killed");
  ExpectSameTraining(whole, killed, 0);  // bit for bit
  EXPECT_EQ(killed.metrics.back()["restart_count"], 1);
  EXPECT_EQ(killed.metrics.back()["accuracy"], whole.metrics.back()["accuracy"]);
}

TEST_F(TrainBinTest, CheckpointAtOneWorld_ResumesAtAnother) {
  const Run whole = Train(World(1), "whole", {"--epochs=2"});
  const std::string checkpoints = Path("checkpoints");
  Train(World(4), "moved", {"--epochs=1", "--checkpoint-dir", checkpoints});
  const Run moved = Train(World(2), "moved", {"--epochs=2", "--checkpoint-dir", checkpoints});
  ExpectSameTraining(whole, moved, 1e-3);
}

TEST_F(TrainBinTest, FinishedRunStartedAgain_ChangesNothing) {
  const std::vector<std::string> arguments = {"--epochs=1", "--checkpoint-dir", Path("c")};
  const Run first = Train(World(1), "again", arguments);
  const Run second = Train(World(1), "again", arguments);
  ExpectSameTraining(first, second, 0);
}

TEST_F(TrainBinTest, CheckpointOfOtherOptions_IsRefused) {
  Train(World(1), "first", {"--epochs=1", "--checkpoint-dir", Path("c")});
  Process process = Start({"--epochs=1", "--hidden=16", "--checkpoint-dir", Path("c")});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(ReadFile(process.output), HasSubstr("are of a run with --seed=1 --hidden=128"));
}

TEST_F(TrainBinTest, CheckpointOfAnotherModel_IsRefusedWithItsNumbers) {
  const auto says = [&](const CheckpointState& state) {
    EXPECT_TRUE(CheckpointDirectory(Path("c")).Save(state).ok());
    Process process = Start({"--epochs=1", "--checkpoint-dir", Path("c")});
    EXPECT_EQ(process.Wait(), 1);
    return ReadFile(process.output);
  };
  CheckpointState state;
  state.step = 7;
  state.integers = {{"seed", 1}, {"hidden", 128}};
  EXPECT_THAT(says(state), HasSubstr("step 7 does not say where in the data it was"));
  state.integers["epoch"] = state.integers["consumed"] = 0;
  EXPECT_THAT(says(state), HasSubstr("step 7 has 0 numbers of \"weights\", the model here 9610: it "
                                     "was written by another program or release; use another "
                                     "--checkpoint-dir"));
  state.tensors["weights"].resize(9610);
  state.tensors["velocity"].resize(3);
  EXPECT_THAT(says(state), HasSubstr("has 3 numbers of \"velocity\", the model here 9610"));
}

TEST_F(TrainBinTest, WrongOptions_AreUsageErrorsThatHelp) {
  const auto says = [&](std::vector<std::string> arguments) {
    Process process = Start(std::move(arguments));
    EXPECT_EQ(process.Wait(), 2);
    return ReadFile(process.output);
  };
  EXPECT_THAT(says({"--epoch=3"}), HasSubstr("unknown option --epoch; did you mean --epochs?"));
  EXPECT_THAT(says({"--chekpoint-dir", "x"}), HasSubstr("did you mean --checkpoint-dir?"));
  EXPECT_THAT(says({"--epochs"}), HasSubstr("--epochs needs a value"));
  EXPECT_THAT(says({"--epochs=many"}), HasSubstr("--epochs=many is not a number of 0 to"));
  EXPECT_THAT(says({"--hidden=0"}), HasSubstr("--hidden=0 is not a number of 1 to"));
}

TEST_F(TrainBinTest, Help_ListsTheOptions) {
  Process process = Start({"--help"});
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(ReadFile(process.output), HasSubstr("--checkpoint-every STEPS"));
}

TEST_F(TrainBinTest, MissingOrBrokenData_IsOneClearMessage) {
  Process missing = Start({"--data", "/not/there.csv"});
  EXPECT_EQ(missing.Wait(), 1);
  EXPECT_THAT(ReadFile(missing.output),
              HasSubstr("train_bin: rank 0: cannot open the data file /not/there.csv (--data=FILE "
                        "names another): No such"));
  std::ofstream(Path("broken.csv")) << "1,2,3\n";
  Process broken = Start({"--data", Path("broken.csv")});
  EXPECT_EQ(broken.Wait(), 1);
  EXPECT_THAT(ReadFile(broken.output), HasSubstr("broken.csv, line 1: not 64 pixels and a label"));
}

}  // namespace
}  // namespace ddl
