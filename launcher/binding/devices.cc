// NVML, the environment and the device files joined: see devices.h.
#include "launcher/binding/devices.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace ddl {
namespace {

bool IsGpuFile(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) {
    return false;
  }
  const std::string_view number = name.substr(kPrefix.size());
  return std::all_of(number.begin(), number.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::size_t CountDeviceFiles(const std::string& directory) {
  std::size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    count += IsGpuFile(it->path().filename().native()) ? 1 : 0;
  }
  return count;
}

VisibleDevices AllOf(std::size_t count, bool known) {
  VisibleDevices visible;
  for (std::size_t i = 0; i < count; ++i) {
    visible.devices.push_back({std::to_string(i), std::nullopt});
    if (known) {
      visible.devices.back().gpu = i;
    }
  }
  return visible;
}

std::string ExplainList(const std::string& list, const VisibleDevices& visible) {
  std::string given = absl::StrCat(kVisibleDevices, "=", list);
  if (list.empty()) {
    return absl::StrCat(kVisibleDevices, " is empty");
  }
  if (!visible.twice.empty()) {
    return absl::StrCat(given, " names ", visible.twice, " twice, and CUDA then shows no device");
  }
  if (!visible.ended_by.empty()) {
    return absl::StrCat(given, " ends at ", visible.ended_by, ", which is no device here");
  }
  return given;
}

}  // namespace

GpuView LookAtGpus(const EnvironmentMap& environment, const DeviceSources& sources) {
  const absl::StatusOr<std::vector<Gpu>> listed = ListGpus(sources.nvml_library);
  // A library that finds no driver: then CUDA does not either.
  const bool known = !absl::IsNotFound(listed.status());
  GpuView view;
  if (listed.ok()) {
    view.gpus = *listed;
  }
  if (const auto list = environment.find(kVisibleDevices); list != environment.end()) {
    view.visible = ReadVisibleDevices(list->second, known ? &view.gpus : nullptr);
    view.explanation = ExplainList(list->second, view.visible);
  } else if (known) {
    view.visible = AllOf(view.gpus.size(), true);
    view.explanation = absl::StrCat("NVML counts ", view.gpus.size());
  } else {
    view.visible = AllOf(CountDeviceFiles(sources.device_dir), false);
    view.explanation = absl::StrCat("device files ", sources.device_dir,
                                    "/nvidia*: ", view.visible.devices.size());
    if (view.visible.devices.empty()) {
      view.explanation = absl::StrCat(std::string(listed.status().message()), ", no ",
                                      sources.device_dir, "/nvidia0");
    }
  }
  if (known && !listed.ok()) {
    view.explanation = std::string(listed.status().message());
  }
  return view;
}

std::int32_t GuessGpuCount(const EnvironmentMap& environment, const DeviceSources& sources) {
  if (const auto list = environment.find(kVisibleDevices); list != environment.end()) {
    return ReadVisibleDevices(list->second, nullptr).count();
  }
  return static_cast<std::int32_t>(CountDeviceFiles(sources.device_dir));
}

std::int32_t NumaNodeOf(const Gpu& gpu, const DeviceSources& sources) {
  std::int32_t node = -1;
  if (!gpu.pci_address.empty()) {
    std::ifstream file(absl::StrCat(sources.pci_dir, "/", gpu.pci_address, "/numa_node"));
    if (!(file >> node)) {
      node = -1;
    }
  }
  return node;
}

}  // namespace ddl
