// The flags of `ddlaunch coordinator`.
#include "launcher/cli/coordinator.h"

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CoordinatorFlags : public CliTest {
 protected:
  CoordinatorCommand Command(std::vector<std::string> args) const {
    args.insert(args.begin(), "coordinator");
    const absl::StatusOr<ParseResult> result = Parse(args);
    if (!result.ok() || !std::holds_alternative<CoordinatorCommand>(*result)) {
      ADD_FAILURE() << result.status();
      return {};
    }
    return std::get<CoordinatorCommand>(*result);
  }
  std::string Error(std::vector<std::string> args) const {
    args.insert(args.begin(), "coordinator");
    const absl::Status status = Parse(args).status();
    EXPECT_EQ(ExitCodeFor(status), 2) << status;
    return std::string(status.message());
  }
};

TEST_F(CoordinatorFlags, None_ListensEverywhereAtTorchrunsPort) {
  const CoordinatorConfig config = Command({}).config;
  EXPECT_EQ(config.listen_host, "::");
  EXPECT_EQ(config.listen_port, 29400);
  EXPECT_EQ(config.token, "");
  EXPECT_FALSE(config.verbose);
}

TEST_F(CoordinatorFlags, All_AreApplied) {
  const CoordinatorConfig config =
      Command({"--listen", "10.0.0.1:7", "--rdzv-conf=heartbeat_timeout=10", "-v",
               "--rdzv-token-file=" + WriteFile("token", "secret\n", false)})
          .config;
  EXPECT_EQ(config.listen_host, "10.0.0.1");
  EXPECT_EQ(config.listen_port, 7);
  EXPECT_EQ(config.heartbeat_timeout, std::chrono::seconds(10));
  EXPECT_EQ(config.heartbeat_interval, std::chrono::seconds(1));
  EXPECT_EQ(config.token, "secret");
  EXPECT_TRUE(config.verbose);
}

TEST_F(CoordinatorFlags, OthersFlags_AreRefusedAsTheNodesOwn) {
  EXPECT_THAT(Error({"--nnodes=2"}), AllOf(HasSubstr("--nnodes"), HasSubstr("nodes of a job")));
  EXPECT_THAT(Error({"-m"}), HasSubstr("the nodes of a job give it"));
  EXPECT_THAT(Error({"--lisen=:1"}), HasSubstr("did you mean --listen?"));
  EXPECT_THAT(Error({"--rdzv-conf=join_timeout=3"}),
              HasSubstr("--rdzv-conf=join_timeout=3: join_timeout is for the nodes"));
  EXPECT_THAT(Error({"--listen=:x"}), HasSubstr("--listen=:x: must be HOST:PORT"));
  EXPECT_THAT(UsageError({"--listen=:1"}), HasSubstr("only for ddlaunch coordinator"));
}

TEST_F(CoordinatorFlags, AProgram_IsRefused) {
  EXPECT_THAT(Error({"train.py"}), AllOf(HasSubstr("train.py"), HasSubstr("./coordinator")));
}

TEST_F(CoordinatorFlags, AProgramOfThatName_RunsByPathOrAfterDashes) {
  WriteFile("cwd/coordinator", "#!/bin/sh\n", true);
  EXPECT_EQ(Launch({"./coordinator"}).config.program_name, "./coordinator");
  EXPECT_EQ(Launch({"--", "coordinator"}).config.program_name, "coordinator");
  EXPECT_EQ(Launch({"-v", "coordinator"}).config.program_name, "coordinator");
}

TEST_F(CoordinatorFlags, Help_IsItsOwn) {
  const auto result = Parse({"coordinator", "--help"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(std::get<PrintAndExit>(*result).text, HasSubstr("Usage: ddlaunch coordinator"));
}

}  // namespace
}  // namespace ddl::cli
