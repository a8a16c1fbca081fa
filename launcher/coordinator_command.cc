// A standing coordinator: listens, logs, stops.
#include "launcher/coordinator_command.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/host.h"
#include "agent/base/signal_name.h"
#include "agent/service/coordinator.h"
#include "agent/store/memory_store.h"
#include "launcher/exit_code.h"
#include "launcher/log.h"
#include "launcher/logs/console_writer.h"
#include "launcher/net/address.h"
#include "launcher/poll_until.h"
#include "launcher/signals.h"

namespace ddl {
namespace {

constexpr Duration kGoodbyeTime = std::chrono::milliseconds(700);
constexpr Duration kFlushTime = std::chrono::milliseconds(200);
// Lines that wait for a slow reader of the log; beyond it they are dropped, since
// the meetings must not wait.
constexpr std::size_t kLogBytes = std::size_t{4} << 20U;

// What peers say about themselves must not forge lines of the log.
std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return text;
}

std::string WhereItListens(const CoordinatorConfig& config, std::uint16_t port) {
  std::string text = absl::StrCat("listening on ", JoinHostPort(config.listen_host, port));
  if (config.listen_host == "::") {
    absl::StrAppend(&text, " (every address of this host)");
  }
  return text;
}

bool IsLoopback(const std::string& host) {
  return IsLoopbackLiteral(host) || host == "localhost";
}

Coordinator::Options OptionsFor(const CoordinatorConfig& config) {
  Coordinator::Options options;
  options.core.heartbeat_interval = config.heartbeat_interval;
  options.core.heartbeat_timeout = config.heartbeat_timeout;
  options.listen_host = config.listen_host;
  options.listen_port = config.listen_port;
  options.token = config.token;
  options.explain = [](const core::Explain& explain) {
    const std::string text = OneLine(explain.text);
    if (explain.job_id.empty() && explain.reason == core::Reason::kLimit) {
      log::Warn(text);
    } else if (explain.job_id.empty()) {
      log::Info(absl::StrCat("refused: ", text));
    } else {
      log::Debug(absl::StrCat("job ", OneLine(explain.job_id), ": ", core::ToString(explain.reason),
                              ": ", text));
    }
  };
  options.tell_of_job = [](const std::string& line) { log::Info(OneLine(line)); };
  return options;
}

// Sleeps until a signal asks for the end; the others mean nothing here.
int WaitForStop(const SignalSet& signals) {
  for (;;) {
    std::array<pollfd, 1> fds{{{signals.fd(), POLLIN, 0}}};
    PollUntil(fds, std::nullopt);
    for (const int signal : signals.Read()) {
      if (signals.IsStop(signal)) {
        return signal;
      }
    }
  }
}

// From now on a signal has its default effect: the end.
void LetSignalsKill() {
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

int RunCoordinator(const CoordinatorConfig& config, const SignalSet& signals) {
  auto coordinator = Coordinator::Start(OptionsFor(config), std::make_unique<store::MemoryStore>());
  if (!coordinator.ok()) {
    log::Error(std::string(coordinator.status().message()));
    return kExitFailure;
  }
  // Lives until _exit, for the coordinator's thread writes to it.
  static auto* const writer = new ConsoleWriter(STDERR_FILENO, kLogBytes, [] {});
  log::SetSink([](std::string_view line) {
    [[maybe_unused]] const bool taken = writer->Write(line, /*force=*/false);
  });
  log::Info(WhereItListens(config, (*coordinator)->port()));
  if (config.token.empty() && !IsLoopback(config.listen_host)) {
    log::Warn(
        "anybody who can reach the port can join any job here; give this coordinator and every "
        "node the same --rdzv-token-file=FILE");
  }
  const int signal = WaitForStop(signals);
  LetSignalsKill();
  log::Info(absl::StrCat("stopped by ", SignalName(signal)));
  (*coordinator)->EndSessions(kGoodbyeTime);
  writer->WaitUntilWritten(MonotonicNow() + kFlushTime);
  // Not taken down, as in RunNode: that would only take time.
  [[maybe_unused]] const Coordinator* const left = coordinator->release();
  return 0;
}

}  // namespace ddl
