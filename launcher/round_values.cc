// Between the rendezvous's values and the worker group's.
#include "launcher/round_values.h"

#include <csignal>

#include "agent/base/device_memory.h"
#include "launcher/exit_code.h"
#include "launcher/failures/failure_account.h"

namespace ddl {

core::WorkerFailure ToFailure(const WorkerExit& exit, const std::string& host) {
  core::WorkerFailure failure;
  failure.rank = exit.rank;
  failure.local_rank = exit.local_rank;
  failure.pid = exit.pid;
  failure.host = host;
  failure.exit_code = exit.exit_code;
  failure.term_signal = exit.term_signal;
  failure.wall_time_s = exit.wall_time_s;
  failure.error_text = exit.error_text;
  failure.error_file = exit.error_file;
  failure.hint = exit.hint;
  // SIGPIPE: it wrote to a peer that had gone.
  failure.blames_peer = exit.term_signal == SIGPIPE ||
                        (BlamesPeer(exit.error_text) && !LastSaysOutOfMemory(exit.error_text));
  return failure;
}

void MarkOutOfMemory(const std::set<std::int32_t>& exit_codes,
                     const std::optional<MemoryReport>& reported, core::WorkerFailure& failure) {
  failure.out_of_memory =
      reported.has_value() ||
      EndedOutOfMemory({failure.exit_code, failure.term_signal, failure.error_text}, exit_codes);
  if (failure.out_of_memory) {
    failure.blames_peer = false;
    failure.micro_batch_size = reported.value_or(MemoryReport()).micro_batch_size;
  }
  // The out-of-memory killer's hint stays.
  const bool is_kill =
      failure.term_signal == SIGKILL || failure.exit_code == kSignalExitBase + SIGKILL;
  if (failure.out_of_memory && (reported.has_value() || !is_kill)) {
    const MemoryReport said = reported.value_or(MemoryReport());
    failure.hint = ExplainDeviceMemory(
        said.memory != DeviceMemory() ? said.memory : ReadDeviceMemory(failure.error_text));
  }
}

RoundInfo ToRoundInfo(const core::RoundStart& start, const std::string& job_id,
                      const std::string& gateway) {
  RoundInfo info;
  info.round = start.round;
  info.restart_count = start.restart_count;
  info.max_restarts = start.max_restarts;
  info.node_rank = start.node_rank;
  info.num_nodes = start.num_nodes;
  info.first_rank = start.first_rank;
  info.nproc = start.nproc;
  info.world_size = start.world_size;
  info.master_addr = start.master_addr;
  info.master_port = static_cast<std::uint16_t>(start.master_port);
  info.gateway = gateway;
  info.job_id = job_id;
  info.plan = start.plan;
  info.worker_addresses = start.worker_addresses;
  info.first_worker_port = static_cast<std::uint16_t>(start.first_worker_port);
  return info;
}

}  // namespace ddl
