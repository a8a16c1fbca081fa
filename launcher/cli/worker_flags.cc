// The flags of the workers: see worker_flags.h.
#include "launcher/cli/worker_flags.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"
#include "launcher/binding/cpu_list.h"
#include "launcher/binding/devices.h"
#include "launcher/binding/place_workers.h"
#include "launcher/cli/values.h"

namespace ddl::cli {
namespace {

std::string Workers(std::int32_t number) {
  return absl::StrCat(number, number == 1 ? " worker" : " workers");
}

// Turns cpu, gpu and auto into a number, and says which.
absl::StatusOr<std::int32_t> CountWorkers(const RawValue& raw, NprocRequest::Kind kind,
                                          const Surroundings& surroundings, Notices& notices) {
  using Kind = NprocRequest::Kind;
  std::int32_t number = 0;
  std::string why;
  if (kind != Kind::kCpu) {
    const GpuView view = LookAtGpus(surroundings.environment, surroundings.devices);
    number = view.visible.count();
    why = view.explanation;
    if (kind == Kind::kGpu && number == 0) {
      return BadValue(
          raw, absl::StrCat("this node has no GPU for workers (", why, "); use cpu or a number"));
    }
  }
  const bool by_gpu = number > 0;
  number = by_gpu ? number : UsableCpus();
  notices.push_back(
      {Notice::Level::kInfo,
       absl::StrCat(raw.origin, "=", raw.text, ": ", Workers(number), ", one for each ",
                    by_gpu ? "GPU (" : "CPU", by_gpu ? why + ")" : "")});
  return number;
}

absl::Status ApplyPlaces(const Arguments& arguments, const Surroundings& surroundings,
                         LaunchConfig& config, Notices& notices) {
  absl::StatusOr<Placement> placement =
      PlaceWorkers({config.nproc, config.numa_binding, config.virtual_local_rank},
                   surroundings.environment, surroundings.devices);
  if (absl::IsInvalidArgument(placement.status())) {
    return placement.status();  // names its flag
  }
  if (!placement.ok()) {
    return BadValue(*arguments.Find(FlagId::kNumaBinding),
                    std::string(placement.status().message()));
  }
  config.places = std::move(placement->workers);
  for (std::string& note : placement->notes) {
    notices.push_back({Notice::Level::kInfo, std::move(note)});
  }
  for (std::string& warning : placement->warnings) {
    notices.push_back({Notice::Level::kWarning, std::move(warning)});
  }
  return absl::OkStatus();
}

// One line, where torchrun prints five and takes 1.
void SayThreads(const Surroundings& surroundings, const LaunchConfig& config, Notices& notices) {
  const bool is_users = surroundings.environment.contains("OMP_NUM_THREADS");
  if (config.nproc == 1 || is_users) {
    return;
  }
  const std::int32_t cpus = UsableCpus();
  std::int32_t least = std::max(1, cpus / config.nproc);
  std::int32_t most = least;
  if (config.numa_binding != NumaBinding::kNone) {
    const auto [low, high] = std::minmax_element(
        config.places.begin(), config.places.end(),
        [](const WorkerPlace& a, const WorkerPlace& b) { return a.threads < b.threads; });
    least = low->threads;
    most = high->threads;
  }
  notices.push_back(
      {Notice::Level::kInfo,
       absl::StrCat("OMP_NUM_THREADS=", least, least == most ? "" : absl::StrCat(" to ", most),
                    " for each of ", config.nproc, " workers (this node has ", cpus,
                    cpus == 1 ? " CPU" : " CPUs", " for them); set it to choose another number")});
}

}  // namespace

absl::Status ApplyWorkerFlags(const Arguments& arguments, const Surroundings& surroundings,
                              LaunchConfig& config, Notices& notices) {
  DDL_ASSIGN_OR_RETURN(const std::optional<NprocRequest> request,
                       ReadFlag(arguments, FlagId::kNprocPerNode, ParseNproc));
  if (request.has_value()) {
    config.nproc = request->number;
  }
  if (request.has_value() && request->kind != NprocRequest::Kind::kNumber) {
    DDL_ASSIGN_OR_RETURN(config.nproc, CountWorkers(*arguments.Find(FlagId::kNprocPerNode),
                                                    request->kind, surroundings, notices));
  }
  DDL_ASSIGN_OR_RETURN(const std::optional<Frameworks> frameworks,
                       ReadFlag(arguments, FlagId::kEnv, ParseFrameworks));
  DDL_ASSIGN_OR_RETURN(const std::optional<NumaBinding> binding,
                       ReadFlag(arguments, FlagId::kNumaBinding, ParseNumaBinding));
  config.frameworks = frameworks.value_or(config.frameworks);
  config.numa_binding = binding.value_or(config.numa_binding);
  DDL_ASSIGN_OR_RETURN(config.virtual_local_rank, ReadSwitch(arguments, FlagId::kVirtualLocalRank));
  DDL_ASSIGN_OR_RETURN(config.worker_store, ReadSwitch(arguments, FlagId::kWorkerStore));
  DDL_RETURN_IF_ERROR(ApplyPlaces(arguments, surroundings, config, notices));
  SayThreads(surroundings, config, notices);
  if (std::string warning = SharingWarning(
          config.nproc, config.virtual_local_rank
                            ? 0
                            : GuessGpuCount(surroundings.environment, surroundings.devices));
      !warning.empty()) {
    notices.push_back({Notice::Level::kWarning, std::move(warning)});
  }
  return absl::OkStatus();
}

}  // namespace ddl::cli
