// The keys of --rdzv-conf: see rdzv_conf.h.
#include "launcher/cli/rdzv_conf.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/base/edit_distance.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array<std::string_view, 12> kKeys = {"join_timeout",
                                                    "last_call_timeout",
                                                    "close_timeout",
                                                    "heartbeat_timeout",
                                                    "keep_alive_interval",
                                                    "keep_alive_max_attempt",
                                                    "read_timeout",
                                                    "is_host",
                                                    "store_type",
                                                    "use_libuv",
                                                    "timeout",
                                                    "rank"};
constexpr std::array<std::string_view, 3> kCoordinatorKeys = {
    "heartbeat_timeout", "keep_alive_interval", "keep_alive_max_attempt"};

// torchrun's, for whichever of the two is not given.
constexpr Duration kKeepAliveInterval = seconds(5);
constexpr std::int64_t kKeepAliveMaxAttempt = 3;
constexpr std::int64_t kMostAttempts = 1'000'000;

// Below these a busy host loses healthy nodes.
constexpr Duration kLeastTimeout = milliseconds(100);
constexpr Duration kLeastInterval = milliseconds(20);
// Heartbeats in one timeout where the user does not say, and the least.
constexpr int kHeartbeatsPerTimeout = 5;
constexpr int kLeastHeartbeatsPerTimeout = 4;

using Entries = std::map<std::string, std::string>;

absl::StatusOr<Entries> ReadEntries(std::string_view text) {
  Entries entries;
  DDL_ASSIGN_OR_RETURN(entries, ParseKeyValues(text));
  for (const auto& [key, value] : entries) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no such key: ", key, DidYouMean(NearestNames(key, kKeys))));
    }
  }
  return entries;
}

// The value of `key` as `parse` reads it; nothing when it was not given.
template <typename Parse>
auto Read(const Entries& entries, const std::string& key, Parse parse)
    -> absl::StatusOr<std::optional<typename decltype(parse(std::string_view()))::value_type>> {
  using T = typename decltype(parse(std::string_view()))::value_type;
  const auto it = entries.find(key);
  if (it == entries.end()) {
    return std::optional<T>();
  }
  auto parsed = parse(it->second);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " ", std::string(parsed.status().message())));
  }
  return std::optional<T>(*std::move(parsed));
}

absl::StatusOr<Duration> ParseAtLeast(std::string_view text, Duration least) {
  DDL_ASSIGN_OR_RETURN(const Duration duration, ParseSeconds(text, Zero::kRefused));
  if (duration < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be ", std::chrono::duration<double>(least).count(), " seconds or more"));
  }
  return duration;
}

absl::StatusOr<Duration> ParseTimeout(std::string_view text) {
  return ParseAtLeast(text, milliseconds(1));
}

absl::StatusOr<Duration> ParseWait(std::string_view text) {
  return ParseSeconds(text, Zero::kAllowed);
}

std::string InSeconds(Duration duration) {
  return absl::StrCat(std::chrono::duration<double>(duration).count(), " s");
}

// interval x attempts; nothing when that is longer than any timeout may be.
std::optional<Duration> Times(Duration interval, std::int64_t attempts) {
  const Duration most =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kMaxSeconds));
  return attempts > most / interval ? std::nullopt : std::optional<Duration>(interval * attempts);
}

// One rule: silence for heartbeat_timeout, or for interval x attempts, loses a
// node; what is given twice must agree. A node says that it is there at least
// every interval, and often enough that one late word is no loss.
absl::StatusOr<std::optional<Heartbeats>> ReadHeartbeats(const Entries& entries) {
  DDL_ASSIGN_OR_RETURN(const std::optional<Duration> timeout,
                       Read(entries, "heartbeat_timeout", [](std::string_view text) {
                         return ParseAtLeast(text, kLeastTimeout);
                       }));
  DDL_ASSIGN_OR_RETURN(const std::optional<Duration> interval,
                       Read(entries, "keep_alive_interval", [](std::string_view text) {
                         return ParseAtLeast(text, kLeastInterval);
                       }));
  DDL_ASSIGN_OR_RETURN(const std::optional<std::int64_t> attempts,
                       Read(entries, "keep_alive_max_attempt", [](std::string_view text) {
                         return ParseInteger(text, 1, kMostAttempts);
                       }));
  const bool by_keep_alive = interval.has_value() || attempts.has_value();
  if (!timeout.has_value() && !by_keep_alive) {
    return std::optional<Heartbeats>();
  }
  const std::optional<Duration> product =
      Times(interval.value_or(kKeepAliveInterval), attempts.value_or(kKeepAliveMaxAttempt));
  if (!timeout.has_value()) {
    if (!product.has_value() || *product < kLeastTimeout) {
      return absl::InvalidArgumentError(
          absl::StrCat("keep_alive_interval x keep_alive_max_attempt must be from ",
                       InSeconds(kLeastTimeout), " to ", kMaxSeconds, " s"));
    }
    return Heartbeats{
        std::min(interval.value_or(kKeepAliveInterval), *product / kHeartbeatsPerTimeout),
        *product};
  }
  if (interval.has_value() && attempts.has_value() &&
      (!product.has_value() || std::chrono::abs(*product - *timeout) > milliseconds(1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keep_alive_interval=", entries.at("keep_alive_interval"),
        " x keep_alive_max_attempt=", entries.at("keep_alive_max_attempt"),
        " contradicts heartbeat_timeout=", entries.at("heartbeat_timeout"),
        ": both say after how many seconds of silence a node is lost; give one of them"));
  }
  if (interval.has_value() && *interval > *timeout / kLeastHeartbeatsPerTimeout) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keep_alive_interval=", entries.at("keep_alive_interval"),
        " must be at most a quarter of heartbeat_timeout=", entries.at("heartbeat_timeout"), " (",
        InSeconds(*timeout / kLeastHeartbeatsPerTimeout),
        "), so that one late heartbeat is no loss"));
  }
  if (interval.has_value()) {
    return Heartbeats{*interval, *timeout};
  }
  const Duration usual = *timeout / kHeartbeatsPerTimeout;
  return Heartbeats{
      std::min(attempts.has_value() ? *timeout / *attempts : Duration(seconds(1)), usual),
      *timeout};
}

