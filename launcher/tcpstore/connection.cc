// One client of the store.
#include "launcher/tcpstore/connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "agent/base/status_macros.h"
#include "launcher/tcpstore/serve.h"

namespace ddl::tcpstore {

absl::Status Connection::ServeSome(std::string_view& bytes, KeyTable& table) {
  while (!bytes.empty() && out_.size() < limits_.max_unread_bytes) {
    DDL_ASSIGN_OR_RETURN(std::optional<Request> request, parser_.Next(bytes));
    if (request.has_value()) {
      DDL_RETURN_IF_ERROR(Serve(client_, *std::move(request), limits_, table, out_));
    }
  }
  return absl::OkStatus();
}

absl::Status Connection::Receive(std::string_view bytes, KeyTable& table) {
  if (unserved_.empty()) {
    DDL_RETURN_IF_ERROR(ServeSome(bytes, table));
  }
  unserved_.append(bytes);
  return absl::OkStatus();
}

absl::Status Connection::Send() {
  while (!out_.empty()) {
    const std::string_view front = out_.front();
    const ssize_t sent = ::send(fd_.get(), front.data(), front.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK ? absl::OkStatus()
                                                     : absl::CancelledError("the client has gone");
    }
    out_.Take(static_cast<std::size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status Connection::Flush(KeyTable& table) {
  DDL_RETURN_IF_ERROR(Send());
  while (!unserved_.empty() && out_.size() < limits_.max_unread_bytes) {
    const std::string bytes = std::exchange(unserved_, {});
    std::string_view rest = bytes;
    DDL_RETURN_IF_ERROR(ServeSome(rest, table));
    unserved_ = rest;
    DDL_RETURN_IF_ERROR(Send());
  }
  return absl::OkStatus();
}

}  // namespace ddl::tcpstore
