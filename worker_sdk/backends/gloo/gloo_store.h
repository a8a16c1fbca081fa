// A Gloo rendezvous store on top of the gateway's keys.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_STORE_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_STORE_H_

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker_sdk/src/gateway.h"

namespace ddl::internal {

// Gloo's interface knows no errors but exceptions: a failed call keeps its
// status in error() and throws. Not thread safe; `gateway` must outlive it.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  // All keys begin with `prefix`; the whole rendezvous ends by `deadline`.
  GlooStore(Gateway& gateway, std::string prefix, std::chrono::steady_clock::time_point deadline)
      : gateway_(gateway), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  [[nodiscard]] const absl::Status& error() const { return error_; }

 private:
  // Keeps `status` and throws.
  [[noreturn]] void Fail(absl::Status status);
  std::string Fetch(const std::string& key);

  Gateway& gateway_;
  const std::string prefix_;
  const std::chrono::steady_clock::time_point deadline_;
  absl::Status error_;
};

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_GLOO_GLOO_STORE_H_
