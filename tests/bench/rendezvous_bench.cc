// How long a real coordinator takes to form a round of N nodes, what it holds
// for each, and what their heartbeats cost it. The coordinator runs in a
// process of its own; N light agents, a few processes of them, join it over
// gRPC and loopback, each on its own connection. Everything shares the
// machine's processors: the agents' work is part of the time it takes.
//   rendezvous_bench [--processes=4] [--streams-per-connection=1]
//                    [--steady-seconds=10] [--repeat=1] [NODES...]
// Default: 100 1000 4000 12000. Columns:
//   form     from the first agent's start to the last RoundStart received, s
//   last     from the last Hello sent to the last RoundStart received, s
//   coord    processor time of the coordinator until then, s; agents: theirs
//   KiB/node what the coordinator's resident memory grew by, for each node
//   beats    processor time of the coordinator while each node beats once a
//            second, percent of one core; answered: of the beats due
//   end      from the last node's success to the last JobDone received, s
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/base/clock.h"
#include "agent/service/coordinator.h"
#include "agent/store/memory_store.h"
#include "tests/bench/light_agents.h"

namespace ddl::bench {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "rendezvous_bench: %s\n", what.c_str());
  std::_Exit(1);
}

std::int64_t Count(Instant instant) {
  return instant.time_since_epoch().count();
}

// ---- the processes of the bench ----------------------------------------------
// Each answers a line on its standard input with a line on its output.

int Serve() {
  auto coordinator =
      Coordinator::Start(Coordinator::Options(), std::make_unique<store::MemoryStore>());
  if (!coordinator.ok()) {
    Fail(std::string(coordinator.status().message()));
  }
  std::cout << (*coordinator)->port() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {  // "idle"
    std::cout << (*coordinator)->WaitUntilIdle(std::chrono::seconds(60)) << std::endl;
  }
  std::_Exit(0);
}

int Join(LightAgentsOptions options) {
  LightAgents agents(std::move(options));
  const auto check = [](const absl::Status& status) {
    if (!status.ok()) {
      Fail(std::string(status.message()));
    }
  };
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "join") {
      LightAgents::Formed formed;
      check(agents.Join(formed));
      std::cout << Count(formed.first_opened) << ' ' << Count(formed.last_joined) << ' '
                << Count(formed.last_started) << ' ' << formed.node_rank_sum << std::endl;
    } else if (line == "beats") {
      std::cout << agents.beats().answered << ' ' << agents.beats().skipped << std::endl;
    } else if (line == "finish") {
      Instant done;
      check(agents.Finish(done));
      std::cout << Count(done) << std::endl;
    }
  }
  std::_Exit(0);
}

