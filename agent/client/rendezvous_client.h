// RendezvousClient: an agent's side of its session with the coordinator.
//
// Driven by one thread's event loop: when poll_fd() is readable or deadline()
// has passed, call OnReady(now). It never blocks. It opens the stream, says
// Hello, sends heartbeats, and comes back with the same incarnation when the
// stream breaks; what the messages mean is the node's business.
//
//   connecting --Welcome--> connected --stream breaks, or silence--> connecting
//       |                                                                |
//       |  connect_timeout without a first Welcome,                      |
//       +-> or reconnect_grace without another --> lost (final) <--------+
//
// Silence: nothing heard for heartbeat_timeout - 2 x heartbeat_interval. With
// the grace to reconnect it ends before the coordinator's own heartbeat_timeout,
// so an agent that is cut off knows it before it is replaced.
//
// Not thread safe.
#ifndef DDLAUNCH_AGENT_CLIENT_RENDEZVOUS_CLIENT_H_
#define DDLAUNCH_AGENT_CLIENT_RENDEZVOUS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "agent/base/clock.h"
#include "agent/core/types.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddl {

// Something the user may want to know while it is being tried.
struct ClientNotice {
  std::string text;
};
// The coordinator is out of reach for good, or answered nonsense. Final.
struct ClientLost {
  absl::Status status;
};
using ClientEvent = std::variant<core::Message, ClientNotice, ClientLost>;

class RendezvousClient {
 public:
  // A channel to "host:port" or "[v6]:port".
  static std::shared_ptr<grpc::Channel> NewChannel(const std::string& endpoint);

  // `endpoint` is for messages. `hello` is sent on each stream. Gives up when
  // there was no Welcome within `connect_timeout`. Starts connecting at once.
  RendezvousClient(const std::shared_ptr<grpc::Channel>& channel, std::string endpoint,
                   core::AgentConnected hello, Duration connect_timeout, Instant now);
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

  std::vector<ClientEvent> OnReady(Instant now);
  [[nodiscard]] int poll_fd() const;
  [[nodiscard]] std::optional<Instant> deadline() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_CLIENT_RENDEZVOUS_CLIENT_H_
