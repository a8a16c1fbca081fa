// Picks a backend by name, and the one for a world of one.
#include "ddl/backend.h"

#include <string>

#include "worker_sdk/backends/gloo/gloo_backend.h"

namespace ddl {
namespace {

// A sum over one rank is the value itself; there is nothing to wait for.
class SingleBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "single"; }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }
  absl::Status AllReduceSum(std::span<float> /*values*/) override { return absl::OkStatus(); }
  absl::Status AllReduceSum(std::span<double> /*values*/) override { return absl::OkStatus(); }
  absl::Status Broadcast(std::span<std::byte> /*bytes*/, int root) override {
    return root == 0 ? absl::OkStatus()
                     : absl::InvalidArgumentError("broadcast from rank " + std::to_string(root) +
                                                  " in a world of one");
  }
  absl::Status Barrier() override { return absl::OkStatus(); }
  absl::Status Reconnect() override { return absl::OkStatus(); }
  void Interrupt() override {}  // it never waits
  absl::Status Close() override { return absl::OkStatus(); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const Context& context,
                                                       std::string_view name,
                                                       const BackendOptions& options) {
  const bool alone = context.world_size() == 1;
  if (name == "single" || (name == "auto" && alone)) {
    if (!alone) {
      return absl::InvalidArgumentError("backend \"single\" is for a world of one, this has " +
                                        std::to_string(context.world_size()) + " ranks");
    }
    return std::make_unique<SingleBackend>();
  }
  if (name == "gloo" || name == "auto") {
    return internal::CreateGlooBackend(context, options);
  }
  return absl::InvalidArgumentError("backend \"" + std::string(name) +
                                    "\" is not known; use auto, single or gloo");
}

}  // namespace ddl
