// A worker that sums numbers with its peers for ever, and whose SIGTERM handler
// leaves with 0 in the middle of it. Touches the file argv[1] + its rank when the
// first sum is done.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ddl/ddl.h"

namespace {

int Fail(const absl::Status& status) {
  std::cerr << status << "\n";
  return 1;
}

int Run(const std::string& up) {
  auto context = ddl::Context::Create();
  if (!context.ok()) {
    return Fail(context.status());
  }
  auto backend = ddl::CreateBackend(*context);
  if (!backend.ok()) {
    return Fail(backend.status());
  }
  std::vector<float> values(4);
  for (bool first = true;; first = false) {
    if (const absl::Status status = (*backend)->AllReduceSum(std::span<float>(values));
        !status.ok()) {
      return Fail(status);
    }
    if (first) {
      std::ofstream(up + std::to_string(context->rank())) << "up\n";
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { std::_Exit(0); });
  return argc == 2 ? Run(argv[1]) : 2;
}
