// How long it takes to start and await 4 x /bin/true: through a WorkerGroup,
// and by bare posix_spawn and waitpid, which is the floor. Prints the median
// and the best of many rounds, in microseconds.
//   spawn_bench [ROUNDS [NPROC]]
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "launcher/process/supervisor.h"
#include "launcher/worker/worker_group.h"

namespace {

constexpr int kDefaultRounds = 200;
constexpr int kDefaultNproc = 4;

void BareSpawn(int nproc) {
  std::vector<pid_t> pids(static_cast<std::size_t>(nproc));
  std::string program = "/bin/true";
  char* const argv[] = {program.data(), nullptr};
  for (pid_t& pid : pids) {
    if (::posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv, environ) != 0) {
      std::abort();
    }
  }
  for (const pid_t pid : pids) {
    ::waitpid(pid, nullptr, 0);
  }
}

void GroupSpawn(ddl::WorkerGroup& group, int nproc, int round_number) {
  ddl::RoundInfo round;
  round.round = round_number;
  round.nproc = nproc;
  round.world_size = nproc;
  round.job_id = "bench";
  if (!group.Start(round).ok()) {
    std::abort();
  }
  while (!group.idle()) {
    pollfd readable{group.poll_fd(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    if (!group.OnReady(ddl::MonotonicNow()).ok()) {
      std::abort();
    }
  }
}

template <typename Run>
void Measure(const char* name, int rounds, Run run) {
  std::vector<double> micros;
  for (int i = 0; i < rounds; ++i) {
    const ddl::Instant begin = ddl::MonotonicNow();
    run(i);
    micros.push_back(
        std::chrono::duration<double, std::micro>(ddl::MonotonicNow() - begin).count());
  }
  std::sort(micros.begin(), micros.end());
  std::printf("%-12s median %7.0f us  best %7.0f us\n", name, micros[micros.size() / 2],
              micros.front());
}

}  // namespace

int main(int argc, char** argv) {
  const ddl::Instant begin = ddl::MonotonicNow();
  auto supervisor = ddl::Supervisor::Fork();
  if (!supervisor.ok()) {
    return 1;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : kDefaultRounds;
  const int nproc = argc > 2 ? std::atoi(argv[2]) : kDefaultNproc;
  ddl::LaunchConfig config;
  config.argv = {"/bin/true"};
  config.program_name = "true";
  config.nproc = nproc;
  ddl::WorkerGroup group(config, *std::move(supervisor));
  GroupSpawn(group, nproc, 0);
  std::printf("%-12s %7.0f us, the fork of the supervisor included\n", "first round",
              std::chrono::duration<double, std::micro>(ddl::MonotonicNow() - begin).count());
  Measure("posix_spawn", rounds, [nproc](int /*i*/) { BareSpawn(nproc); });
  Measure("WorkerGroup", rounds, [&](int i) { GroupSpawn(group, nproc, i + 1); });
  return 0;
}
