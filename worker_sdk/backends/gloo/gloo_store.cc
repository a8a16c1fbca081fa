// Gloo's keys end with rank numbers: each rank writes what is its own under its own.
#include "worker_sdk/backends/gloo/gloo_store.h"

#include <algorithm>
#include <stdexcept>

namespace ddl::internal {

absl::StatusOr<std::string> FetchBefore(Gateway& gateway, const std::string& key,
                                        std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return gateway.Fetch(key, std::max(left, std::chrono::milliseconds(1)), {});
}

void GlooStore::Fail(absl::Status status) {
  error_ = std::move(status);
  throw std::runtime_error("rendezvous failed");
}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  absl::Status status = gateway_.Publish(prefix_ + key, {data.data(), data.size()});
  if (!status.ok()) {
    Fail(std::move(status));
  }
  const std::string stem = key.substr(0, key.size() - std::to_string(rank_).size());
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string other = stem + std::to_string(rank);
    values_[other] = Fetch(other, rank);
  }
}

std::vector<char> GlooStore::Fetch(const std::string& key, int rank) {
  const absl::StatusOr<std::string> value = FetchBefore(gateway_, prefix_ + key, deadline_);
  if (!value.ok()) {
    Fail(absl::Status(value.status().code(), "rank " + std::to_string(rank) +
                                                 " did not join the Gloo backend: " +
                                                 std::string(value.status().message())));
  }
  return {value->begin(), value->end()};
}

std::vector<char> GlooStore::get(const std::string& key) {
  return values_.at(key);
}

// All is here already.
void GlooStore::wait(const std::vector<std::string>& /*keys*/) {}
void GlooStore::wait(const std::vector<std::string>& /*keys*/,
                     const std::chrono::milliseconds& /*timeout*/) {}

}  // namespace ddl::internal
