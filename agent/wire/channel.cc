// gRPC settings of both ends.
#include "agent/wire/channel.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <climits>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "agent/base/limits.h"

namespace ddl::wire {
namespace {

// What gRPC does by default with each message and connection for those who tune
// and look into it: a third of a large coordinator's work.
constexpr std::pair<const char*, int> kNotWanted[] = {
    {GRPC_ARG_ENABLE_CHANNELZ, 0},
    // A ping with each burst of data, to size the flow-control window. Ours
    // suffices: messages are small and rare.
    {GRPC_ARG_HTTP2_BDP_PROBE, 0},
    // Never; a server's default is two hours, and a timer moved by each message.
    {GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX},
};

// For the whole process. A peer's text that is not UTF-8 is refused with a
// status; Protobuf would also write a line to stderr, as often as the peer likes.
void LeaveOutLogLines() {
  google::protobuf::SetLogHandler(nullptr);
}

// Distributions build Abseil with asserts, and so with a graph of all locks that
// gRPC takes, which is itself behind one lock. For the whole process.
void LeaveOutDeadlockDetection() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace

void ConfigureChannel(grpc::ChannelArguments* arguments) {
  LeaveOutLogLines();
  LeaveOutDeadlockDetection();
  for (const auto& [name, value] : kNotWanted) {
    arguments->SetInt(name, value);
  }
  arguments->SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  arguments->SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Two clients in one process (tests) must not share a connection.
  arguments->SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  constexpr int kReconnectBackoffMs = 200;
  arguments->SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectBackoffMs);
  // gRPC's name for the least time that one try to connect is given.
  constexpr int kConnectTimeoutMs = 5000;
  arguments->SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments->SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectBackoffMs * 5);
}

void ConfigureServer(grpc::ServerBuilder* builder) {
  LeaveOutLogLines();
  LeaveOutDeadlockDetection();
  for (const auto& [name, value] : kNotWanted) {
    builder->AddChannelArgument(name, value);
  }
  builder->SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace ddl::wire
