// How long plan::Solve takes, and how long the search for the micro-batch takes the
// obvious way, by trial division up to the square root, on the same requests. Each
// request is solved five times and the best counts: a shared machine's interruptions
// are not the solver's. Prints p50, p99 and the maximum in microseconds.
//   plan_bench [REQUESTS]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "agent/base/clock.h"
#include "agent/plan/plan.h"

namespace {

using ddl::plan::BatchPolicy;
using ddl::plan::Request;

constexpr int kDefaultRequests = 20000;
constexpr int kRepeats = 5;

struct Trial {
  Request request;
  std::int64_t world = 1;
};

using Engine = std::mt19937_64;

std::int64_t Between(Engine& engine, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(engine);
}

void AddRate(Request& request) {
  request.base_lr = 0.1;
  request.base_batch_size = 256;
  request.lr_scaling = ddl::plan::LrScaling::kLinear;
  request.total_samples = 1'000'000'000'000;
  request.epoch_samples = 1'281'167;
  request.warmup_epochs = 5;
  request.lr_decay = ddl::plan::LrDecay::kCosine;
}

// As people train: 1024 samples, 64 fit a device.
Trial Usual(Engine& engine) {
  Trial trial;
  trial.world = Between(engine, 1, 64);
  trial.request.global_batch_size = 1024;
  trial.request.max_micro_batch_size = 64;
  trial.request.batch_policy = BatchPolicy::kNearest;
  AddRate(trial.request);
  return trial;
}

// Far beyond: shares of up to 2^32 samples a rank, any cap, any policy.
Trial Huge(Engine& engine) {
  constexpr BatchPolicy kPolicies[] = {BatchPolicy::kFail, BatchPolicy::kNearest,
                                       BatchPolicy::kExact};
  Trial trial;
  trial.world = Between(engine, 1, 1'000'000);
  const std::int64_t share = Between(engine, 1, 1'000'000'000'000 / trial.world);
  trial.request.global_batch_size = share * trial.world + Between(engine, 0, 1) * trial.world / 2;
  trial.request.max_micro_batch_size = Between(engine, 1, std::int64_t{1} << 20U);
  trial.request.batch_policy = kPolicies[Between(engine, 0, 2)];
  AddRate(trial.request);
  return trial;
}

// The hardest to split: one rank, near 2^32 samples, which are a prime, or two.
Trial Hardest(Engine& engine) {
  constexpr std::int64_t kNumbers[] = {4294967291, 4294967279, std::int64_t{65521} * 65519,
                                       std::int64_t{2} * 2147483647, std::int64_t{1627} * 2639789};
  Trial trial;
  trial.request.global_batch_size = kNumbers[Between(engine, 0, 4)];
  trial.request.max_micro_batch_size =
      Between(engine, std::int64_t{1} << 16U, std::int64_t{1} << 31U);
  AddRate(trial.request);
  return trial;
}

// Refused: two alternatives each for two numbers are solved and written down.
Trial Refused(Engine& engine) {
  Trial trial = Huge(engine);
  trial.request.batch_policy = BatchPolicy::kFail;
  trial.request.global_batch_size = *trial.request.global_batch_size / trial.world * trial.world;
  trial.request.grad_accum_steps = 1;
  return trial;
}

// The peer.
std::int64_t LargestDivisorByTrial(std::int64_t number, std::int64_t limit) {
  std::int64_t best = 1;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d == 0) {
      for (const std::int64_t divisor : {d, number / d}) {
        best = divisor <= limit ? std::max(best, divisor) : best;
      }
    }
  }
  return best;
}

template <typename Run>
double BestMicros(Run run) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < kRepeats; ++i) {
    const ddl::Instant begin = ddl::MonotonicNow();
    run();
    best = std::min(best,
                    std::chrono::duration<double, std::micro>(ddl::MonotonicNow() - begin).count());
  }
  return best;
}

void Print(const char* name, const char* what, std::vector<double> micros) {
  constexpr std::size_t kHundred = 100;
  std::sort(micros.begin(), micros.end());
  std::printf("%-10s %-15s p50 %10.2f us  p99 %10.2f us  max %10.2f us\n", name, what,
              micros[micros.size() / 2], micros[micros.size() * (kHundred - 1) / kHundred],
              micros.back());
}

void Measure(const char* name, int requests, Trial (*make)(Engine&)) {
  Engine engine(1);
  std::vector<double> ours;
  std::vector<double> peers;
  int solved = 0;
  std::int64_t sum = 0;  // or the compiler would leave it all out
  for (int i = 0; i < requests; ++i) {
    const Trial trial = make(engine);
    solved += Solve(trial.request, trial.world).ok() ? 1 : 0;
    ours.push_back(BestMicros([&] { sum += Solve(trial.request, trial.world).ok() ? 1 : 0; }));
    // Slow: fewer will do.
    constexpr int kOneIn = 20;
    if (i % kOneIn == 0) {
      peers.push_back(BestMicros([&] {
        sum += LargestDivisorByTrial(*trial.request.global_batch_size / trial.world,
                                     *trial.request.max_micro_batch_size);
      }));
    }
  }
  std::printf("%s: %d of %d have a plan%s\n", name, solved, requests, sum == 0 ? "." : "");
  Print(name, "plan::Solve", std::move(ours));
  Print(name, "trial division", std::move(peers));
}

}  // namespace

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : kDefaultRequests;
  if (requests < 1) {
    std::fprintf(stderr, "plan_bench: REQUESTS must be 1 or more\n");
    return 2;
  }
  Measure("usual", requests, Usual);
  Measure("huge", requests, Huge);
  Measure("hardest", requests, Hardest);
  Measure("refused", requests, Refused);
  return 0;
}