absl::StatusOr<std::string> ParseStoreType(std::string_view text) {
  if (text != "tcp") {
    return absl::InvalidArgumentError("must be tcp: nodes meet over the network");
  }
  return std::string(text);
}

// What is about torchrun's store: checked, and said to do nothing.
absl::Status ReadStoreKeys(const Entries& entries, RdzvConf& conf) {
  DDL_ASSIGN_OR_RETURN(const std::optional<Duration> read_timeout,
                       Read(entries, "read_timeout", ParseWait));
  DDL_RETURN_IF_ERROR(Read(entries, "use_libuv", ParseBool).status());
  DDL_RETURN_IF_ERROR(Read(entries, "store_type", ParseStoreType).status());
  if (read_timeout.has_value()) {
    conf.remarks.emplace_back(
        "read_timeout bounds nothing here: a coordinator that does not answer is noticed by "
        "heartbeat_timeout, and before the first answer by join_timeout");
  }
  return absl::OkStatus();
}

void RemarkOnHeartbeats(const Entries& entries, RdzvConf& conf) {
  if (conf.heartbeats.has_value() &&
      (entries.contains("keep_alive_interval") || entries.contains("keep_alive_max_attempt"))) {
    conf.remarks.push_back(absl::StrCat(
        "keep_alive: a heartbeat every ", InSeconds(conf.heartbeats->interval),
        "; a node is lost after ", InSeconds(conf.heartbeats->timeout), " of silence"));
  }
}

}  // namespace

absl::StatusOr<RdzvConf> ParseRdzvConf(std::string_view text) {
  DDL_ASSIGN_OR_RETURN(const Entries entries, ReadEntries(text));
  RdzvConf conf;
  DDL_ASSIGN_OR_RETURN(const std::optional<Duration> timeout,
                       Read(entries, "timeout", ParseTimeout));
  DDL_ASSIGN_OR_RETURN(conf.join_timeout, Read(entries, "join_timeout", ParseTimeout));
  DDL_ASSIGN_OR_RETURN(conf.last_call_timeout, Read(entries, "last_call_timeout", ParseWait));
  DDL_ASSIGN_OR_RETURN(conf.close_timeout, Read(entries, "close_timeout", ParseWait));
  DDL_ASSIGN_OR_RETURN(conf.heartbeats, ReadHeartbeats(entries));
  DDL_ASSIGN_OR_RETURN(conf.is_host, Read(entries, "is_host", ParseBool));
  DDL_ASSIGN_OR_RETURN(conf.rank, Read(entries, "rank", [](std::string_view digits) {
                         return ParseInteger(digits, 0, limits::kMaxNodes - 1);
                       }));
  DDL_RETURN_IF_ERROR(ReadStoreKeys(entries, conf));
  if (!conf.join_timeout.has_value()) {
    conf.join_timeout = timeout;
  }
  RemarkOnHeartbeats(entries, conf);
  return conf;
}

absl::StatusOr<RdzvConf> ParseCoordinatorConf(std::string_view text) {
  DDL_ASSIGN_OR_RETURN(const Entries entries, ReadEntries(text));
  for (const auto& [key, value] : entries) {
    if (std::find(kCoordinatorKeys.begin(), kCoordinatorKeys.end(), key) ==
        kCoordinatorKeys.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key,
                       " is for the nodes of a job to give; a coordinator has heartbeat_timeout, "
                       "keep_alive_interval and keep_alive_max_attempt"));
    }
  }
  RdzvConf conf;
  DDL_ASSIGN_OR_RETURN(conf.heartbeats, ReadHeartbeats(entries));
  RemarkOnHeartbeats(entries, conf);
  return conf;
}

}  // namespace ddl::cli
