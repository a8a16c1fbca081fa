// Context: the environment, the registration, and checks on what comes back.
#include "ddl/context.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "worker_sdk/src/environment.h"
#include "worker_sdk/src/gateway.h"
#include "worker_sdk/src/grpc_gateway.h"
#include "worker_sdk/src/memory_gateway.h"
#include "worker_sdk/src/plan_bridge.h"
#include "worker_sdk/src/plan_watch.h"

namespace ddl {

struct Context::State {
  internal::Membership membership;
  std::shared_ptr<internal::Gateway> gateway;
  ContextOptions options;
  std::atomic<std::int64_t> sequence{0};
  std::shared_ptr<internal::PlanSeat> seat = std::make_shared<internal::PlanSeat>();
};

namespace internal {

Context ContextAccess::Make(Membership membership, std::shared_ptr<Gateway> gateway,
                            const ContextOptions& options) {
  auto state = std::make_unique<Context::State>();
  state->membership = std::move(membership);
  state->gateway = std::move(gateway);
  state->options = options;
  return Context(std::move(state));
}

std::shared_ptr<Gateway> ContextAccess::GatewayOf(const Context& context) {
  return context.state_->gateway;
}

std::shared_ptr<PlanSeat> ContextAccess::SeatOf(const Context& context) {
  return context.state_->seat;
}

absl::Status CheckKey(std::string_view key) {
  if (key.empty() || key.size() > limits::kMaxKeyBytes) {
    return absl::InvalidArgumentError("a key or name of " + std::to_string(key.size()) +
                                      " bytes; allowed are 1 to " +
                                      std::to_string(limits::kMaxKeyBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckKeyValue(std::string_view key, std::string_view value) {
  DDL_RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > limits::kMaxValueBytes) {
    return absl::InvalidArgumentError("key \"" + std::string(key) + "\": a value of " +
                                      std::to_string(value.size()) + " bytes; allowed are up to " +
                                      std::to_string(limits::kMaxValueBytes));
  }
  return absl::OkStatus();
}

std::string ToText(std::chrono::milliseconds duration) {
  constexpr std::int64_t kMillisecondsPerSecond = 1000;
  if (duration.count() % kMillisecondsPerSecond == 0) {
    return std::to_string(duration.count() / kMillisecondsPerSecond) + " s";
  }
  return std::to_string(duration.count()) + " ms";
}

}  // namespace internal

absl::StatusOr<Context> Context::Create(const ContextOptions& options) {
  const auto lookup = [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  DDL_ASSIGN_OR_RETURN(const internal::Environment environment, internal::ReadEnvironment(lookup));
  if (environment.gateway.empty()) {
    return internal::ContextAccess::Make(environment.membership,
                                         std::make_shared<internal::MemoryGateway>(1), options);
  }
  DDL_ASSIGN_OR_RETURN(
      internal::Registration registration,
      internal::RegisterAtGateway(environment.gateway, environment.membership.round,
                                  environment.membership.local_rank, options.register_timeout));
  DDL_RETURN_IF_ERROR(internal::CheckAgainst(environment, registration.membership));
  return internal::ContextAccess::Make(std::move(registration.membership),
                                       std::move(registration.gateway), options);
}

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

int Context::rank() const {
  return state_->membership.rank;
}
int Context::local_rank() const {
  return state_->membership.local_rank;
}
int Context::world_size() const {
  return state_->membership.world_size;
}
int Context::local_world_size() const {
  return state_->membership.local_world_size;
}
int Context::node_rank() const {
  return state_->membership.node_rank;
}
int Context::num_nodes() const {
  return state_->membership.num_nodes;
}
int Context::restart_count() const {
  return state_->membership.restart_count;
}
std::int64_t Context::round() const {
  return state_->membership.round;
}
const std::string& Context::job_id() const {
  return state_->membership.job_id;
}
const std::string& Context::address() const {
  return state_->membership.address;
}
const std::string& Context::master_addr() const {
  return state_->membership.master_addr;
}
int Context::master_port() const {
  return state_->membership.master_port;
}
bool Context::has_launcher() const {
  return state_->membership.has_launcher;
}

absl::Status Context::Publish(std::string_view key, std::string_view value) const {
  return state_->gateway->Publish(key, value);
}

absl::StatusOr<std::string> Context::Fetch(std::string_view key,
                                           std::chrono::milliseconds timeout) const {
  return state_->gateway->Fetch(key, timeout, {});
}

absl::Status Context::Barrier(std::string_view name, std::chrono::milliseconds timeout) const {
  return state_->gateway->Barrier(name, timeout, {});
}

absl::StatusOr<Plan> Context::AgreePlan(const PlanDefaults& defaults) const {
  DDL_ASSIGN_OR_RETURN(internal::AgreedPlan agreed,
                       state_->gateway->AgreePlan(defaults, state_->options.plan_timeout));
  DDL_RETURN_IF_ERROR(internal::CheckPlan(agreed.plan, world_size()));
  if (agreed.max_micro_batch_size > 0) {
    state_->seat->max_micro_batch_size = agreed.max_micro_batch_size;
  }
  return std::move(agreed.plan);
}

absl::Status Context::ReportProgress(std::int64_t step, std::int64_t total_steps,
                                     double samples_per_s) const {
  return state_->gateway->ReportProgress(step, total_steps, samples_per_s);
}

absl::Status Context::ReportOutOfMemory(const absl::Status& error, std::int64_t micro_batch_size,
                                        std::int64_t step) const {
  if (!IsOutOfMemory(error)) {
    return absl::InvalidArgumentError("not an out of memory: " + error.ToString());
  }
  return state_->gateway
      ->ReportOutOfMemory({micro_batch_size, step, MemoryUseOf(error), std::string(error.message()),
                           /*exiting=*/true})
      .status();
}

std::int64_t Context::NextSequence() const {
  return state_->sequence.fetch_add(1);
}

}  // namespace ddl
