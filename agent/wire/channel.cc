// gRPC settings of both ends.
#include "agent/wire/channel.h"

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "agent/base/limits.h"

namespace ddl::wire {

void ConfigureChannel(grpc::ChannelArguments* arguments) {
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
  builder->SetMaxReceiveMessageSize(static_cast<int>(limits::kMaxMessageBytes));
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace ddl::wire
