// Listener: the coordinator's TCP port.
//
// Connections are accepted here and handed to gRPC, since gRPC 1.51 never accepts
// again once the process was out of descriptors: a scanner with enough
// connections would have made a coordinator deaf for good. This one sends away
// what would take the last descriptors, and goes on. One thread; thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_LISTENER_H_
#define DDLAUNCH_AGENT_SERVICE_LISTENER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"

namespace ddl {

class Listener {
 public:
  // Takes a connection over (non-blocking): the socket that listens, and its own.
  using Take = std::function<void(int listener, UniqueFd connection)>;
  // Told, at most every 10 s, that connections are sent away.
  using Warn = std::function<void(const std::string&)>;

  // Binds and listens. `host`: a name (all its addresses), an address, or "::":
  // every address of this host, IPv4 too. `port` 0: a free one.
  // ALREADY_EXISTS: the port is taken. UNAVAILABLE: not an address of this host,
  // no such name, no right to the port.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& host,
                                                        std::uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Once: begins to accept. The callbacks run in the listener's thread.
  void Start(Take take, Warn warn);
  // No callback runs after it returns; the port is closed.
  void Stop();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  Listener();
  void Run() const;
  // False: descriptors are short, wait a moment.
  [[nodiscard]] bool AcceptAll(int listener, std::string& complaint) const;

  std::vector<UniqueFd> sockets_;
  std::uint16_t port_ = 0;
  UniqueFd stop_;  // eventfd: readable once it is to stop
  Take take_;
  Warn warn_;
  std::thread thread_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_LISTENER_H_
