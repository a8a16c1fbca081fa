// Backend: collective operations over all ranks of the job.
//
// Every rank must call the same operations in the same order with the same
// sizes. An operation returns when this rank's part is done. Nothing waits for
// ever: an operation ends with an error when a peer has died (at once, when its
// connection breaks) or when the timeout has passed. After an error the backend
// is broken: every later call returns that error again, and the worker should
// exit, so that its launcher restarts the group; or all ranks Reconnect().
//
// Thread safety: one thread at a time, except for Interrupt().
#ifndef DDL_BACKEND_H_
#define DDL_BACKEND_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddl/context.h"

namespace ddl {

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

  // Replaces each element by its sum over all ranks. The order of the addition
  // is the backend's, the same on every rank: all get the same bits.
  // Errors: UNAVAILABLE, a peer is gone; DEADLINE_EXCEEDED, a peer did not come
  // in time; INTERNAL, the transport failed; RESOURCE_EXHAUSTED (IsOutOfMemory of
  // out_of_memory.h), a device had no room for the operation.
  virtual absl::Status AllReduceSum(std::span<float> values) = 0;
  virtual absl::Status AllReduceSum(std::span<double> values) = 0;

  // Replaces the bytes by those of rank `root`.
  virtual absl::Status Broadcast(std::span<std::byte> bytes, int root) = 0;

  // Waits until every rank is here.
  virtual absl::Status Barrier() = 0;

  // Leaves the connections, broken or not, and connects all ranks anew, in the
  // same round. Every rank must call it, and none before all ranks are done with
  // what they did before: what is on its way is lost. After an error this is the
  // only way to use the backend again. A rank that waits in an operation is set
  // free by Interrupt(); on Gloo also when its peers call this.
  // Errors: as of connecting; FAILED_PRECONDITION, the backend was closed.
  virtual absl::Status Reconnect() = 0;

  // Says that the ranks are about to Reconnect(). Until then every operation,
  // also the one in progress, ends with ABORTED; on Gloo the one in progress only
  // as soon as a peer has left its connections. May be called from any thread.
  virtual void Interrupt() = 0;

  // The orderly end: waits until every rank calls it, so that none disconnects
  // while another still waits for its last bytes. No operation may follow. A
  // backend that is destroyed without it looks to its peers like a death; a worker
  // that exits with 0 while it has one has left them, and counts as failed.
  virtual absl::Status Close() = 0;
};

struct BackendOptions {
  // The longest an operation, or the connection of all ranks, may take.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// Connects all ranks. `name`: "auto" (a world of one: "single", else "gloo"),
// "single" or "gloo" (CPU, TCP). Every rank must call it with the same name.
// Gloo makes the process ignore SIGPIPE, unless the program has set it otherwise.
// Errors: INVALID_ARGUMENT, an unknown name; DEADLINE_EXCEEDED / UNAVAILABLE, a
// rank that did not come: it is named.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const Context& context,
                                                       std::string_view name = "auto",
                                                       const BackendOptions& options = {});

}  // namespace ddl

#endif  // DDL_BACKEND_H_
