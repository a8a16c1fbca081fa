// A Gloo rendezvous store on top of the gateway's keys.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_STORE_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_STORE_H_

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// The value of `key`, which has until `deadline` to be published.
absl::StatusOr<std::string> FetchBefore(Gateway& gateway, const std::string& key,
                                        std::chrono::steady_clock::time_point deadline);

// Gloo's interface knows no errors but exceptions: a failed call keeps its
// status in error() and throws. Not thread safe; `gateway` must outlive it.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  // All keys begin with `prefix`; the whole rendezvous ends by `deadline`.
  GlooStore(Gateway& gateway, std::string prefix, int rank, int world_size,
            std::chrono::steady_clock::time_point deadline)
      : gateway_(gateway),
        prefix_(std::move(prefix)),
        rank_(rank),
        world_size_(world_size),
        deadline_(deadline) {}

  // Also waits for what the other ranks set, so that nobody begins to connect before
  // everybody listens.
  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  [[nodiscard]] const absl::Status& error() const { return error_; }

 private:
  // Keeps `status` and throws.
  [[noreturn]] void Fail(absl::Status status);
  std::vector<char> Fetch(const std::string& key, int rank);

  Gateway& gateway_;
  const std::string prefix_;
  const int rank_;
  const int world_size_;
  const std::chrono::steady_clock::time_point deadline_;
  std::map<std::string, std::vector<char>> values_;
  absl::Status error_;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_STORE_H_
