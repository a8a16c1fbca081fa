// Gateway: what this node's workers may ask of their agent, while a round runs.
//
// It answers from memory where it can (registration, keys that some worker of
// this node fetched before) and otherwise asks the coordinator through `send`,
// once for all its workers. Served by gRPC on a Unix socket in a directory of
// mode 0700; see proto/ddlaunch/v1/worker_gateway.proto for the calls.
//
// Driven by one thread's event loop, as RendezvousClient is: when poll_fd() is
// readable or deadline() has passed, call OnReady(now). Never blocks, except in
// Start and the destructor (server start and shutdown). Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_H_
#define DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "agent/base/clock.h"
#include "agent/core/types.h"
#include "launcher/failures/out_of_memory.h"

namespace ddl {

class Gateway {
 public:
  // Takes an event to the coordinator; its `agent` is filled in by the taker.
  using SendFn = std::function<void(const core::Event&)>;
  // One worker's latest word on how far it is.
  struct Progress {
    std::int64_t step = 0;
    std::int64_t total_steps = 0;
    double samples_per_s = 0;
  };

  // Makes the directory and serves. `host` is this node's name, for messages.
  // Errors: the directory cannot be made (it is named, with the reason).
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(std::string job_id, std::string host,
                                                        SendFn send);
  // Ends every waiting call, stops serving and removes the directory.
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // "unix:/path": DDL_GATEWAY of a worker.
  [[nodiscard]] const std::string& target() const;
  // The directory it made, to be removed also when this process dies.
  [[nodiscard]] const std::string& directory() const;

  // `address` is this node's: its workers' peers reach them by it.
  void BeginRound(const core::RoundStart& round, const std::string& address);
  // At the end of a process that does not destroy it.
  void RemoveDirectory();

  // Says again to the coordinator what it has not answered: after a reconnect.
  void Resend();
  // Waiting calls fail with ABORTED: `why`.
  void EndRound(const std::string& why);

  // The coordinator's answers.
  void OnMessage(const core::KeyValue& message);
  void OnMessage(const core::BarrierDone& message);
  void OnMessage(const core::PlanReply& message);
  void OnMessage(const core::PlanChanged& message);

  void OnReady(Instant now);
  [[nodiscard]] int poll_fd() const;
  [[nodiscard]] std::optional<Instant> deadline() const;

  // How far a worker says it is; nothing when it has not said.
  [[nodiscard]] std::optional<Progress> progress(std::int32_t local_rank) const;

  // A group of ranks that need each other and that this worker has not left;
  // nothing: there is none.
  [[nodiscard]] std::optional<std::string> open_group(std::int32_t local_rank) const;

  // A worker that said, in the last round, that it ran out of device memory and could
  // not go on: what it said. Nothing: it has not.
  [[nodiscard]] std::optional<MemoryReport> out_of_memory(std::int32_t local_rank) const;

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddl

#endif  // DDLAUNCH_LAUNCHER_GATEWAY_GATEWAY_H_
