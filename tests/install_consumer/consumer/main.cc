// The program that the README shows, on the installed SDK.
#include <cstdio>
#include <vector>

#include "ddl/ddl.h"

int main() {
  auto context = ddl::Context::Create().value();
  auto backend = ddl::CreateBackend(context).value();
  ddl::PlanDefaults defaults;  // ddlaunch's flags win over these
  defaults.global_batch_size = 32;
  defaults.base_lr = 0.5;
  const ddl::Plan plan = context.AgreePlan(defaults).value();

  std::vector<float> weight(1), gradient(1);  // y = weight * x; the data says 3
  auto parallel = ddl::DataParallel::Create(backend.get(), {{"w", weight, gradient}}).value();
  auto sampler = ddl::DistributedSampler::Create(1000, plan, context.rank(), /*seed=*/1).value();
  while (auto share = sampler.Next()) {
    parallel.ZeroGradients();
    for (const auto samples : share->micro_batches) {
      double loss = 0;
      for (const auto i : samples) {
        const float x = static_cast<float>(i) / 1000, error = weight[0] * x - 3 * x;
        gradient[0] += error * x;
        loss += error * error / 2;
      }
      if (!parallel.AddMicroBatch(loss, static_cast<double>(samples.size())).ok()) return 1;
    }
    parallel.FinishStep().value();  // the mean gradient of the global batch, on every rank
    weight[0] -= static_cast<float>(*plan.learning_rate) * gradient[0];
  }
  std::printf("rank %d of %d: %s: weight %.3f\n", context.rank(), context.world_size(),
              plan.ToString().c_str(), weight[0]);
  return backend->Close().ok() ? 0 : 1;
}
