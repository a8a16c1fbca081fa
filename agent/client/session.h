// Session: what an agent decides about its session with the coordinator. Pure:
// no gRPC, thread or clock; time and words come in, actions go out in order.
// RendezvousClient carries them out over gRPC; tests/sim does in a simulated
// world.
//
// It opens a stream, says Hello, sends heartbeats, and comes back with the same
// incarnation when the stream breaks; what the messages mean is the node's
// business.
//
//   connecting --Welcome--> connected --stream breaks, or silence--> connecting
//       |                       |                                        |
//       |                       | in a round, and the lease runs out     |
//       |                       v                                        |
//       +------------------> lost (final) <------------------------------+
//   connect_timeout without a first Welcome,   3/4 reconnect_grace without another
//   (the rest is for what the two ends differ in noticing the break)
//
// Silence: nothing heard for heartbeat_timeout - 2 x heartbeat_interval. With
// the grace to reconnect it ends before the coordinator's own heartbeat_timeout,
// so an agent that is cut off knows it before it is replaced.
//
// Lease: the coordinator gives an agent up heartbeat_timeout after it heard from
// it, so after it was sent what an acknowledgement answers. Until then less one
// heartbeat_interval (for the drift of two clocks, and to kill the workers) a
// node may believe that its place is its own, whatever else it hears.
#ifndef DDLAUNCH_AGENT_CLIENT_SESSION_H_
#define DDLAUNCH_AGENT_CLIENT_SESSION_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/core/types.h"

namespace ddl {

// Something the user may want to know while it is being tried.
struct ClientNotice {
  std::string text;
};
// The coordinator is out of reach for good, or answered nonsense. Final.
struct ClientLost {
  absl::Status status;
};
// What the node is told.
using ClientEvent = std::variant<core::Message, ClientNotice, ClientLost>;

// A new stream, number `attempt`, whose first message is `hello`. There is none
// when this is asked for.
struct OpenStream {
  int attempt = 0;
  core::AgentConnected hello;
};
// On the open stream. The sender's name (Event.agent) is the stream's.
struct SendEvent {
  core::Event event;
};
// Break the open stream now; its end need not be told.
struct CancelStream {};
// Close the agent's side of it once all is written; its end is to be told.
struct HalfCloseStream {};
// In the order in which they are to be carried out; the last three are what the
// node is told.
using SessionAction = std::variant<OpenStream, SendEvent, CancelStream, HalfCloseStream,
                                   core::Message, ClientNotice, ClientLost>;
using SessionActions = std::vector<SessionAction>;

// Not thread safe. `now` never goes back.
class Session {
 public:
  struct Options {
    std::string endpoint;        // for messages
    core::AgentConnected hello;  // the session keeps its changing fields up to date
    Duration connect_timeout{};  // without a first Welcome: lost
    // Nobody can take its place while it stands still: its own process serves the
    // coordinator. The lease then ends nothing.
    bool is_irreplaceable = false;
  };

  Session(Options options, Instant now);

  // Once, first: the first try.
  [[nodiscard]] SessionActions Start(Instant now);

  // ---- from the node
  // Sends if connected, else drops it: after each Welcome the caller says again
  // what is still open, since what was sent last may be lost with a stream.
  [[nodiscard]] SessionActions Send(core::Event event);
  // Another free port for the next round's rank 0; see Hello.master_port.
  [[nodiscard]] SessionActions SetMasterPort(Instant now, std::uint16_t port);
  // Says goodbye and closes; nothing is reconnected from now on.
  [[nodiscard]] SessionActions Leave(std::string why);

  // ---- from stream number `attempt`; what a stream that was given up still
  // says is ignored
  // UNIMPLEMENTED: a newer coordinator's message, which is only heard. Another
  // error is final.
  [[nodiscard]] SessionActions OnMessage(Instant now, int attempt,
                                         absl::StatusOr<core::Message> message);
  [[nodiscard]] SessionActions OnStreamEnded(Instant now, int attempt, const absl::Status& status);

  // ---- from the clock: when deadline() has passed
  [[nodiscard]] SessionActions OnTime(Instant now);
  [[nodiscard]] std::optional<Instant> deadline() const;

  // The stream has ended after Leave, or was lost for good.
  [[nodiscard]] bool closed() const { return state_ == State::kClosed; }
  // Until when this node may believe that it still holds its place: see above.
  // Nothing before the first Welcome. Ends at once when the place is lost.
  [[nodiscard]] std::optional<Instant> lease_until() const { return lease_until_; }

 private:
  enum class State : std::uint8_t { kConnecting, kConnected, kLeaving, kClosed };

  void Open(Instant now, SessionActions& actions);
  // `master_port`: 0 when unchanged.
  void SendHeartbeat(Instant now, std::uint32_t master_port, SessionActions& actions);
  // False: the message is not for the node.
  bool Receive(Instant now, const core::Message& message, SessionActions& actions);
  // For the next Hello: what the plan was solved from. No plan: what memory taught.
  void Remember(const std::optional<plan::Plan>& plan, const plan::Request& request);
  void Welcomed(const core::Welcome& welcome);
  void Acknowledged(Instant sent);
  void EndLease(Instant now);
  void Break(Instant now, const std::string& why, SessionActions& actions);
  void Disconnected(Instant now, std::string why);
  void TryToConnect(Instant now, SessionActions& actions);
  void Lose(Instant now, absl::Status status, SessionActions& actions);
  [[nodiscard]] absl::Status OutOfReach(Instant now) const;
  [[nodiscard]] std::string Problem() const;
  // `otherwise`, or the end of the lease if it comes first and workers run.
  [[nodiscard]] Instant BoundByLease(Instant otherwise) const;

  const Options options_;
  core::AgentConnected hello_;
  State state_ = State::kConnecting;
  bool has_stream_ = false;  // false between tries
  int attempt_ = 0;
  bool was_connected_ = false;
  bool in_round_ = false;  // told to start workers, and not done with them
  std::string last_error_;

  Duration heartbeat_interval_{};
  Duration silence_limit_{};
  Duration lease_{};
  Duration reconnect_within_{};
  Instant last_heard_{};
  Instant heartbeat_at_{};
  Instant started_;  // of the tries to connect
  Instant give_up_at_;
  Instant notice_at_;
  Instant retry_at_{};
  Instant hello_sent_at_{};
  std::deque<Instant> unacknowledged_;  // when they were sent, on this stream
  std::optional<Instant> lease_until_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_CLIENT_SESSION_H_
