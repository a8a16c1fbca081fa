// Error files: the workers', and what is passed up from them.
#include "launcher/failures/error_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/failures/outer_error_file.h"
#include "tests/support/group_harness.h"

namespace ddl {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

void Write(const std::string& path, const std::string& content) {
  std::ofstream(path) << content;
}

TEST(ParseErrorFile, TorchForm_TracebackAndTime) {
  const ErrorFile file = ParseErrorFile(R"({"message": {"message": "ValueError: bad",
      "extraInfo": {"py_callstack": "Traceback:\n  f()\nValueError: bad\n", "timestamp": "17"}}})");
  EXPECT_EQ(file.text, "Traceback:\n  f()\nValueError: bad");
  EXPECT_EQ(file.timestamp_s, 17);
}

TEST(ParseErrorFile, StackWithoutTheMessage_Both) {
  EXPECT_EQ(ParseErrorFile(R"({"message":{"message":"m","extraInfo":{"py_callstack":"s"}}})").text,
            "m\ns");
}

TEST(ParseErrorFile, PlainForms_MessageAndTime) {
  const ErrorFile file = ParseErrorFile(R"({"message": "text", "timestamp": 18})");
  EXPECT_EQ(file.text, "text");
  EXPECT_EQ(file.timestamp_s, 18);
  EXPECT_EQ(ParseErrorFile(R"({"message": {"message": "text"}})").text, "text");
}

TEST(ParseErrorFile, AnythingElse_Empty) {
  for (const std::string& content :
       {std::string(), std::string("{"), std::string("null"), std::string("[1,2]"),
        std::string("{\"message\": 3}"), std::string("{\"message\": {\"message\": [1]}}"),
        std::string("{\"message\": null}"), std::string("\xFF\xFE"), std::string(100000, '[')}) {
    EXPECT_EQ(ParseErrorFile(content).text, "") << content.substr(0, 40);
  }
  EXPECT_EQ(ParseErrorFile(R"({"message": "m", "timestamp": "soon"})").timestamp_s, std::nullopt);
}

std::string Nested(std::size_t levels) {
  return R"({"message":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
}

TEST(ParseErrorFile, NestedAsDeepAsTheFileIsLarge_Empty) {
  const std::string deep = Nested(400'000);
  EXPECT_EQ(ParseErrorFile(deep).text, "");
  EXPECT_EQ(ParseErrorFile(R"({"message":"m","more":)" + deep + "}").text, "");
  EXPECT_EQ(ParseErrorFile(R"({"message":"m","more":)" + Nested(20) + "}").text, "m");
  const std::string brackets = R"("\\\"[[)" + std::string(1000, '{') + '"';
  EXPECT_EQ(ParseErrorFile(R"({"message":)" + brackets + "}").text,
            R"(\"[[)" + std::string(1000, '{'))
      << "they are text";
}

TEST(ReadErrorFile, MissingOrNoRegularFile_Empty) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(ReadErrorFile(directory / "missing").text, "");
  EXPECT_EQ(ReadErrorFile(directory.path()).text, "");
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadErrorFile(directory / "fifo").text, "");
  EXPECT_FALSE(ReadErrorFile(directory / "fifo").written_at.has_value());
}

