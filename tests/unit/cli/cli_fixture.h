// A command line read in a directory of its own, with an environment of its
// own: what the tests of launcher/cli share.
#ifndef DDLAUNCH_TESTS_UNIT_CLI_CLI_FIXTURE_H_
#define DDLAUNCH_TESTS_UNIT_CLI_CLI_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "launcher/cli/parse.h"
#include "launcher/exit_code.h"

namespace ddl::cli {

class CliTest : public testing::Test {
 protected:
  CliTest() {
    std::string pattern = testing::TempDir() + "ddl_cli_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    std::filesystem::create_directories(dir_ + "/cwd");
    std::filesystem::create_directories(dir_ + "/path");
    std::filesystem::create_directories(dir_ + "/self");
    std::filesystem::create_directories(dir_ + "/dev");
    around_.places = {dir_ + "/cwd", dir_ + "/self"};
    around_.devices = {dir_ + "/no-nvml.so", dir_ + "/dev", dir_ + "/pci"};
    around_.environment["PATH"] = dir_ + "/path:/usr/bin:/bin";
    around_.environment["OMP_NUM_THREADS"] = "1";  // or every test with workers hears of it
  }
  ~CliTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  // A file below the test's directory; its full path.
  std::string WriteFile(const std::string& name, std::string_view text, bool executable) const {
    std::string path = dir_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    using std::filesystem::perms;
    std::filesystem::permissions(
        path, executable ? perms::owner_all : perms::owner_read | perms::owner_write);
    return path;
  }

  absl::StatusOr<ParseResult> Parse(const std::vector<std::string>& args) const {
    return ParseCommandLine(args, around_);
  }

  // The parse must succeed; /bin/true is added as the program unless `args`
  // ends with one.
  LaunchCommand Launch(std::vector<std::string> args) const {
    absl::StatusOr<ParseResult> result = Parse(args);
    if (!result.ok() && absl::StrContains(result.status().message(), "no program given")) {
      args.emplace_back("/bin/true");
      result = Parse(args);
    }
    if (!result.ok() || !std::holds_alternative<LaunchCommand>(*result)) {
      ADD_FAILURE() << result.status();
      return {};
    }
    return std::get<LaunchCommand>(*std::move(result));
  }

  // The parse, with /bin/true as the program, must fail: its message.
  std::string UsageError(std::vector<std::string> args) const {
    args.emplace_back("/bin/true");
    const absl::Status status = Parse(args).status();
    EXPECT_EQ(ExitCodeFor(status), 2) << status;
    return std::string(status.message());
  }

  std::string dir_;
  Surroundings around_;
};

inline std::vector<std::string> TextsOf(const Notices& notices) {
  std::vector<std::string> texts;
  for (const Notice& notice : notices) {
    texts.push_back(notice.text);
  }
  return texts;
}

}  // namespace ddl::cli

#endif  // DDLAUNCH_TESTS_UNIT_CLI_CLI_FIXTURE_H_
