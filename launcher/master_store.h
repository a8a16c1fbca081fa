// MasterStore: MASTER_PORT of this node, and the store behind it.
//
// PyTorch's workers meet in a TCPStore at MASTER_ADDR:MASTER_PORT. The node of
// rank 0 serves it (TORCHELASTIC_USE_AGENT_STORE=True): the port is listened at
// before it is announced, so nobody can be faster, and nobody connects too early.
// Every round has a store of its own, with nothing of the round before in it. It
// outlives this node's workers, until the next round or the end of ddlaunch: those
// of other nodes may need it longer.
//
// With `worker_store` rank 0's worker serves it itself, as without an agent: the
// port is then only reserved (port_reservation.h), or the user's own.
//
// The user's --master-port is served on a single node only; on several it is the
// coordinator's, and the workers' is a free one on the node of rank 0.
//
// Not thread safe. What it has to say goes to log.h.
#ifndef DDLAUNCH_LAUNCHER_MASTER_STORE_H_
#define DDLAUNCH_LAUNCHER_MASTER_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/net/address.h"
#include "launcher/net/name_lookup.h"
#include "launcher/net/port_reservation.h"
#include "launcher/net/tcp_listener.h"
#include "launcher/tcpstore/server.h"

namespace ddl {

class MasterStore {
 public:
  struct Options {
    // MASTER_ADDR where this node has rank 0: all that the store listens at. Where
    // it is no address of this host (NAT), it listens at all of them, and says so.
    std::string address;
    std::string address_flag;  // "--master-addr": where it came from, for errors
    std::uint16_t port = 0;    // the user's; 0: a free one for each round
    bool worker_store = false;
    std::size_t max_connections = 0;  // what the process's descriptors allow
  };
  explicit MasterStore(Options options) : options_(std::move(options)) {}

  // Looks the address up. Before the others. NOT_FOUND: not in time, with the flag;
  // CANCELLED: should_stop() said so.
  absl::Status FindAddress(const Patience& patience);

  // The port for the next round, if rank 0 is here. ALREADY_EXISTS: the user's
  // port is in use, PERMISSION_DENIED: it is not for this user, both with the
  // remedy; RESOURCE_EXHAUSTED: no port is free.
  absl::StatusOr<std::uint16_t> NextPort();

  // The round begins: the store before ends, and a new one serves `master_port` if
  // rank 0 is here, else the port is given up.
  // FAILED_PRECONDITION: this is not the port that NextPort gave, so nobody serves
  // it; RESOURCE_EXHAUSTED: no thread or descriptor is free.
  absl::Status BeginRound(bool has_rank_zero, std::uint16_t master_port);

 private:
  absl::StatusOr<TcpListener> Listen();

  const Options options_;
  std::vector<SocketAddress> addresses_;  // empty: at all
  std::optional<PortReservation> reservation_;
  bool said_that_open_ = false;
  TcpListener next_;
  std::unique_ptr<tcpstore::StoreServer> server_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_MASTER_STORE_H_
