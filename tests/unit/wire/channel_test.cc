// What both ends set up once for their process.
#include "agent/wire/channel.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <string>

#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl::wire {
namespace {

TEST(ConfigureServer, TextThatIsNotUtf8_IsRefusedWithoutALineOnStderr) {
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  const std::string bad_job_id = "\x0a\x03\x12\x01\xff";  // AgentMessage.hello.job_id
  ddlaunch::v1::AgentMessage message;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(message.ParseFromString(bad_job_id));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace ddl::wire
