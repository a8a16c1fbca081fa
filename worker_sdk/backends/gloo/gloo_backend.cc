// Gloo's collectives with its exceptions turned into statuses.
#include "worker_sdk/backends/gloo/gloo_backend.h"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/math.h>

#include <csignal>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "agent/base/status_macros.h"
#include "worker_sdk/backends/gloo/gloo_mesh.h"
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
  GlooBackend(MeshOptions options, Mesh mesh, std::string prefix)
      : options_(std::move(options)),
        context_(std::move(mesh)),
        prefix_(std::move(prefix)),
        mark_(options_.gateway, prefix_) {}

  [[nodiscard]] std::string_view name() const override { return "gloo"; }
  [[nodiscard]] int rank() const override { return options_.rank; }
  [[nodiscard]] int world_size() const override { return options_.world_size; }

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

  absl::Status Reconnect() override {
    if (closed_) {
      return broken_;
    }
    CloseConnections();
    context_.reset();
    {
      const std::lock_guard lock(interrupt_mutex_);
      interrupt_ = std::stop_source();
    }
    tag_ = 0;
    ++reconnections_;
    absl::StatusOr<Mesh> mesh =
        ConnectMesh(options_, prefix_ + "again/" + std::to_string(reconnections_) + "/");
    broken_ = mesh.status();
    if (mesh.ok()) {
      context_ = *std::move(mesh);
    }
    return broken_;
  }

  // Closing the connections here would not wake an operation of this process that
  // waits on them; that the peers close theirs does.
  void Interrupt() override {
    const std::lock_guard lock(interrupt_mutex_);
    interrupt_.request_stop();
  }

  // Gloo resets its connections when it closes them, which drops what is still
  // on its way; so the ranks meet elsewhere first.
  absl::Status Close() override {
    DDL_RETURN_IF_ERROR(broken_);
    closed_ = true;
    broken_ = absl::FailedPreconditionError(Who("an operation") + ": the backend was closed");
    absl::Status closed =
        options_.gateway->Barrier(prefix_ + "close", options_.timeout, std::stop_token());
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
    DDL_RETURN_IF_ERROR(broken_);
    const std::stop_token interrupted = InterruptToken();
    if (interrupted.stop_requested()) {
      return Interrupted(what);
    }
    try {
      operation();
      return absl::OkStatus();
    } catch (const gloo::IoException& e) {
      broken_ = Broken(what, e.what());
    } catch (const std::exception& e) {
      broken_ = absl::InternalError(Who(what) + ": " + e.what());
    }
    CloseConnections();
    if (absl::IsUnavailable(broken_)) {
      // Nobody publishes this key: the wait ends with the round, with the time, or
      // when it turns out that the peers only want to connect anew.
      [[maybe_unused]] const auto ignored =
          options_.gateway->Fetch(prefix_ + "round-over", kBlameDelay, interrupted);
    }
    if (interrupted.stop_requested()) {
      broken_ = Interrupted(what);
    }
    return broken_;
  }

  void CloseConnections() {
    if (context_ == nullptr) {
      return;
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // They are closed already.
    }
  }

  std::stop_token InterruptToken() {
    const std::lock_guard lock(interrupt_mutex_);
    return interrupt_.get_token();
  }

  [[nodiscard]] absl::Status Interrupted(const std::string& what) const {
    return absl::AbortedError(Who(what) + ": the ranks are to connect anew");
  }

  [[nodiscard]] std::string Who(const std::string& what) const {
    return "gloo, rank " + std::to_string(rank()) + " of " + std::to_string(world_size()) + ", " +
           what;
  }

  [[nodiscard]] absl::Status Broken(const std::string& what, const std::string& text) const {
    if (SaysTimeout(text)) {
      return absl::DeadlineExceededError(Who(what) + ": a peer did not come within " +
                                         std::to_string(options_.timeout.count()) + " ms (" + text +
                                         ")");
    }
    return absl::UnavailableError(Who(what) + ": the connection to a peer broke: it has died or " +
                                  "given up (" + text + ")");
  }

  // Operations follow one another in the same order on every rank.
  std::uint32_t NextTag() { return tag_++; }

  const MeshOptions options_;
  Mesh context_;  // null: connecting anew failed
  const std::string prefix_;
  GroupMark mark_;
  std::uint32_t tag_ = 0;
  int reconnections_ = 0;
  bool closed_ = false;
  std::mutex interrupt_mutex_;
  std::stop_source interrupt_;  // guarded by interrupt_mutex_; a new one each time
  absl::Status broken_;         // the first error; every later call returns it
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateGlooBackend(const Context& context,
                                                           const BackendOptions& options) {
  IgnoreBrokenPipes();
  MeshOptions mesh_options{context.rank(), context.world_size(), context.address(),
                           ContextAccess::GatewayOf(context), options.timeout};
  const std::string prefix = "ddl/gloo/" + std::to_string(context.NextSequence()) + "/";
  DDL_ASSIGN_OR_RETURN(Mesh mesh, ConnectMesh(mesh_options, prefix));
  return std::make_unique<GlooBackend>(std::move(mesh_options), std::move(mesh), prefix);
}

}  // namespace ddl::internal
