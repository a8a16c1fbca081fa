// The store at MASTER_PORT.
#include "launcher/master_store.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/descriptor_limit.h"
#include "launcher/log.h"

namespace ddl {

absl::Status MasterStore::FindAddress(const Patience& patience) {
  if (options_.worker_store) {
    return absl::OkStatus();
  }
  auto addresses = LookUp(options_.address, 0, patience);
  if (absl::IsNotFound(addresses.status()) && !options_.address_flag.empty()) {
    return absl::NotFoundError(absl::StrCat(options_.address_flag, "=", options_.address, ": ",
                                            addresses.status().message()));
  }
  DDL_ASSIGN_OR_RETURN(addresses_, std::move(addresses));
  return absl::OkStatus();
}

absl::StatusOr<TcpListener> MasterStore::Listen() {
  if (!addresses_.empty()) {
    auto listener = ListenOn(addresses_, options_.port);
    if (!absl::IsNotFound(listener.status())) {
      return listener;
    }
    addresses_.clear();
  }
  auto listener = ListenOnEveryAddress(options_.port);
  if (listener.ok() && !std::exchange(said_that_open_, true)) {
    log::Warn(absl::StrCat("MASTER_ADDR ", options_.address,
                           " is no address of this host: PyTorch's store listens at all of its "
                           "addresses, and whoever reaches the port can use it"));
  }
  return listener;
}

absl::StatusOr<std::uint16_t> MasterStore::NextPort() {
  if (options_.worker_store) {
    if (options_.port != 0) {
      return options_.port;
    }
    DDL_ASSIGN_OR_RETURN(reservation_, PortReservation::Make());
    return reservation_->port();
  }
  // The user's port is held from the first round to the last.
  if (options_.port == 0 || !next_.fd.valid()) {
    next_ = TcpListener{};
    auto listener = Listen();
    if (absl::IsAlreadyExists(listener.status())) {
      return absl::AlreadyExistsError(
          absl::StrCat("--master-port=", options_.port, ": the port is in use on this host (",
                       options_.address, "); give another, or none for a free one"));
    }
    if (absl::IsPermissionDenied(listener.status())) {
      return absl::PermissionDeniedError(absl::StrCat(
          "--master-port=", options_.port, ": this user may not listen at it (",
          listener.status().message(), "); give one above 1023, or none for a free one"));
    }
    if (!listener.ok()) {
      return absl::Status(
          listener.status().code(),
          absl::StrCat("no MASTER_PORT for PyTorch's store: ", listener.status().message()));
    }
    next_ = *std::move(listener);
  }
  return next_.port;
}

absl::Status MasterStore::BeginRound(bool has_rank_zero, std::uint16_t master_port) {
  if (options_.worker_store) {
    return absl::OkStatus();
  }
  server_.reset();
  if (!has_rank_zero) {
    next_ = TcpListener{};
    return absl::OkStatus();
  }
  if (!next_.fd.valid() || next_.port != master_port) {
    return absl::FailedPreconditionError(
        absl::StrCat("this node does not listen at MASTER_PORT ", master_port));
  }
  UniqueFd listener = std::move(next_.fd);
  if (options_.port != 0) {
    next_.fd = UniqueFd(::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
    if (!next_.fd.valid()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no descriptor for PyTorch's store: ", std::strerror(errno)));
    }
  }
  tcpstore::StoreServer::Options options;
  if (options_.max_connections < options.limits.max_connections) {
    options.limits.max_connections = options_.max_connections;
    options.remedy = DescriptorLimitText();
  }
  options.say = [](bool is_warning, const std::string& text) {
    is_warning ? log::Warn(text) : log::Debug(text);
  };
  DDL_ASSIGN_OR_RETURN(server_,
                       tcpstore::StoreServer::Start(std::move(listener), std::move(options)));
  return absl::OkStatus();
}

}  // namespace ddl
