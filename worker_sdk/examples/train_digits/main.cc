// train_bin: a data-parallel trainer on handwritten digits.
//
// Every rank runs this program. They agree on a plan, start from rank 0's
// weights, share each global batch, sum their gradients once per optimizer step
// and so stay equal, bit for bit. The result does not depend on how many ranks
// there are. After a failure ddlaunch starts all ranks again, and they resume
// from the last checkpoint, in mid-epoch if need be. When one runs out of memory,
// all do the step again with a smaller micro-batch.
#include <cstdio>
#include <string>
#include <vector>

#include "ddl/context.h"
#include "worker_sdk/examples/train_digits/options.h"
#include "worker_sdk/examples/train_digits/trainer.h"

namespace ddl::digits {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int Main(const std::vector<std::string>& arguments) {
  // Whole lines, also into a pipe.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const absl::StatusOr<Options> options = ParseOptions(arguments);
  if (!options.ok()) {
    std::fprintf(stderr, "train_bin: %s\n", std::string(options.status().message()).c_str());
    return kExitUsage;
  }
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<Context> context = Context::Create();
  if (!context.ok()) {
    std::fprintf(stderr, "train_bin: %s\n", std::string(context.status().message()).c_str());
    return kExitFailure;
  }
  std::printf("rank %d of %d, restart %d\n", context->rank(), context->world_size(),
              context->restart_count());
  if (const absl::Status status = TrainDigits(*options, *context); !status.ok()) {
    std::fprintf(stderr, "train_bin: rank %d: %s\n", context->rank(),
                 std::string(status.message()).c_str());
    return kExitFailure;
  }
  return 0;
}

}  // namespace
}  // namespace ddl::digits

int main(int argc, char** argv) {
  return ddl::digits::Main(std::vector<std::string>(argv + 1, argv + argc));
}
