// Any bytes, and any order of the pieces that YAML is made of, as the file of
// --config: flags, or one line that says where it is wrong, never worse.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "agent/base/check.h"
#include "launcher/cli/config_file.h"

namespace ddl::cli {
namespace {

constexpr std::size_t kMaxPieces = 200;
constexpr std::array<std::string_view, 56> kPieces = {"global-batch-size",
                                                      "nnodes",
                                                      "env",
                                                      "duplicate_stdout_filters",
                                                      "config",
                                                      "listen",
                                                      "role",
                                                      "base_lr",
                                                      "worker-store",
                                                      "nothing",
                                                      "1024",
                                                      "1e-3",
                                                      "torch",
                                                      "true",
                                                      "null",
                                                      "~",
                                                      ": ",
                                                      ":\n",
                                                      "\n",
                                                      "\n  ",
                                                      "\n    ",
                                                      "- ",
                                                      "\n- ",
                                                      ", ",
                                                      "[",
                                                      "]",
                                                      "{",
                                                      "}",
                                                      "'",
                                                      "\"",
                                                      "\\x",
                                                      "\\u00e9",
                                                      "\\0",
                                                      "&a ",
                                                      "*a",
                                                      "<<",
                                                      "!!int ",
                                                      "!<",
                                                      "!x ",
                                                      "? ",
                                                      "|\n",
                                                      ">-\n",
                                                      "#",
                                                      "---\n",
                                                      "...\n",
                                                      "%YAML ",
                                                      "%TAG",
                                                      "1.2\n",
                                                      "\t",
                                                      "\r\n",
                                                      "\xef\xbb\xbf",
                                                      "\xff\xfe",
                                                      "\xe2\x80\xa8",
                                                      "\x80",
                                                      "@",
                                                      "`"};

std::string AnyText(FuzzedDataProvider& data) {
  if (data.ConsumeIntegralInRange(0, 3) == 0) {
    return data.ConsumeRemainingBytesAsString();
  }
  std::string text;
  for (std::size_t i = 0; i < kMaxPieces && data.remaining_bytes() > 0; ++i) {
    if (data.ConsumeIntegralInRange(0, 15) == 0) {
      text += data.ConsumeBytesAsString(data.ConsumeIntegralInRange<std::size_t>(1, 4));
    } else {
      text += kPieces.at(data.ConsumeIntegralInRange<std::size_t>(0, kPieces.size() - 1));
    }
  }
  return text;
}

void Try(FuzzedDataProvider& data) {
  const Command command = data.PickValueInArray({Command::kLaunch, Command::kPlan, Command::kTune});
  const auto values = ParseConfig(AnyText(data), "any.yaml", command);
  if (!values.ok()) {
    const std::string message(values.status().message());
    DDL_CHECK(absl::IsInvalidArgument(values.status()));
    DDL_CHECK(absl::StartsWith(message, "any.yaml:"));
    DDL_CHECK(message.find('\n') == std::string::npos);
    return;
  }
  for (const auto& [id, value] : *values) {
    DDL_CHECK(Flag(id).BelongsTo(command));
    DDL_CHECK(absl::StartsWith(value.origin, "any.yaml:"));
    DDL_CHECK(value.text.find('\0') == std::string::npos);
  }
}

}  // namespace
}  // namespace ddl::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider provider(data, size);
  ddl::cli::Try(provider);
  return 0;
}
