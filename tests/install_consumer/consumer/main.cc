// The smallest program on the installed SDK.
#include <iostream>

#include "ddl/ddl.h"

int main() {
  const auto context = ddl::Context::Create();
  ddl::PlanDefaults defaults;
  defaults.global_batch_size = 32;
  defaults.max_micro_batch_size = 8;
  const auto plan = context.ok() ? context->AgreePlan(defaults) : context.status();
  const auto backend = context.ok() ? ddl::CreateBackend(*context) : context.status();
  if (!plan.ok() || !backend.ok() || !(*backend)->Barrier().ok()) {
    std::cerr << plan.status() << backend.status() << "\n";
    return 1;
  }
  std::cout << "rank " << context->rank() << " of " << context->world_size() << ": "
            << plan->ToString() << "\n";
  return 0;
}
