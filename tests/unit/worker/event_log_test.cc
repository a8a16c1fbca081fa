// The lines that a watcher of torchrun's events reads.
#include "launcher/logs/event_log.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "gtest/gtest.h"

namespace ddl {
namespace {

using nlohmann::json;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

class EventLogTest : public testing::Test {
 protected:
  EventLogTest() {
    config_.job_id = "j";
    config_.program_name = "train.py";
    config_.backend = RdzvBackend::kDynamic;
    round_.node_rank = 1;
    round_.num_nodes = 2;
    round_.first_rank = 4;
    round_.nproc = 4;
    round_.world_size = 8;
    round_.restart_count = 2;
  }

  LaunchConfig config_;
  RoundInfo round_;
  const Instant start_{};
  EventLog log_{config_, "node1", start_};
};

TEST_F(EventLogTest, Agent_IsOneLineInTorchrunsShape) {
  log_.SetRound(round_);
  const std::string line =
      log_.OfAgent(EventState::kRendezvous, 1500ms, "", {start_ + 7s, 1'700'000'000});
  EXPECT_EQ(line,
            R"({"name":"torchelastic.worker.status.RENDEZVOUS","source":"AGENT",)"
            R"("timestamp":1700000000,"metadata":{"run_id":"j","global_rank":null,"group_rank":1,)"
            R"("worker_id":null,"role":"default","hostname":"node1","state":"RENDEZVOUS",)"
            R"("total_run_time":7,"rdzv_backend":"c10d","raw_error":null,)"
            R"("metadata":"{\"group_world_size\":2,\"entry_point\":\"train.py\"}",)"
            R"("agent_restarts":2,"duration_ms":1500.0}})"
            "\n");
}

TEST_F(EventLogTest, Exit_NamesTheWorkerAndItsError) {
  log_.SetRound(round_);
  WorkerExit exit;
  exit.local_rank = 2;
  exit.pid = 77;
  exit.term_signal = 11;
  exit.error_text = "line one\nbad \xff byte";
  const json event = json::parse(log_.OfExit(EventState::kFailed, exit, {start_, 0}));
  EXPECT_EQ(event["source"], "WORKER");
  const json& metadata = event["metadata"];
  EXPECT_EQ(metadata["global_rank"], 6);
  EXPECT_EQ(metadata["worker_id"], "77");
  EXPECT_EQ(metadata["state"], "FAILED");
  EXPECT_EQ(metadata["raw_error"], "line one\nbad \xEF\xBF\xBD byte");
  const json details = json::parse(metadata["metadata"].get<std::string>());
  EXPECT_EQ(details["local_rank"], json({2}));
  EXPECT_EQ(details["exit_code"], json({-11}));
  EXPECT_EQ(details["worker_pid"], json({77}));
  EXPECT_EQ(details["role_world_size"], json({8}));
}

TEST_F(EventLogTest, ExitByOurSignal_HasNoExitCode) {
  log_.SetRound(round_);
  WorkerExit exit;
  exit.term_signal = 15;
  const json event = json::parse(log_.OfExit(EventState::kTerminated, exit, {start_, 0}));
  const json details = json::parse(event["metadata"]["metadata"].get<std::string>());
  EXPECT_EQ(details["exit_code"], json::array({nullptr}));
}

TEST_F(EventLogTest, SuccessWithWordsOnStderr_IsNoError) {
  log_.SetRound(round_);
  WorkerExit exit;
  exit.error_text = "a warning";
  const json event = json::parse(log_.OfExit(EventState::kSucceeded, exit, {start_, 0}));
  EXPECT_TRUE(event["metadata"]["raw_error"].is_null());
}

TEST_F(EventLogTest, BeforeTheFirstRound_RankAndWorldAreNull) {
  const json event =
      json::parse(log_.OfAgent(EventState::kFailed, std::nullopt, "no peer came", {start_, 0}));
  EXPECT_TRUE(event["metadata"]["group_rank"].is_null());
  EXPECT_EQ(event["metadata"]["raw_error"], "no peer came");
}

}  // namespace
}  // namespace ddl
