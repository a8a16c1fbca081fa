// ddlaunch: the program.
#include <grpc/support/log.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "launcher/binding/shared_memory.h"
#include "launcher/cli/output.h"
#include "launcher/cli/parse.h"
#include "launcher/cli/token.h"
#include "launcher/coordinator_command.h"
#include "launcher/descriptor_limit.h"
#include "launcher/exit_code.h"
#include "launcher/log.h"
#include "launcher/node.h"
#include "launcher/process/supervisor.h"
#include "launcher/signals.h"
#include "launcher/standard_streams.h"
#include "launcher/tune/tune.h"
#include "launcher/worker/framework_env.h"

namespace ddl {
namespace {

// gRPC's own words go where ours of the same kind go: only shown on request.
void LogFromGrpc(gpr_log_func_args* args) {
  log::Debug(std::string("grpc: ") + args->message);
}

log::Level LevelFor(const LaunchConfig& config) {
  if (config.verbose) {
    return log::Level::kDebug;
  }
  return config.quiet ? log::Level::kWarn : log::Level::kInfo;
}

void Say(const cli::Notices& notices) {
  for (const cli::Notice& notice : notices) {
    switch (notice.level) {
      case cli::Notice::Level::kDebug:
        log::Debug(notice.text);
        break;
      case cli::Notice::Level::kInfo:
        log::Info(notice.text);
        break;
      case cli::Notice::Level::kWarning:
        log::Warn(notice.text);
        break;
    }
  }
}

// `ps e` shows what a process was started with: the secret goes, once it is read,
// from there and from what children inherit.
void ForgetTokenVariable() {
  if (char* const value = std::getenv(cli::kTokenVariable); value != nullptr) {
    ::explicit_bzero(value, std::strlen(value));
    ::unsetenv(cli::kTokenVariable);
  }
}

int Coordinate(const cli::CoordinatorCommand& command) {
  const SignalSet signals(LaunchConfig{}.stop_signals);
  log::Init(command.config.verbose ? log::Level::kDebug : log::Level::kInfo);
  gpr_set_log_function(LogFromGrpc);
  RaiseDescriptorLimit();
  Say(command.notices);
  return RunCoordinator(command.config, signals);
}

int Tune(const cli::TuneCommand& command) {
  SignalSet signals(LaunchConfig{}.stop_signals);
  log::Init(command.config.quiet ? log::Level::kWarn : log::Level::kInfo);
  Say(command.notices);
  return RunTune(command.config, signals);
}

int Launch(const cli::LaunchCommand& command) {
  if (const absl::Status made = cli::MakeLogDirectory(command.config); !made.ok()) {
    log::Init(log::Level::kError);
    log::Error(std::string(made.message()));
    return ExitCodeFor(made);
  }
  // Before anything starts a thread: the supervisor is forked.
  auto supervisor = Supervisor::Fork();
  SignalSet signals(command.config.stop_signals);
  log::Init(LevelFor(command.config));
  gpr_set_log_function(LogFromGrpc);
  if (!supervisor.ok()) {
    log::Error(std::string(supervisor.status().message()));
    return kExitFailure;
  }
  RaiseDescriptorLimit();
  // Now, and not only when the workers start, after others had been met.
  if (const absl::Status enough =
          EnsureDescriptors({.nproc = command.config.nproc,
                             .worker_ports = NeedsWorkerPorts(command.config.frameworks)});
      !enough.ok()) {
    log::Error(std::string(enough.message()));
    return kExitFailure;
  }
  Say(command.notices);
  if (command.config.nproc > 1) {
    if (const std::string warning = SharedMemoryWarning(); !warning.empty()) {
      log::Warn(warning);
    }
  }
  return RunNode(command.config, *std::move(supervisor), signals);
}

int Main(int argc, char** argv) {
  const auto parsed = cli::ParseCommandLine(argc, argv, cli::SurroundingsOfThisProcess(environ));
  ForgetTokenVariable();
  if (!parsed.ok()) {
    log::Init(log::Level::kError);
    log::Error(std::string(parsed.status().message()));
    return ExitCodeFor(parsed.status());
  }
  if (const auto* print = std::get_if<cli::PrintAndExit>(&*parsed)) {
    const absl::Status printed = PrintToStdout(print->text);
    if (!printed.ok()) {
      log::Init(log::Level::kError);
      log::Error(std::string(printed.message()));
    }
    return printed.ok() ? print->exit_code : kExitFailure;
  }
  if (const auto* tune = std::get_if<cli::TuneCommand>(&*parsed)) {
    ::_exit(Tune(*tune));
  }
  // ddlaunch itself needs some, whatever its workers need.
  if (const absl::Status status = EnsureDescriptors({}); !status.ok()) {
    log::Error(std::string(status.message()));
    return kExitFailure;
  }
  const auto* launch = std::get_if<cli::LaunchCommand>(&*parsed);
  // Without the ends of threads and servers, which would only take time.
  ::_exit(launch != nullptr ? Launch(*launch)
                            : Coordinate(std::get<cli::CoordinatorCommand>(*parsed)));
}

}  // namespace
}  // namespace ddl

// NOLINTNEXTLINE(bugprone-exception-escape): any other exception is our mistake and ends in abort.
int main(int argc, char** argv) {
  try {
    return ddl::Main(argc, argv);
  } catch (const std::system_error& error) {
    // The standard library's only way to say that no thread can be started.
    ddl::log::SetSink(nullptr);
    ddl::log::Error(std::string("cannot start a thread: ") + error.what() +
                    "; raise the limit of processes (ulimit -u), or of memory (ulimit -v)");
    std::_Exit(ddl::kExitFailure);
  }
}
