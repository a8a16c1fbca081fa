// The secret: from a file or from the environment, and what is wrong with it.
#include "launcher/cli/token.h"

#include <sys/stat.h>

#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Token : public CliTest {
 protected:
  std::string FromFile(std::string_view text) const {
    const std::string path = WriteFile("token", text, false);
    return Launch({"--rdzv-token-file=" + path}).config.rdzv_token;
  }
  std::string ErrorOfFile(std::string_view text) const {
    const std::string path = WriteFile("token", text, false);
    const std::string error = UsageError({"--rdzv-token-file=" + path});
    EXPECT_THAT(error, AllOf(HasSubstr("--rdzv-token-file=" + path), HasSubstr("urandom")));
    return error;
  }
};

TEST_F(Token, NotGiven_IsEmpty) {
  EXPECT_EQ(Launch({}).config.rdzv_token, "");
}

TEST_F(Token, File_IsReadWithoutItsLastNewline) {
  EXPECT_EQ(FromFile("secret"), "secret");
  EXPECT_EQ(FromFile("secret\n"), "secret");
  EXPECT_EQ(FromFile("secret\r\n"), "secret");
  EXPECT_EQ(FromFile(" two words "), " two words ");
  EXPECT_EQ(FromFile(std::string(256, 'x') + "\n").size(), 256);
}

TEST_F(Token, RelativeFile_IsInTheWorkingDirectory) {
  WriteFile("cwd/token", "secret\n", false);
  EXPECT_EQ(Launch({"--rdzv-token-file=token"}).config.rdzv_token, "secret");
}

TEST_F(Token, BadFile_IsNamedWithTheRemedyAndNotShown) {
  EXPECT_THAT(ErrorOfFile(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOfFile("\n"), HasSubstr("empty"));
  EXPECT_THAT(ErrorOfFile("secret\nsecond\n"),
              AllOf(HasSubstr("one line of 1 to 256"), Not(HasSubstr("second"))));
  EXPECT_THAT(ErrorOfFile("caf\xc3\xa9"), HasSubstr("printable"));
  EXPECT_THAT(ErrorOfFile(std::string(257, 'x')), HasSubstr("1 to 256"));
  EXPECT_THAT(UsageError({"--rdzv-token-file=/no/such"}),
              AllOf(HasSubstr("No such file"), HasSubstr("> /no/such")));
  EXPECT_THAT(UsageError({"--rdzv-token-file=" + dir_}), HasSubstr("directory"));
  EXPECT_THAT(UsageError({"--rdzv-token-file="}), HasSubstr("must be a file"));
}

TEST_F(Token, FileThatOthersMayRead_IsWarnedOf) {
  const std::string path = WriteFile("token", "secret\n", false);
  EXPECT_THAT(Launch({"--rdzv-token-file=" + path}).notices, IsEmpty());
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const LaunchCommand command = Launch({"--rdzv-token-file=" + path});
  EXPECT_EQ(command.config.rdzv_token, "secret");
  ASSERT_EQ(command.notices.size(), 1);
  EXPECT_EQ(command.notices[0].level, Notice::Level::kWarning);
  EXPECT_THAT(command.notices[0].text, AllOf(HasSubstr("mode 0640"), HasSubstr("chmod 600")));
}

TEST_F(Token, Variable_IsUsedUnlessThereIsAFile) {
  around_.environment["DDL_RDZV_TOKEN"] = "from the environment";
  EXPECT_EQ(Launch({}).config.rdzv_token, "from the environment");
  EXPECT_EQ(FromFile("from the file"), "from the file");
}

TEST_F(Token, BadVariable_IsNamedAndNotShown) {
  around_.environment["DDL_RDZV_TOKEN"] = "sec\nret";
  EXPECT_THAT(UsageError({}), AllOf(HasSubstr("DDL_RDZV_TOKEN must be"), Not(HasSubstr("sec\n"))));
  around_.environment["DDL_RDZV_TOKEN"] = "";
  EXPECT_THAT(UsageError({}), HasSubstr("it is empty"));
}

TEST_F(Token, Standalone_ReadsNone) {
  around_.environment["DDL_RDZV_TOKEN"] = "";
  EXPECT_EQ(Launch({"--standalone", "--rdzv-token-file=/no/such"}).config.rdzv_token, "");
}

}  // namespace
}  // namespace ddl::cli
