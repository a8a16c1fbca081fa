// StoreServer: serves one store, PyTorch's TCPStore protocol, on one socket.
//
// One thread, one epoll. It never waits for one client: a reply that is not taken
// stays in a bounded buffer, and its client is not served meanwhile. What is no
// request, or beyond a limit, gets its connection closed. When descriptors or
// connections run out, newcomers wait in the socket's queue until others leave.
// Idle connections are kept: 1.13's second one never says a word, and spins when
// it is closed; peers that died without one are found by TCP's keepalive.
//
// As in PyTorch there is no authentication: whoever reaches the port may read and
// write the keys. Bind it to one address, and keep no secrets in it.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_SERVER_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/base/unique_fd.h"
#include "launcher/tcpstore/limits.h"

namespace ddl::tcpstore {

class StoreServer {
 public:
  struct Options {
    Limits limits;
    // Called on the server's thread, seldom: what a client did wrong, or a limit
    // that was met (then is_warning). Null: said to nobody.
    std::function<void(bool is_warning, const std::string& text)> say;
    // What a user can do where max_connections, or the process's descriptors, are
    // too few: goes into that warning; may be empty.
    std::string remedy = {};
  };

  // Serves the connections of `listener`, also those that came before. It is a
  // bound and listening TCP socket; it stays non-blocking.
  // RESOURCE_EXHAUSTED: no descriptor or thread is free.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(UniqueFd listener, Options options);

  // Closes everything at once. Waits for the thread, which never blocks.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  explicit StoreServer(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_SERVER_H_
