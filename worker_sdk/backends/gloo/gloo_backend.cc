// Gloo's collectives with its exceptions turned into statuses.
#include "worker_sdk/backends/gloo/gloo_backend.h"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <csignal>
#include <exception>
#include <string>
#include <utility>

#include "agent/base/status_macros.h"
#include "worker_sdk/backends/gloo/gloo_store.h"
#include "worker_sdk/src/gateway.h"
#include "worker_sdk/src/group_mark.h"

namespace ddl::internal {
namespace {

using ReduceFunction = void (*)(void*, const void*, const void*, std::size_t);

// What Gloo says about a timeout; it has no exception type of its own for it.
bool SaysTimeout(const std::string& text) {
  for (const char* const word : {"Timed out", "timed out", "timeout", "Timeout"}) {
    if (text.find(word) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Gloo writes to sockets whose peer may have gone, which is an error to report
// and no reason to die. A program that has its own mind about the signal keeps it.
void IgnoreBrokenPipes() {
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
  }
}

// How long a rank whose peer broke the connection waits for the launcher to end
// the round before it says so itself. The rank that really failed is known by
// then, also when a whole node was lost, and is named as the root cause instead
// of this one.
constexpr std::chrono::milliseconds kBlameDelay = std::chrono::seconds(3);

class GlooBackend final : public Backend {
 public:
  // `prefix` names what belongs to this backend at the gateway.
  GlooBackend(std::shared_ptr<gloo::rendezvous::Context> context, std::shared_ptr<Gateway> gateway,
              std::string prefix, std::chrono::milliseconds timeout)
      : context_(std::move(context)),
        gateway_(std::move(gateway)),
        prefix_(std::move(prefix)),
        timeout_(timeout),
        mark_(gateway_, prefix_) {}

  [[nodiscard]] std::string_view name() const override { return "gloo"; }
  [[nodiscard]] int rank() const override { return context_->rank; }
  [[nodiscard]] int world_size() const override { return context_->size; }

  absl::Status AllReduceSum(std::span<float> values) override { return AllReduce(values); }
  absl::Status AllReduceSum(std::span<double> values) override { return AllReduce(values); }

  absl::Status Broadcast(std::span<std::byte> bytes, int root) override {
    if (root < 0 || root >= world_size()) {
      return absl::InvalidArgumentError("broadcast from rank " + std::to_string(root) +
                                        " in a world of " + std::to_string(world_size()));
    }
    return Run("broadcast of " + std::to_string(bytes.size()) + " bytes", [&] {
      if (bytes.empty()) {
        return;
      }
      gloo::BroadcastOptions options(context_);
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes are bytes.
      options.setOutput(reinterpret_cast<char*>(bytes.data()), bytes.size());
      options.setRoot(root);
      options.setTag(NextTag());
      gloo::broadcast(options);
    });
  }

  absl::Status Barrier() override {
    return Run("barrier", [&] {
      gloo::BarrierOptions options(context_);
      options.setTag(NextTag());
      gloo::barrier(options);
    });
  }

  // Gloo resets its connections when it closes them, which drops what is still
  // on its way; so the ranks meet elsewhere first.
  absl::Status Close() override {
    DDL_RETURN_IF_ERROR(broken_);
    broken_ = absl::FailedPreconditionError(Who("an operation") + ": the backend was closed");
    absl::Status closed = gateway_->Barrier(prefix_ + "close", timeout_);
    mark_.Leave();
    return closed;
  }

 private:
  template <typename T>
  absl::Status AllReduce(std::span<T> values) {
    return Run("all-reduce of " + std::to_string(values.size()) + " numbers", [&] {
      if (values.empty()) {
        return;
      }
      gloo::AllreduceOptions options(context_);
      options.setOutput(values.data(), values.size());
      options.setReduceFunction(static_cast<ReduceFunction>(&gloo::sum<T>));
      options.setTag(NextTag());
      gloo::allreduce(options);
    });
  }

  // Calls `operation`. When it fails the connections are closed, so that the
  // ranks that wait for this one fail at once too, and not at their timeout.
  template <typename Operation>
  absl::Status Run(const std::string& what, const Operation& operation) {
    if (!broken_.ok()) {
      return broken_;
    }
    try {
      operation();
      return absl::OkStatus();
    } catch (const gloo::IoException& e) {
      broken_ = Broken(what, e.what());
    } catch (const std::exception& e) {
      broken_ = absl::InternalError(Who(what) + ": " + e.what());
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // They are closed already.
    }
    if (absl::IsUnavailable(broken_)) {
      // Nobody publishes this key: the wait ends with the round, or with the time.
      [[maybe_unused]] const auto ignored = gateway_->Fetch(prefix_ + "round-over", kBlameDelay);
    }
    return broken_;
  }

  [[nodiscard]] std::string Who(const std::string& what) const {
    return "gloo, rank " + std::to_string(rank()) + " of " + std::to_string(world_size()) + ", " +
           what;
  }

  [[nodiscard]] absl::Status Broken(const std::string& what, const std::string& text) const {
    if (SaysTimeout(text)) {
      return absl::DeadlineExceededError(Who(what) + ": a peer did not come within " +
                                         std::to_string(timeout_.count()) + " ms (" + text + ")");
    }
    return absl::UnavailableError(Who(what) + ": the connection to a peer broke: it has died or " +
                                  "given up (" + text + ")");
  }

  // Operations follow one another in the same order on every rank.
  std::uint32_t NextTag() { return tag_++; }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::shared_ptr<Gateway> gateway_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
  GroupMark mark_;
  std::uint32_t tag_ = 0;
  absl::Status broken_;  // the first error; every later call returns it
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateGlooBackend(const Context& context,
                                                           const BackendOptions& options) {
  IgnoreBrokenPipes();
  const std::string who =
      "gloo, rank " + std::to_string(context.rank()) + ", connecting from " + context.address();
  const std::string prefix = "ddl/gloo/" + std::to_string(context.NextSequence()) + "/";
  GlooStore store(context, prefix, std::chrono::steady_clock::now() + options.timeout);
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = context.address();
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    auto mesh = std::make_shared<gloo::rendezvous::Context>(context.rank(), context.world_size());
    mesh->setTimeout(options.timeout);
    mesh->connectFullMesh(store, device);
    return std::make_unique<GlooBackend>(std::move(mesh), ContextAccess::GatewayOf(context), prefix,
                                         options.timeout);
  } catch (const std::exception& e) {
    if (!store.error().ok()) {
      return store.error();
    }
    const std::string text = who + ": " + e.what();
    return SaysTimeout(text) ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
  }
}

}  // namespace ddl::internal
