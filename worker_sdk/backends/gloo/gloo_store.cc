// Gloo's keys are rank numbers: each rank writes its addresses under its own.
#include "worker_sdk/backends/gloo/gloo_store.h"

#include <algorithm>
#include <stdexcept>

namespace ddl::internal {

void GlooStore::Fail(absl::Status status) {
  error_ = std::move(status);
  throw std::runtime_error("rendezvous failed");
}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  absl::Status status = gateway_.Publish(prefix_ + key, {data.data(), data.size()});
  if (!status.ok()) {
    Fail(std::move(status));
  }
}

std::string GlooStore::Fetch(const std::string& key) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  absl::StatusOr<std::string> value =
      gateway_.Fetch(prefix_ + key, std::max(left, std::chrono::milliseconds(1)), {});
  if (!value.ok()) {
    Fail(absl::Status(value.status().code(), "rank " + key + " did not join the Gloo backend: " +
                                                 std::string(value.status().message())));
  }
  return *std::move(value);
}

std::vector<char> GlooStore::get(const std::string& key) {
  const std::string value = Fetch(key);
  return {value.begin(), value.end()};
}

// Gloo waits and then gets; getting waits already, so one round trip will do.
void GlooStore::wait(const std::vector<std::string>& /*keys*/) {}
void GlooStore::wait(const std::vector<std::string>& /*keys*/,
                     const std::chrono::milliseconds& /*timeout*/) {}

}  // namespace ddl::internal
