// Coordinator: the rendezvous core behind a gRPC server.
//
// One thread owns the core, its timers and the table of sessions. gRPC reactors
// only post events to it, one at a time for each stream: the next read of a
// stream starts when its last event was handled, so a flood from one agent is
// held back by TCP and cannot crowd out the others. Thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_COORDINATOR_H_
#define DDLAUNCH_AGENT_SERVICE_COORDINATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/base/limits.h"
#include "agent/core/rendezvous.h"
#include "agent/store/store.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace ddl {

class Coordinator {
 public:
  struct Options {
    core::Options core;
    // Where to listen: "127.0.0.1", "::1", "::" (every interface).
    std::string listen_host = "127.0.0.1";
    std::uint16_t listen_port = 0;  // 0: a free one
    // The secret that an agent has to give; empty: none is asked for. Refusals
    // for it, and a lack of descriptors, are explained under an empty job id.
    std::string token;
    // A stream whose Hello has not come by then is ended; so many may wait for it.
    Duration hello_timeout = std::chrono::seconds(10);
    std::size_t max_unintroduced_streams = limits::kMaxUnintroducedStreams;
    // Gets each decision in words. Called on the coordinator's thread; must not
    // block.
    std::function<void(const core::Explain&)> explain;
    // Gets a line when a job begins and when it ends; called as `explain` is.
    std::function<void(const std::string&)> tell_of_job;
  };

  // Binds and serves. ALREADY_EXISTS: the port is taken. UNAVAILABLE: it cannot
  // listen there for another reason, which the message says.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(Options options,
                                                            std::unique_ptr<store::Store> store);
  // Ends every session (agents see UNAVAILABLE) and joins the thread.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  [[nodiscard]] std::uint16_t port() const;

  // A channel to this coordinator within the process: the host's own agent
  // needs no connection, which is a millisecond less at every start.
  [[nodiscard]] std::shared_ptr<grpc::Channel> InProcessChannel() const;

  // Tells every agent that the coordinator goes (UNAVAILABLE: they try to come
  // back) and takes no other. Returns when all have heard it, or after `at_most`.
  // Only the destructor is left to call then.
  void EndSessions(Duration at_most);

  // Waits until no job is left that an agent could come back to, and no agent is
  // connected: whoever hosts the coordinator leaves last. False when `timeout`
  // passed first.
  bool WaitUntilIdle(Duration timeout);

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_COORDINATOR_H_
