// Introductions that are refused.
#include "agent/core/admission.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "agent/base/limits.h"

namespace ddl::core {
namespace {

AgentConnected GoodHello() {
  AgentConnected hello;
  hello.agent = AgentRef{"j", "a"};
  hello.host = "host";
  hello.address = "10.0.0.1";
  hello.nproc = 1;
  hello.min_nodes = 2;
  hello.max_nodes = 2;
  return hello;
}

struct Fault {
  const char* name;
  std::function<void(AgentConnected&)> spoil;
  Reason reason;
};

TEST(CheckHello, Good_Passes) {
  EXPECT_FALSE(CheckHello(GoodHello()).has_value());
}

TEST(CheckHello, EachBadField_IsRefusedWithItsReason) {
  using H = AgentConnected;
  const std::vector<Fault> faults = {
      {"no job id", [](H& h) { h.agent.job_id.clear(); }, Reason::kInvalid},
      {"long job id", [](H& h) { h.agent.job_id = std::string(limits::kMaxJobIdBytes + 1, 'x'); },
       Reason::kLimit},
      {"no incarnation", [](H& h) { h.agent.incarnation.clear(); }, Reason::kInvalid},
      {"no host", [](H& h) { h.host.clear(); }, Reason::kInvalid},
      {"long host", [](H& h) { h.host = std::string(limits::kMaxHostBytes + 1, 'x'); },
       Reason::kLimit},
      {"no address", [](H& h) { h.address.clear(); }, Reason::kInvalid},
      {"no workers", [](H& h) { h.nproc = 0; }, Reason::kInvalid},
      {"too many workers", [](H& h) { h.nproc = limits::kMaxWorkersPerNode + 1; }, Reason::kLimit},
      {"no nodes", [](H& h) { h.min_nodes = 0; }, Reason::kInvalid},
      {"min above max", [](H& h) { h.min_nodes = 3; }, Reason::kInvalid},
      {"too many nodes", [](H& h) { h.max_nodes = limits::kMaxNodes + 1; }, Reason::kLimit},
      {"negative restarts", [](H& h) { h.max_restarts = -1; }, Reason::kInvalid},
      {"negative wait", [](H& h) { h.join_timeout = Duration(-1); }, Reason::kInvalid},
      {"wait without end", [](H& h) { h.join_timeout = Duration::max(); }, Reason::kLimit},
      {"grace without end", [](H& h) { h.stop_grace = Duration::max(); }, Reason::kLimit},
      {"rank at nnodes", [](H& h) { h.node_rank = 2; }, Reason::kNodeRankOutOfRange},
      {"ports of some workers",
       [](H& h) {
         h.worker_ports = {1, 2};
       },
       Reason::kInvalid},
      {"port 0", [](H& h) { h.worker_ports = {0}; }, Reason::kInvalid},
      {"port beyond", [](H& h) { h.worker_ports = {65'536}; }, Reason::kInvalid},
      {"negative rank", [](H& h) { h.node_rank = -1; }, Reason::kNodeRankOutOfRange},
  };
  for (const Fault& fault : faults) {
    AgentConnected hello = GoodHello();
    fault.spoil(hello);
    const auto refused = CheckHello(hello);
    ASSERT_TRUE(refused.has_value()) << fault.name;
    EXPECT_EQ(refused->reason, fault.reason) << fault.name << ": " << refused->text;
    EXPECT_FALSE(refused->text.empty()) << fault.name;
  }
}

TEST(CheckHello, ValuesAtTheirLimits_Pass) {
  AgentConnected hello = GoodHello();
  hello.nproc = limits::kMaxWorkersPerNode;
  hello.max_nodes = limits::kMaxNodes;
  hello.node_rank = limits::kMaxNodes - 1;
  hello.join_timeout = kMaxWait;
  hello.agent.job_id = std::string(limits::kMaxJobIdBytes, 'x');
  EXPECT_FALSE(CheckHello(hello).has_value());
}

TEST(CheckAgrees, SameTerms_Pass) {
  EXPECT_FALSE(CheckAgrees(GoodHello(), GoodHello()).has_value());
}

TEST(CheckAgrees, OtherTermsOrPlan_NameBothValuesAndHosts) {
  AgentConnected other = GoodHello();
  other.host = "elsewhere";
  other.max_restarts = 3;
  auto refused = CheckAgrees(GoodHello(), other);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, Reason::kTermsDiffer);
  for (const char* part : {"elsewhere", "host", "--max-restarts=3", "--max-restarts=0"}) {
    EXPECT_NE(refused->text.find(part), std::string::npos) << part << " in " << refused->text;
  }
  other.max_restarts = 0;
  other.min_nodes = 1;
  ASSERT_TRUE((refused = CheckAgrees(GoodHello(), other)).has_value());
  EXPECT_EQ(refused->reason, Reason::kTermsDiffer);
  other.min_nodes = 2;
  other.worker_ports = {7000};
  ASSERT_TRUE((refused = CheckAgrees(GoodHello(), other)).has_value());
  EXPECT_EQ(refused->reason, Reason::kTermsDiffer);
  EXPECT_NE(refused->text.find("--env"), std::string::npos) << refused->text;
  other.worker_ports.clear();
  other.plan.global_batch_size = 48;
  ASSERT_TRUE((refused = CheckAgrees(GoodHello(), other)).has_value());
  EXPECT_EQ(refused->reason, Reason::kPlanDiffers);
  EXPECT_NE(refused->text.find(plan::Describe(other.plan)), std::string::npos) << refused->text;
}

TEST(CheckAgrees, TwoOnOneHost_AreToldApart) {
  AgentConnected first = GoodHello();
  first.host = "alpha";
  first.node_rank = 0;
  AgentConnected second = first;
  second.node_rank = 1;
  second.plan.global_batch_size = 48;
  const auto refused = CheckAgrees(first, second);
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->text.find("host alpha (--node-rank=1) asks"), std::string::npos)
      << refused->text;
  EXPECT_NE(refused->text.find("by host alpha (--node-rank=0)"), std::string::npos)
      << refused->text;
}

}  // namespace
}  // namespace ddl::core
