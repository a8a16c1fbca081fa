// Look-ups that are tried again.
#include "launcher/net/name_lookup.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/mailbox.h"
#include "launcher/poll_until.h"

namespace ddl {
namespace {

constexpr Duration kRetryInterval = std::chrono::seconds(1);
constexpr Duration kNoticeAfter = std::chrono::seconds(5);
constexpr Duration kNoticeInterval = std::chrono::seconds(30);

using Answer = absl::StatusOr<std::vector<SocketAddress>>;

// Numbers that name no address never will: with a colon, or digits behind the
// last dot, it can be no host name.
bool IsWrittenAsAddress(const std::string& host) {
  const std::string last = host.substr(host.find_last_of('.') + 1);
  return host.find(':') != std::string::npos ||
         (!last.empty() && std::all_of(last.begin(), last.end(),
                                       [](unsigned char c) { return std::isdigit(c) != 0; }));
}

std::int64_t SecondsSince(Instant start) {
  return std::chrono::duration_cast<std::chrono::seconds>(MonotonicNow() - start).count();
}

class Waiter {
 public:
  Waiter(std::string host, std::uint16_t port, const Patience& patience)
      : host_(std::move(host)), port_(port), patience_(patience) {}

  Answer Run() {
    for (;;) {
      Ask();
      const std::optional<Answer> answer = WaitForAnswer();
      if (!answer.has_value()) {
        return absl::CancelledError(absl::StrCat("stopped while looking up ", host_));
      }
      if (answer->ok()) {
        return *answer;
      }
      problem_ = std::string(answer->status().message());
      if (MonotonicNow() >= patience_.give_up_at) {
        return absl::NotFoundError(absl::StrCat(
            problem_,
            SecondsSince(start_) == 0 ? "" : absl::StrCat(" for ", SecondsSince(start_), " s"),
            "; is the host name right, and does it resolve on this host?"));
      }
      if (!SleepUntil(std::min(MonotonicNow() + kRetryInterval, patience_.give_up_at))) {
        return absl::CancelledError(absl::StrCat("stopped while looking up ", host_));
      }
    }
  }

 private:
  void Ask() {
    // Not joined: getaddrinfo may sit there long after we are gone.
    std::thread([host = host_, port = port_, answers = answers_] {
      answers->Put(Resolve(host, port));
    }).detach();
  }

  // Nothing: should_stop() said so. When the time is up while the look-up hangs,
  // its answer is that.
  std::optional<Answer> WaitForAnswer() {
    for (;;) {
      if (std::vector<Answer> answers = answers_->TakeAll(); !answers.empty()) {
        return std::move(answers.front());
      }
      if (MonotonicNow() >= std::max(patience_.give_up_at, start_ + kRetryInterval)) {
        return Answer(absl::NotFoundError(absl::StrCat("cannot resolve host name \"", host_,
                                                       "\": the name servers do not answer")));
      }
      if (!Turn(std::max(patience_.give_up_at, start_ + kRetryInterval))) {
        return std::nullopt;
      }
    }
  }

  // False: should_stop() said so.
  bool SleepUntil(Instant when) {
    while (MonotonicNow() < when) {
      if (!Turn(when)) {
        return false;
      }
    }
    return true;
  }

  // Sleeps until something happens, `until` or the next notice.
  bool Turn(Instant until) {
    std::array<pollfd, 2> fds{{{answers_->fd(), POLLIN, 0}, {patience_.fd, POLLIN, 0}}};
    PollUntil(fds, std::min(until, notice_at_));
    if (fds[1].revents != 0 && patience_.should_stop && patience_.should_stop()) {
      return false;
    }
    if (MonotonicNow() >= notice_at_) {
      notice_at_ += kNoticeInterval;
      if (patience_.notice) {
        patience_.notice(absl::StrCat("still looking up ", host_, " after ", SecondsSince(start_),
                                      " s: ", problem_.empty() ? "no answer yet" : problem_));
      }
    }
    return true;
  }

  const std::string host_;
  const std::uint16_t port_;
  const Patience& patience_;
  const std::shared_ptr<Mailbox<Answer>> answers_ = std::make_shared<Mailbox<Answer>>();
  const Instant start_ = MonotonicNow();
  Instant notice_at_ = start_ + kNoticeAfter;
  std::string problem_;  // of the last try
};

}  // namespace

absl::StatusOr<std::vector<SocketAddress>> LookUp(const std::string& host, std::uint16_t port,
                                                  const Patience& patience) {
  if (IsWrittenAsAddress(host)) {
    return Resolve(host, port);  // asks no server
  }
  return Waiter(host, port, patience).Run();
}

}  // namespace ddl