TEST(WrittenAt, TimestampAndFileAgree_TheFilesFinerTime) {
  const WallTime modified{milliseconds(1'700'000'000'250)};
  EXPECT_EQ(WrittenAt(1'700'000'000, modified), modified);
  EXPECT_EQ(WrittenAt(1'699'999'999, modified), modified) << "written as the second ended";
  EXPECT_EQ(WrittenAt(std::nullopt, modified), modified);
  EXPECT_EQ(WrittenAt(-5, modified), modified);
  EXPECT_EQ(WrittenAt(INT64_MAX, modified), modified);
}

TEST(WrittenAt, FileServersClockIsAnother_EndOfTheTimestampsSecond) {
  const WallTime stamped{milliseconds(1'700'000'000'999)};
  EXPECT_EQ(WrittenAt(1'700'000'000, stamped + seconds(3600)), stamped);
  EXPECT_EQ(WrittenAt(1'700'000'000, stamped - seconds(3600)), stamped);
}

core::WorkerFailure Failure(int exit_code, int signal) {
  core::WorkerFailure failure;
  failure.rank = 1;
  failure.pid = 42;
  failure.exit_code = exit_code;
  failure.term_signal = signal;
  failure.wall_time_s = 1'700'000'000;
  return failure;
}

TEST(OuterErrorFile, WorkersFileIsHere_ItsContentWithTheErrorCode) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "error.json";
  Write(path, R"({"message":{"message":"E: x","extraInfo":{"py_callstack":"s","timestamp":"7"}}})");
  const json written = json::parse(OuterErrorFile(Failure(3, 0), path));
  EXPECT_EQ(written, json::parse(R"({"message":{"message":"E: x","errorCode":3,
                                  "extraInfo":{"py_callstack":"s","timestamp":"7"}}})"));
  EXPECT_EQ(json::parse(OuterErrorFile(Failure(0, 11), path))["message"]["errorCode"], -11);
}

TEST(OuterErrorFile, MessageIsAText_PassedUpAsItIs) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "error.json";
  Write(path, R"({"message": "text", "timestamp": 7})");
  EXPECT_EQ(json::parse(OuterErrorFile(Failure(3, 0), path)),
            json::parse(R"({"message": "text", "timestamp": 7})"));
}

TEST(OuterErrorFile, WorkersFileIsNestedDeeply_TheSameFormOfWhatIsKnown) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "error.json";
  Write(path, Nested(400'000));
  EXPECT_EQ(json::parse(OuterErrorFile(Failure(3, 0), path))["message"]["message"],
            "exited with code 3");
}

TEST(OuterErrorFile, NoFailureOfAWorker_TextAndCodeOfTheSameRule) {
  const auto message = [](const std::string& text, int code) {
    return json::parse(OuterErrorFile(text, code, 7))["message"];
  };
  EXPECT_EQ(message("1 of 2 nodes came", 1)["message"], "1 of 2 nodes came");
  EXPECT_EQ(message("1 of 2 nodes came", 1)["errorCode"], 1);
  EXPECT_EQ(message("", -15)["message"], "stopped by SIGTERM");
  EXPECT_EQ(message("", -15)["errorCode"], -15);
  EXPECT_EQ(message("", 3)["message"], "failed with exit code 3");
}

TEST(OuterErrorFile, NoFile_TheSameFormOfWhatIsKnown) {
  core::WorkerFailure failure = Failure(0, 9);
  failure.error_text = "last\nlines \xFF";
  json message = json::parse(OuterErrorFile(failure, ""))["message"];
  EXPECT_EQ(message["message"], "Signal 9 (SIGKILL) received by PID 42");
  EXPECT_EQ(message["errorCode"], -9);
  EXPECT_EQ(message["extraInfo"]["timestamp"], "1700000000");
  EXPECT_THAT(message["extraInfo"]["py_callstack"].get<std::string>(), HasSubstr("last\nlines"));

  failure = Failure(5, 0);
  EXPECT_EQ(json::parse(OuterErrorFile(failure, "/nowhere"))["message"]["message"],
            "exited with code 5");
  failure.error_text = "\n\n";
  EXPECT_EQ(json::parse(OuterErrorFile(failure, ""))["message"]["message"], "exited with code 5");
  failure.error_text = "Traceback\nValueError: bad\n\n";
  EXPECT_EQ(json::parse(OuterErrorFile(failure, ""))["message"]["message"], "ValueError: bad");
}

TEST(WriteOuterErrorFile, OldContentOrNoPlace_ReplacedOrAnError) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "outer.json";
  Write(path, std::string(1000, 'x'));
  ASSERT_TRUE(WriteOuterErrorFile(path, "{}").ok());
  EXPECT_EQ(test::ReadPath(path), "{}");
  EXPECT_THAT(std::string(WriteOuterErrorFile(directory / "no/where", "{}").message()),
              HasSubstr("TORCHELASTIC_ERROR_FILE"));
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_FALSE(WriteOuterErrorFile(directory / "fifo", "{}").ok());
}

}  // namespace
}  // namespace ddl
