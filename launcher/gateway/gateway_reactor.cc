// The gRPC side of the worker gateway.
#include "launcher/gateway/gateway_reactor.h"

#include <algorithm>

namespace ddl {

void GatewayService::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

std::optional<Instant> GatewayService::AnswerBy(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  constexpr auto kForEver = std::chrono::hours(24 * 366);
  if (left > kForEver) {
    return std::nullopt;
  }
  constexpr Duration kMargin = std::chrono::milliseconds(200);
  // gRPC sends the time that is left rounded up, by 1 % at most (the grpc-timeout header).
  constexpr int kRounding = 100;
  const Duration margin = std::min<Duration>(kMargin + left / kRounding, left / 4);
  return MonotonicNow() + left - margin;
}

}  // namespace ddl
