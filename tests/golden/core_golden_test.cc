// Plays tests/golden/core/*.txt and compares each command's trace.
//
// A file holds comments (#), commands, and after each command "----" and its
// trace, ended by an empty line. DDL_REWRITE_GOLDEN=1 writes the traces anew:
// read the difference before you commit it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/golden/transcript.h"

namespace ddl::core {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The file with the traces as they are now.
std::string Play(const std::string& text) {
  Transcript transcript;
  std::istringstream lines(text);
  std::string played;
  for (std::string line; std::getline(lines, line);) {
    if (line == "----") {  // the old trace
      while (std::getline(lines, line) && !line.empty()) {
      }
      continue;
    }
    played += line + "\n";
    if (!line.empty() && line.front() != '#') {
      played += "----\n" + transcript.Run(line) + "\n";
    }
  }
  return played;
}

std::vector<std::filesystem::path> Transcripts() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(DDL_GOLDEN_DIR)) {
    if (entry.path().extension() == ".txt") {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class CoreGolden : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(CoreGolden, Transcript_IsAsWritten) {
  const std::string written = ReadFile(GetParam());
  ASSERT_FALSE(written.empty()) << GetParam();
  const std::string played = Play(written);
  EXPECT_EQ(played.find("\nERROR"), std::string::npos) << played;
  if (std::getenv("DDL_REWRITE_GOLDEN") != nullptr) {
    std::ofstream(GetParam()) << played;
    return;
  }
  EXPECT_EQ(played, written) << "DDL_REWRITE_GOLDEN=1 rewrites " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Core, CoreGolden, ::testing::ValuesIn(Transcripts()),
                         [](const auto& param_info) { return param_info.param.stem().string(); });

}  // namespace
}  // namespace ddl::core
