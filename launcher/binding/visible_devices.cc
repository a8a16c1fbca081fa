// Entry by entry, up to the first that names no device.
#include "launcher/binding/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>

namespace ddl {
namespace {

constexpr std::string_view kMig = "MIG-";
constexpr std::string_view kBlank = " \t";

// What names the same device twice: "3", or a MIG instance's UUID.
struct Named {
  std::string identity;
  std::optional<std::size_t> gpu;
};

std::string_view Trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// CUDA reads a number as strtoul does: "2x" is 2.
std::optional<Named> ByIndex(std::string_view entry, const std::vector<Gpu>* gpus) {
  std::size_t index = 0;
  if (entry.starts_with('+')) {
    entry.remove_prefix(1);
  }
  const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error != std::errc() || (gpus != nullptr && index >= gpus->size())) {
    return std::nullopt;
  }
  Named named{std::to_string(index), std::nullopt};
  if (gpus != nullptr) {
    named.gpu = index;
  }
  return named;
}

// The beginning of a UUID must be of one GPU only.
std::optional<Named> ByUuid(std::string_view entry, const std::vector<Gpu>& gpus) {
  std::optional<Named> found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid.starts_with(entry)) {
      if (found.has_value()) {
        return std::nullopt;
      }
      found = Named{std::to_string(i), i};
    }
  }
  return found;
}

// "MIG-<uuid>", or as drivers before 470 had it "MIG-GPU-<uuid>/<gi>/<ci>".
std::optional<Named> ByMigUuid(std::string_view entry, const std::vector<Gpu>& gpus) {
  std::optional<Named> found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (const std::string& uuid : gpus[i].mig_uuids) {
      if (uuid.starts_with(entry)) {
        if (found.has_value()) {
          return std::nullopt;
        }
        found = Named{uuid, i};
      }
    }
    const std::string_view parent = entry.substr(kMig.size(), entry.find('/') - kMig.size());
    if (!found.has_value() && !gpus[i].uuid.empty() && parent == gpus[i].uuid) {
      found = Named{std::string(entry), i};
    }
  }
  return found;
}

std::optional<Named> Find(std::string_view entry, const std::vector<Gpu>* gpus) {
  const bool is_mig = entry.starts_with(kMig);
  if (!is_mig && !entry.starts_with("GPU-")) {
    return ByIndex(entry, gpus);
  }
  if (gpus == nullptr) {
    return Named{std::string(entry), std::nullopt};
  }
  return is_mig ? ByMigUuid(entry, *gpus) : ByUuid(entry, *gpus);
}

}  // namespace

VisibleDevices ReadVisibleDevices(std::string_view list, const std::vector<Gpu>* gpus) {
  VisibleDevices visible;
  std::set<std::string> seen;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view entry = Trim(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    const std::optional<Named> named = Find(entry, gpus);
    if (!named.has_value()) {
      visible.ended_by = entry.empty() ? "an empty entry" : std::string(entry);
      break;
    }
    if (!seen.insert(named->identity).second && visible.twice.empty()) {
      visible.twice = entry;
    }
    visible.devices.push_back({std::string(entry), named->gpu});
  }
  return visible;
}

}  // namespace ddl
