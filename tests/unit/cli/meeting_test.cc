// Membership and meeting place: --nnodes, --node-rank, --rdzv-*, --master-*.
#include <chrono>

#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class Meeting : public CliTest {
 protected:
  LaunchConfig Config(const std::vector<std::string>& args) const { return Launch(args).config; }
};

TEST_F(Meeting, NoFlags_IsOneNodeThatHostsItself) {
  const LaunchConfig config = Config({});
  EXPECT_EQ(config.min_nodes, 1);
  EXPECT_EQ(config.max_nodes, 1);
  EXPECT_EQ(config.nproc, 1);
  EXPECT_EQ(config.endpoint_host, "");
  EXPECT_EQ(config.job_id, "none");
  EXPECT_FALSE(config.node_rank.has_value());
}

TEST_F(Meeting, TwoNodesByC10d_HaveEndpointAndNoRank) {
  const LaunchConfig config =
      Config({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--rdzv-id=j"});
  EXPECT_EQ(config.min_nodes, 2);
  EXPECT_EQ(config.max_nodes, 2);
  EXPECT_EQ(config.backend, RdzvBackend::kDynamic);
  EXPECT_EQ(config.endpoint_host, "node0");
  EXPECT_EQ(config.endpoint_port, 29400);
  EXPECT_EQ(config.job_id, "j");
  EXPECT_FALSE(config.node_rank.has_value());
  EXPECT_FALSE(config.is_host.has_value());
}

TEST_F(Meeting, NodeRankByC10d_IsHonoured) {
  EXPECT_EQ(
      Config({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:1", "--node-rank=1"})
          .node_rank,
      1);
}

TEST_F(Meeting, SeveralNodesWithoutAPlace_AreRefusedAndAskedForOne) {  // 9
  EXPECT_THAT(UsageError({"--nnodes=2"}),
              AllOf(HasSubstr("--nnodes=2"), HasSubstr("--rdzv-endpoint=HOST[:PORT]")));
  EXPECT_THAT(UsageError({"--nnodes=2", "--rdzv-backend=c10d"}), HasSubstr("--rdzv-endpoint"));
  EXPECT_THAT(UsageError({"--nnodes=2", "--master-port=29501"}), HasSubstr("--master-addr"));
}

TEST_F(Meeting, StaleMasterAddrInTheEnvironment_IsNoPlace) {  // 9, 29
  around_.environment["MASTER_ADDR"] = "old";
  around_.environment["MASTER_PORT"] = "1";
  EXPECT_THAT(UsageError({"--nnodes=2"}), HasSubstr("--rdzv-endpoint"));
}

TEST_F(Meeting, StaticWithMasterAddr_MeetsThereAndNodeZeroHosts) {
  const LaunchConfig first = Config({"--nnodes=2", "--master-addr=node0", "--master-port=1234"});
  EXPECT_EQ(first.endpoint_host, "node0");
  EXPECT_EQ(first.endpoint_port, 1234);
  EXPECT_EQ(first.master_addr, "node0");
  EXPECT_EQ(first.master_port, 0) << "the coordinator has it";
  EXPECT_EQ(first.node_rank, 0);
  EXPECT_FALSE(first.is_host.has_value()) << "only what the user said";

  const LaunchConfig second = Config({"--nnodes=2", "--master-addr=node0", "--node-rank=1"});
  EXPECT_EQ(second.endpoint_port, 29500);
  EXPECT_EQ(second.node_rank, 1);
}

TEST_F(Meeting, StaticWithEndpoint_KeepsAnotherMasterPort) {
  const LaunchConfig config = Config({"--nnodes=2", "--rdzv-endpoint=node0", "--master-port=1234"});
  EXPECT_EQ(config.endpoint_port, 29500);
  EXPECT_EQ(config.master_port, 1234);
}

TEST_F(Meeting, OneNodeWithMasterPort_GivesItToTheWorkers) {
  const LaunchConfig config = Config({"--master-addr=127.0.0.1", "--master-port=29501"});
  EXPECT_EQ(config.endpoint_host, "");
  EXPECT_EQ(config.master_addr, "127.0.0.1");
  EXPECT_EQ(config.master_port, 29501);
}

TEST_F(Meeting, OneNodeWithPortZero_HostsItself) {
  const LaunchConfig config = Config({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"});
  EXPECT_EQ(config.endpoint_host, "");
  EXPECT_EQ(config.endpoint_port, 0);
  EXPECT_THAT(UsageError({"--nnodes=2", "--rdzv-endpoint=localhost:0"}), HasSubstr("port 0"));
}

TEST_F(Meeting, BracketedIpv6_LosesItsBrackets) {
  const LaunchConfig config =
      Config({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[::1]:7"});
  EXPECT_EQ(config.endpoint_host, "::1");
  EXPECT_EQ(config.endpoint_port, 7);
}

TEST_F(Meeting, BadNnodes_NamesFlagAndValue) {  // 7
  for (const char* const value : {"3:1", "1:2:3", "0", "-1", "1.5", ""}) {
    EXPECT_THAT(UsageError({std::string("--nnodes=") + value}),
                HasSubstr(std::string("--nnodes=") + value + ": must be N or MIN:MAX"));
  }
}

TEST_F(Meeting, ElasticRange_IsMinAndMax) {
  const LaunchConfig config =
      Config({"--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=node0"});
  EXPECT_EQ(config.min_nodes, 2);
  EXPECT_EQ(config.max_nodes, 4);
  EXPECT_EQ(Config({"--nnodes=1:1"}).max_nodes, 1);
  EXPECT_THAT(UsageError({"--nnodes=1:3"}), HasSubstr("--rdzv-endpoint=HOST[:PORT]"));
  EXPECT_THAT(UsageError({"--nnodes=1:3", "--standalone"}), HasSubstr("is for one node"));
  EXPECT_THAT(UsageError({"--nnodes=2:4", "--rdzv-endpoint=h", "--node-rank=4"}),
              AllOf(HasSubstr("--nnodes=2:4"), HasSubstr("node ranks 0 to 3")));
}

TEST_F(Meeting, ElasticRangeByStatic_NeedsNoNodeRank) {
  const LaunchConfig config = Config({"--nnodes=2:4", "--rdzv-endpoint=node0"});
  EXPECT_EQ(config.backend, RdzvBackend::kStatic);
  EXPECT_FALSE(config.node_rank.has_value()) << "every node would claim rank 0";
  EXPECT_EQ(Config({"--nnodes=2:4", "--rdzv-endpoint=h", "--node-rank=3"}).node_rank, 3);
}

TEST_F(Meeting, BadEndpointOrPort_NamesFlagAndValue) {
  EXPECT_THAT(UsageError({"--rdzv-endpoint=h:65536"}), HasSubstr("--rdzv-endpoint=h:65536: must"));
  EXPECT_THAT(UsageError({"--master-port=0"}),
              HasSubstr("--master-port=0: must be a whole number from 1 to 65535"));
  EXPECT_THAT(UsageError({"--master-port=65536"}), HasSubstr("--master-port=65536"));
  EXPECT_THAT(UsageError({"--local-addr=a b"}), HasSubstr("--local-addr=a b"));
}

TEST_F(Meeting, NodeRankOutOfRange_SaysTheRange) {  // 27
  EXPECT_THAT(UsageError({"--nnodes=2", "--rdzv-endpoint=h", "--node-rank=5"}),
              AllOf(HasSubstr("--node-rank=5"), HasSubstr("node ranks 0 to 1")));
}

TEST_F(Meeting, BackendsWeDoNotHave_AreRefusedWithWhatToUse) {
  EXPECT_THAT(UsageError({"--rdzv-backend=etcd"}), HasSubstr("use --rdzv-backend=c10d"));
  EXPECT_THAT(UsageError({"--rdzv-backend=etcd-v2"}), HasSubstr("use --rdzv-backend=c10d"));
  EXPECT_THAT(UsageError({"--rdzv-backend=zookeeper"}), HasSubstr("must be static or c10d"));
}

TEST_F(Meeting, RdzvConf_IsApplied) {
  const LaunchCommand command = Launch(
      {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h",
       "--rdzv-conf=join_timeout=7,last_call_timeout=0.25,close_timeout=3,heartbeat_timeout=0.5,"
       "is_host=1,rank=1,read_timeout=60"});
  const LaunchConfig& config = command.config;
  EXPECT_EQ(config.join_timeout, seconds(7));
  EXPECT_EQ(config.last_call_timeout, milliseconds(250));
  EXPECT_EQ(config.close_timeout, seconds(3));
  EXPECT_EQ(config.heartbeat_timeout, milliseconds(500));
  EXPECT_EQ(config.heartbeat_interval, milliseconds(100));
  EXPECT_EQ(config.is_host, true);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_THAT(TextsOf(command.notices), Contains(HasSubstr("read_timeout bounds nothing")));
}

TEST_F(Meeting, RdzvConfNotGiven_HasTheDefaults) {
  const LaunchConfig config = Config({});
  EXPECT_EQ(config.join_timeout, seconds(600));
  EXPECT_EQ(config.last_call_timeout, seconds(5));
  EXPECT_EQ(config.close_timeout, seconds(5));
  EXPECT_EQ(config.heartbeat_timeout, seconds(5));
  EXPECT_EQ(config.heartbeat_interval, seconds(1));
}

TEST_F(Meeting, BadRdzvConf_NamesFlagAndKey) {
  EXPECT_THAT(UsageError({"--rdzv-conf=join_timout=7"}),
              AllOf(HasSubstr("--rdzv-conf=join_timout=7: no such key: join_timout"),
                    HasSubstr("did you mean join_timeout?")));
  EXPECT_THAT(UsageError({"--rdzv-conf=rank=0", "--node-rank=0", "--rdzv-conf=rank=1"}),
              HasSubstr("out of range"));
  EXPECT_THAT(
      UsageError({"--nnodes=2", "--rdzv-endpoint=h", "--rdzv-conf=rank=0", "--node-rank=1"}),
      HasSubstr("contradicts --node-rank=1"));
}

TEST_F(Meeting, Standalone_HasAFreshIdAndMeetsNobody) {
  const std::vector<std::string> args = {"--standalone", "--rdzv-endpoint=h:1", "--rdzv-id=j",
                                         "--rdzv-backend=etcd"};
  const LaunchConfig config = Config(args);
  EXPECT_EQ(config.endpoint_host, "");
  EXPECT_NE(config.job_id, "j");
  EXPECT_NE(config.job_id, Config(args).job_id);
  EXPECT_THAT(UsageError({"--standalone", "--nnodes=2"}), HasSubstr("--standalone is for one"));
}

TEST_F(Meeting, MasterFlagsByC10d_AreWarnedOf) {
  const LaunchCommand command = Launch({"--rdzv-backend=c10d", "--master-port=1"});
  EXPECT_EQ(command.config.master_port, 0);
  EXPECT_THAT(TextsOf(command.notices), Contains(HasSubstr("no effect with c10d")));
}

TEST_F(Meeting, JobId_MustBePrintable) {
  EXPECT_THAT(UsageError({"--rdzv-id="}), HasSubstr("--rdzv-id="));
  EXPECT_THAT(UsageError({"--rdzv-id=a\nb"}), HasSubstr("printable"));
}

}  // namespace
}  // namespace ddl::cli
