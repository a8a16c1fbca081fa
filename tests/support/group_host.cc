// group_host NPROC PROGRAM [ARGUMENT...]: a process that owns a WorkerGroup and
// nothing else, for tests that kill or freeze the owner. SIGTERM stops the group.
// Its exit code is the first failed worker's. While GROUP_HOST_LEASE_MS is set, it
// renews a lease of that length all the time.
#include <poll.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "agent/base/unique_fd.h"
#include "launcher/exit_code.h"
#include "launcher/process/supervisor.h"
#include "launcher/worker/worker_group.h"

namespace {

ddl::UniqueFd TakeSigterm() {
  sigset_t signals{};
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return ddl::UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC));
}

// Nothing: no lease.
std::optional<std::chrono::milliseconds> Lease() {
  const char* const text = std::getenv("GROUP_HOST_LEASE_MS");
  return text == nullptr ? std::nullopt : std::optional(std::chrono::milliseconds(std::atoi(text)));
}

void Renew(ddl::WorkerGroup& group) {
  if (const auto lease = Lease(); lease.has_value()) {
    group.SetLease(ddl::MonotonicNow() + *lease);
  }
}

int Run(ddl::WorkerGroup& group, int signals) {
  constexpr int kRenewalsPerLease = 10;
  const auto lease = Lease();
  int exit_code = 0;
  while (!group.idle()) {
    Renew(group);
    std::vector<pollfd> fds{{group.poll_fd(), POLLIN, 0}, {signals, POLLIN, 0}};
    int timeout_ms = -1;
    if (group.deadline().has_value()) {
      const auto left = *group.deadline() - ddl::MonotonicNow();
      timeout_ms = static_cast<int>(
          std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count()));
    }
    if (lease.has_value()) {
      const int renew_ms = static_cast<int>(lease->count()) / kRenewalsPerLease;
      timeout_ms = timeout_ms < 0 ? renew_ms : std::min(timeout_ms, renew_ms);
    }
    ::poll(fds.data(), fds.size(), timeout_ms);
    if (fds[1].revents != 0) {
      signalfd_siginfo info{};
      [[maybe_unused]] const ssize_t n = ::read(signals, &info, sizeof(info));
      group.Stop(ddl::MonotonicNow());
    }
    const auto exits = group.OnReady(ddl::MonotonicNow());
    if (!exits.ok()) {
      std::fprintf(stderr, "%s\n", exits.status().ToString().c_str());
      return 1;
    }
    for (const ddl::WorkerExit& exit : *exits) {
      if (exit.pid == 0) {
        std::fprintf(stderr, "%s\n", exit.error_text.c_str());
      }
      if (exit_code == 0) {
        exit_code =
            exit.term_signal != 0 ? ddl::kSignalExitBase + exit.term_signal : exit.exit_code;
      }
    }
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  auto supervisor = ddl::Supervisor::Fork();
  if (!supervisor.ok() || argc < 3) {
    return 2;
  }
  const ddl::UniqueFd signals = TakeSigterm();
  ddl::LaunchConfig config;
  config.nproc = std::atoi(argv[1]);
  config.argv.assign(argv + 2, argv + argc);
  config.program_name = argv[2];
  ddl::WorkerGroup group(config, *std::move(supervisor));
  ddl::RoundInfo round;
  round.round = 1;
  round.nproc = config.nproc;
  round.world_size = config.nproc;
  round.job_id = "host";
  Renew(group);  // before the start: whoever freezes this process may come during it
  if (const absl::Status started = group.Start(round); !started.ok()) {
    std::fprintf(stderr, "%s\n", started.ToString().c_str());
    return ddl::ExitCodeFor(started);
  }
  const int exit_code = Run(group, signals.get());
  return group.FlushConsole(std::chrono::seconds(10)) ? exit_code : 1;
}
