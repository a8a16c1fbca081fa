// RendezvousClient: an agent's side of its session with the coordinator, over
// gRPC. What it decides is in session.h (connecting, silence, reconnecting, the
// lease); this carries it out.
//
// Driven by one thread's event loop: when poll_fd() is readable or deadline()
// has passed, call OnReady(now). It never blocks. Not thread safe.
#ifndef DDLAUNCH_AGENT_CLIENT_RENDEZVOUS_CLIENT_H_
#define DDLAUNCH_AGENT_CLIENT_RENDEZVOUS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/clock.h"
#include "agent/client/session.h"
#include "agent/core/types.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddl {

class RendezvousClient {
 public:
  // A channel to "host:port" or "[v6]:port".
  static std::shared_ptr<grpc::Channel> NewChannel(const std::string& endpoint);

  struct Options {
    std::string endpoint;           // for messages
    core::AgentConnected hello;     // sent on each stream, with its changes since
    Duration connect_timeout{};     // without a first Welcome: lost
    std::string token{};            // admits this agent, where one is asked for
    bool is_irreplaceable = false;  // see Session::Options
  };

  // Starts connecting at once.
  RendezvousClient(const std::shared_ptr<grpc::Channel>& channel, Options options, Instant now);
  // Breaks the stream without goodbye if it is still open.
  ~RendezvousClient();
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  // Sends if connected, else drops it: after each Welcome the caller says again
  // what is still open, since what was sent last may be lost with a stream.
  void Send(const core::Event& event);
  // Another free port for the next round's rank 0; see Hello.master_port.
  void SetMasterPort(std::uint16_t port);
  // Says goodbye and closes; nothing is reconnected from now on.
  void Leave(std::string why);
  // The stream has ended after Leave, or was lost for good.
  [[nodiscard]] bool closed() const;
  // Until when this node may believe that it still holds its place; see
  // Session::lease_until.
  [[nodiscard]] std::optional<Instant> lease_until() const;

  std::vector<ClientEvent> OnReady(Instant now);
  [[nodiscard]] int poll_fd() const;
  [[nodiscard]] std::optional<Instant> deadline() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_CLIENT_RENDEZVOUS_CLIENT_H_