// A child process of this program, spoken to by lines.
class Child {
 public:
  explicit Child(std::vector<std::string> args) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
      Fail("pipe2 failed");
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    args.insert(args.begin(), "rendezvous_bench");
    std::vector<char*> argv;
    for (std::string& arg : args) {
      argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) != 0) {
      Fail("posix_spawn failed");
    }
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = ::fdopen(out[0], "r");
  }
  // It ends when its input does.
  ~Child() {
    ::close(in_);
    ::waitpid(pid_, nullptr, 0);
    std::fclose(out_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Say(const std::string& line) const {
    const std::string text = line + "\n";
    if (::write(in_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      Fail("a process of the bench is gone");
    }
  }
  [[nodiscard]] std::vector<std::int64_t> Numbers() const {
    std::istringstream line(Line());
    std::vector<std::int64_t> numbers;
    for (std::int64_t number = 0; line >> number;) {
      numbers.push_back(number);
    }
    return numbers;
  }
  [[nodiscard]] std::string Line() const {
    constexpr std::size_t kLineBytes = 256;
    std::array<char, kLineBytes> line{};
    if (std::fgets(line.data(), static_cast<int>(line.size()), out_) == nullptr) {
      Fail("a process of the bench has failed");
    }
    return line.data();
  }

  // Of all its threads, so far.
  [[nodiscard]] double CpuSeconds() const {
    clockid_t clock{};
    timespec now{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &now) != 0) {
      Fail("the processor time of a process of the bench cannot be read");
    }
    constexpr double kNanosecond = 1e-9;
    return static_cast<double>(now.tv_sec) + kNanosecond * static_cast<double>(now.tv_nsec);
  }
  [[nodiscard]] double ResidentKib() const {
    std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
    std::string word;
    double kib = 0;
    while (status >> word) {
      if (word == "VmRSS:") {
        status >> kib;
      }
    }
    return kib;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  std::FILE* out_ = nullptr;
};

// ---- the measurement -----------------------------------------------------------

struct Settings {
  std::size_t processes = 4;
  std::size_t streams_per_connection = 1;
  std::size_t steady_seconds = 10;
  std::size_t repeat = 1;
  std::vector<std::size_t> sizes;
};

using Children = std::vector<std::unique_ptr<Child>>;

double SumCpu(const Children& children) {
  double seconds = 0;
  for (const auto& child : children) {
    seconds += child->CpuSeconds();
  }
  return seconds;
}

// Says it to each, and adds up what they answer.
std::vector<std::int64_t> SumAnswers(const Children& children, const std::string& line) {
  std::vector<std::int64_t> sum;
  for (const auto& child : children) {
    child->Say(line);
  }
  for (const auto& child : children) {
    const std::vector<std::int64_t> numbers = child->Numbers();
    sum.resize(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      sum[i] += numbers[i];
    }
  }
  return sum;
}

struct Formed {
  std::int64_t first_opened = INT64_MAX;
  std::int64_t last_joined = 0;
  std::int64_t last_started = 0;
};

Formed FormRound(const Children& children, std::size_t nodes) {
  Formed formed;
  std::int64_t rank_sum = 0;
  for (const auto& child : children) {
    child->Say("join");
  }
  for (const auto& child : children) {
    const std::vector<std::int64_t> told = child->Numbers();
    if (told.size() != 4) {
      Fail("a process of the bench answers nonsense");
    }
    formed.first_opened = std::min(formed.first_opened, told[0]);
    formed.last_joined = std::max(formed.last_joined, told[1]);
    formed.last_started = std::max(formed.last_started, told[2]);
    rank_sum += told[3];
  }
  if (rank_sum != static_cast<std::int64_t>(nodes * (nodes - 1) / 2)) {
    Fail("the node ranks are not 0 to N-1, each once");
  }
  return formed;
}

void Measure(std::size_t nodes, const Settings& settings) {
  constexpr double kNanosecond = 1e-9;
  constexpr double kPercent = 100;
  const Child coordinator({"--serve"});
  const std::int64_t port = coordinator.Numbers().at(0);
  Children agents;
  const std::size_t processes = std::min(settings.processes, nodes);
  for (std::size_t i = 0; i < processes; ++i) {
    const std::size_t first = nodes * i / processes;
    agents.push_back(std::make_unique<Child>(std::vector<std::string>{
        "--join", absl::StrCat("127.0.0.1:", port), absl::StrCat(first),
        absl::StrCat(nodes * (i + 1) / processes - first), absl::StrCat(nodes),
        absl::StrCat(settings.streams_per_connection)}));
  }
  for (const auto& child : agents) {
    static_cast<void>(child->Line());  // "ready"
  }

  const double kib_before = coordinator.ResidentKib();
  const double cpu_before = coordinator.CpuSeconds();
  const double agents_cpu_before = SumCpu(agents);
  const Formed formed = FormRound(agents, nodes);
  const double cpu_forming = coordinator.CpuSeconds() - cpu_before;
  const double agents_cpu = SumCpu(agents) - agents_cpu_before;
  const double kib = coordinator.ResidentKib() - kib_before;

  std::this_thread::sleep_for(std::chrono::seconds(1));  // what was late is over
  const std::vector<std::int64_t> beats_before = SumAnswers(agents, "beats");
  const Instant steady_began = MonotonicNow();
  const double steady_cpu_before = coordinator.CpuSeconds();
  std::this_thread::sleep_for(std::chrono::seconds(settings.steady_seconds));
  const double steady_cpu = coordinator.CpuSeconds() - steady_cpu_before;
  const double steady_seconds =
      std::chrono::duration<double>(MonotonicNow() - steady_began).count();
  const std::vector<std::int64_t> beats = SumAnswers(agents, "beats");
  const double answered = static_cast<double>(beats.at(0) - beats_before.at(0));

  const std::int64_t finish_began = Count(MonotonicNow());
  std::int64_t last_done = 0;
  for (const auto& child : agents) {
    child->Say("finish");
  }
  for (const auto& child : agents) {
    last_done = std::max(last_done, child->Numbers().at(0));
  }
  coordinator.Say("idle");
  if (coordinator.Numbers().at(0) != 1) {
    Fail("the coordinator did not become idle");
  }
  std::printf("%7zu %8.2f %8.2f %8.2f %8.2f %9.1f %8.1f %% %8.1f %% %7.2f\n", nodes,
              kNanosecond * static_cast<double>(formed.last_started - formed.first_opened),
              kNanosecond * static_cast<double>(formed.last_started - formed.last_joined),
              cpu_forming, agents_cpu, kib / static_cast<double>(nodes),
              kPercent * steady_cpu / steady_seconds,
              kPercent * answered / (steady_seconds * static_cast<double>(nodes)),
              kNanosecond * static_cast<double>(last_done - finish_began));
  std::fflush(stdout);
}

// Files one process may open: what is allowed after asking for `needed`.
std::size_t AllowedFiles(std::size_t needed) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur;
}

int Run(const Settings& settings) {
  std::printf("%zu processes of agents, %zu streams on each connection, %u processors\n",
              settings.processes, settings.streams_per_connection,
              std::thread::hardware_concurrency());
  std::printf("%7s %8s %8s %8s %8s %9s %10s %10s %7s\n", "nodes", "form s", "last s", "coord s",
              "agents s", "KiB/node", "beats", "answered", "end s");
  int result = 0;
  constexpr std::size_t kOtherFiles = 100;
  for (const std::size_t nodes : settings.sizes) {
    const std::size_t needed = nodes / settings.streams_per_connection + kOtherFiles;
    if (const std::size_t allowed = AllowedFiles(needed); allowed < needed) {
      std::printf(
          "%7zu not measured: the coordinator needs %zu open files, the hard limit "
          "(ulimit -Hn) is %zu\n",
          nodes, needed, allowed);
      result = 1;
      continue;
    }
    for (std::size_t i = 0; i < settings.repeat; ++i) {
      Measure(nodes, settings);
    }
  }
  return result;
}

Settings SettingsFrom(const std::vector<std::string>& args) {
  Settings settings;
  const std::vector<std::pair<std::string, std::size_t*>> flags = {
      {"--processes=", &settings.processes},
      {"--streams-per-connection=", &settings.streams_per_connection},
      {"--steady-seconds=", &settings.steady_seconds},
      {"--repeat=", &settings.repeat}};
  for (const std::string& arg : args) {
    std::size_t value = 0;
    std::size_t* target = nullptr;
    absl::string_view number = arg;
    for (const auto& [name, setting] : flags) {
      if (absl::ConsumePrefix(&number, name)) {
        target = setting;
      }
    }
    if (!absl::SimpleAtoi(number, &value) || value == 0) {
      Fail(absl::StrCat("'", arg, "' is neither a flag nor a number of nodes"));
    }
    if (target != nullptr) {
      *target = value;
    } else {
      settings.sizes.push_back(value);
    }
  }
  if (settings.sizes.empty()) {
    settings.sizes = {100, 1'000, 4'000, 12'000};
  }
  return settings;
}

int Main(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "--serve") {
    return Serve();
  }
  constexpr std::size_t kJoinArgs = 6;
  if (args.size() == kJoinArgs && args[0] == "--join") {
    return Join({args[1], std::stoul(args[2]), std::stoul(args[3]), std::stoul(args[4]),
                 std::stoul(args[5])});
  }
  return Run(SettingsFrom(args));
}

}  // namespace
}  // namespace ddl::bench

int main(int argc, char** argv) {
  return ddl::bench::Main({argv + 1, argv + argc});
}
