// The gRPC settings both ends of a session must agree on, in one place.
//
// Keepalive faster than the server allows kills a stream ("too many pings"), so
// liveness is by our own heartbeats and gRPC's keepalive stays off.
#ifndef DDLAUNCH_AGENT_WIRE_CHANNEL_H_
#define DDLAUNCH_AGENT_WIRE_CHANNEL_H_

namespace grpc {
class ChannelArguments;
class ServerBuilder;
}  // namespace grpc

namespace ddl::wire {

// Sizes within limits.h, no proxy (http_proxy is for the web, not for peers),
// reconnects at our own pace.
void ConfigureChannel(grpc::ChannelArguments* arguments);

// Sizes within limits.h; a port is never shared with another process
// (SO_REUSEPORT would let two coordinators listen and split the job).
void ConfigureServer(grpc::ServerBuilder* builder);

}  // namespace ddl::wire

#endif  // DDLAUNCH_AGENT_WIRE_CHANNEL_H_
