// Connection: one client of the store: what it sent and is not served yet, what
// it was sent and has not taken yet. The server's thread owns it.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_CONNECTION_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "agent/base/unique_fd.h"
#include "launcher/tcpstore/key_table.h"
#include "launcher/tcpstore/limits.h"
#include "launcher/tcpstore/out_buffer.h"
#include "launcher/tcpstore/protocol.h"

namespace ddl::tcpstore {

class Connection {
 public:
  // REQUIRES: `limits` outlives it.
  Connection(UniqueFd fd, KeyTable::Client client, const Limits& limits)
      : fd_(std::move(fd)), client_(client), limits_(limits), parser_(limits) {}

  // Serves the requests in `bytes`, as far as the client takes the replies; the
  // rest is kept. An error: this connection is to be closed.
  absl::Status Receive(std::string_view bytes, KeyTable& table);
  // Its wait is over.
  void Wake() { AppendByte(kStopWaiting, out_.tail()); }
  // Sends what the socket takes, and serves what was kept for that.
  // CANCELLED: the client has gone.
  absl::Status Flush(KeyTable& table);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] KeyTable::Client client() const { return client_; }
  // For epoll.
  [[nodiscard]] bool wants_read() const { return unserved_.empty(); }
  [[nodiscard]] bool wants_write() const { return !out_.empty(); }
  [[nodiscard]] std::size_t buffered_bytes() const {
    return unserved_.size() + parser_.held_bytes() + out_.size();
  }
  // The last interest that epoll was told of; and the last buffered_bytes() that
  // was counted. For the server.
  std::uint32_t interest = 0;
  std::size_t counted_bytes = 0;

 private:
  absl::Status ServeSome(std::string_view& bytes, KeyTable& table);
  absl::Status Send();

  const UniqueFd fd_;
  const KeyTable::Client client_;
  const Limits& limits_;
  RequestParser parser_;
  std::string unserved_;
  OutBuffer out_;
};

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_CONNECTION_H_
