// The flags of the workers: see worker_flags.h.
#include "launcher/cli/worker_flags.h"

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/cli/devices.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

// Turns cpu, gpu and auto into a number, and says which.
absl::StatusOr<std::int32_t> CountWorkers(const RawValue& raw, const NprocRequest& request,
                                          const Surroundings& surroundings, Notices& notices) {
  using Kind = NprocRequest::Kind;
  if (request.kind == Kind::kNumber) {
    return request.number;
  }
  const std::int32_t gpus =
      request.kind == Kind::kCpu ? 0 : CountGpus(surroundings.environment, surroundings.device_dir);
  if (request.kind == Kind::kGpu && gpus == 0) {
    return BadValue(raw, absl::StrCat("this node has no GPU (looked at CUDA_VISIBLE_DEVICES and ",
                                      surroundings.device_dir, "/nvidia*); use cpu or a number"));
  }
  const std::int32_t number = gpus > 0 ? gpus : CountCpus();
  notices.push_back(
      {Notice::Level::kInfo,
       absl::StrCat(raw.origin, "=", raw.text, ": ", number, number == 1 ? " worker" : " workers",
                    ", one for each ", gpus > 0 ? "GPU" : "CPU")});
  return number;
}

}  // namespace

absl::Status ApplyWorkerFlags(const Arguments& arguments, const Surroundings& surroundings,
                              LaunchConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const std::optional<NprocRequest> request,
                       ReadFlag(arguments, FlagId::kNprocPerNode, ParseNproc));
  if (request.has_value()) {
    DDL_ASSIGN_OR_RETURN(config.nproc, CountWorkers(*arguments.Find(FlagId::kNprocPerNode),
                                                    *request, surroundings, notices));
  }
  DDL_ASSIGN_OR_RETURN(const std::optional<Frameworks> frameworks,
                       ReadFlag(arguments, FlagId::kEnv, ParseFrameworks));
  DDL_ASSIGN_OR_RETURN(const std::optional<NumaBinding> binding,
                       ReadFlag(arguments, FlagId::kNumaBinding, ParseNumaBinding));
  config.frameworks = frameworks.value_or(config.frameworks);
  config.numa_binding = binding.value_or(config.numa_binding);
  DDL_ASSIGN_OR_RETURN(config.virtual_local_rank, ReadSwitch(arguments, FlagId::kVirtualLocalRank));
  DDL_ASSIGN_OR_RETURN(config.worker_store, ReadSwitch(arguments, FlagId::kWorkerStore));
  return absl::OkStatus();
}

}  // namespace ddl::cli
