// errno and step to a sentence with a remedy.
#include "launcher/worker/start_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "agent/base/errno_text.h"
#include "launcher/descriptor_limit.h"

namespace ddl {
namespace {

std::string ProcessLimitText() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

absl::Status ExecError(const LaunchConfig& config, int error) {
  const std::string& path = config.argv.front();
  const std::string shown =
      config.program_name == path ? path : config.program_name + " (" + path + ")";
  const std::string text = ErrnoText("cannot execute " + shown, error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case ENOEXEC:
      return absl::PermissionDeniedError(
          text + "; it is no program for this machine, or a script without a #! line");
    case E2BIG:  // cannot be executed, as a shell has it
      return absl::PermissionDeniedError(
          text + "; its arguments and environment together are too long for the kernel");
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      return absl::ResourceExhaustedError(text);
    default:  // EACCES, EPERM, EISDIR, ETXTBSY, ELOOP, ...
      return absl::PermissionDeniedError(text);
  }
}

}  // namespace

absl::Status StartError(const LaunchConfig& config, const SupervisorEvent& event) {
  const int error = event.status;
  switch (event.step) {
    case SpawnStep::kExec:
      return ExecError(config, error);
    case SpawnStep::kInterpreter:
      return absl::NotFoundError(std::string(ExecError(config, error).message()) +
                                 "; the interpreter that its first line names, or its dynamic "
                                 "loader, does not exist");
    case SpawnStep::kChdir:
      return absl::InvalidArgumentError(
          ErrnoText("cannot change to the workers' directory " + config.cwd, error));
    case SpawnStep::kBind:
      return absl::FailedPreconditionError(
          ErrnoText("cannot bind a worker to its CPUs", error) +
          "; they are no longer this job's (its cpuset has changed, or they went offline); start "
          "ddlaunch again, or without --numa-binding");
    case SpawnStep::kFork:
      return absl::ResourceExhaustedError(ErrnoText("cannot start another worker process", error) +
                                          "; processes allowed: " + ProcessLimitText() +
                                          " (ulimit -u), and the control group's pids.max");
    case SpawnStep::kReceive:
    case SpawnStep::kSetUp:
      break;
  }
  return absl::ResourceExhaustedError(ErrnoText("cannot set up a worker process", error) + "; " +
                                      DescriptorLimitText());
}

}  // namespace ddl
