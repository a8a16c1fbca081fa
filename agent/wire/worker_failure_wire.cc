// WorkerFailure to and from the wire.
#include "agent/wire/worker_failure_wire.h"

#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/wire/wire.h"
#include "ddlaunch/v1/rendezvous.pb.h"

namespace ddl::wire {

ddlaunch::v1::WorkerFailure FailureToWire(const core::WorkerFailure& failure) {
  ddlaunch::v1::WorkerFailure out;
  out.set_rank(failure.rank);
  out.set_local_rank(failure.local_rank);
  out.set_pid(failure.pid);
  out.set_host(failure.host);
  out.set_exit_code(failure.exit_code);
  out.set_term_signal(failure.term_signal);
  out.set_wall_time_s(failure.wall_time_s);
  out.set_error_text(failure.error_text);
  out.set_error_file(failure.error_file);
  out.set_blames_peer(failure.blames_peer);
  out.set_hint(failure.hint);
  out.set_out_of_memory(failure.out_of_memory);
  out.set_micro_batch_size(failure.micro_batch_size);
  return out;
}

absl::StatusOr<core::WorkerFailure> FailureFromWire(const ddlaunch::v1::WorkerFailure& failure) {
  DDL_RETURN_IF_ERROR(CheckSize("host", failure.host(), limits::kMaxHostBytes));
  DDL_RETURN_IF_ERROR(CheckSize("error_text", failure.error_text(), limits::kMaxErrorTextBytes));
  DDL_RETURN_IF_ERROR(CheckSize("error_file", failure.error_file(), limits::kMaxTextBytes));
  DDL_RETURN_IF_ERROR(CheckSize("hint", failure.hint(), limits::kMaxTextBytes));
  core::WorkerFailure out;
  out.rank = failure.rank();
  out.local_rank = failure.local_rank();
  out.pid = failure.pid();
  out.host = failure.host();
  out.exit_code = failure.exit_code();
  out.term_signal = failure.term_signal();
  out.wall_time_s = failure.wall_time_s();
  out.error_text = failure.error_text();
  out.error_file = failure.error_file();
  out.blames_peer = failure.blames_peer();
  out.hint = failure.hint();
  out.out_of_memory = failure.out_of_memory();
  out.micro_batch_size = failure.micro_batch_size();
  return out;
}

}  // namespace ddl::wire
