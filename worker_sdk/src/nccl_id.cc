// Makes an ncclUniqueId with a library that is loaded at run time.
#include "worker_sdk/src/nccl_id.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/base/status_macros.h"

namespace ddl {
namespace {

// From nccl.h: typedef struct { char internal[128]; } ncclUniqueId; and 0 is
// ncclSuccess. Stable since NCCL 2.0.
struct UniqueIdStruct {
  char internal[kNcclUniqueIdBytes];  // NOLINT(modernize-avoid-c-arrays): C's own layout
};
using GetUniqueId = int (*)(UniqueIdStruct*);
using GetErrorString = const char* (*)(int);

// What rank 0 publishes begins with one of these.
constexpr char kHasId = 'I';
constexpr char kHasError = 'E';

std::vector<std::string> Candidates() {
  std::vector<std::string> candidates = {"libnccl.so.2"};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing of ours changes the environment.
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr) {
    candidates.push_back(std::string(home) + "/lib64/libnccl.so.2");
  }
  candidates.emplace_back("/usr/local/cuda/lib64/libnccl.so.2");
  return candidates;
}

absl::StatusOr<NcclUniqueId> MakeId() {
  void* library = nullptr;
  std::string tried;
  for (const std::string& name : Candidates()) {
    // Never closed: NCCL keeps a thread that serves the id to the other ranks.
    library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      break;
    }
    tried += (tried.empty() ? "" : ", ") + name;
  }
  if (library == nullptr) {
    return absl::UnavailableError("no NCCL library; tried " + tried +
                                  "; install NCCL 2 or add its folder to LD_LIBRARY_PATH");
  }
  // NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): dlsym's contract.
  const auto get_id = reinterpret_cast<GetUniqueId>(::dlsym(library, "ncclGetUniqueId"));
  const auto get_text = reinterpret_cast<GetErrorString>(::dlsym(library, "ncclGetErrorString"));
  // NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)
  if (get_id == nullptr || get_text == nullptr) {
    return absl::UnavailableError("the NCCL library has no ncclGetUniqueId");
  }
  UniqueIdStruct id{};
  if (const int result = get_id(&id); result != 0) {
    return absl::UnavailableError(std::string("ncclGetUniqueId failed: ") + get_text(result) +
                                  "; NCCL_DEBUG=INFO shows why");
  }
  return std::to_array(id.internal);
}

// What rank 0 published: its id or why it has none.
absl::StatusOr<NcclUniqueId> Parse(const std::string& value) {
  if (value.starts_with(kHasError)) {
    return absl::UnavailableError("rank 0: " + value.substr(1));
  }
  if (value.size() != 1 + kNcclUniqueIdBytes || !value.starts_with(kHasId)) {
    return absl::InternalError("rank 0 published an NCCL id of " + std::to_string(value.size()) +
                               " bytes");
  }
  NcclUniqueId id{};
  value.copy(id.data(), id.size(), 1);
  return id;
}

}  // namespace

absl::StatusOr<NcclUniqueId> internal::AgreeNcclUniqueId(Gateway& gateway, const std::string& key,
                                                         int rank,
                                                         std::chrono::milliseconds timeout) {
  if (rank == 0) {
    absl::StatusOr<NcclUniqueId> made = MakeId();
    std::string value(1, made.ok() ? kHasId : kHasError);
    if (made.ok()) {
      value.append(made->data(), made->size());
    } else {
      value += std::string(made.status().message());
    }
    DDL_RETURN_IF_ERROR(gateway.Publish(key, value));
    return made;
  }
  const absl::StatusOr<std::string> value = gateway.Fetch(key, timeout, std::stop_token());
  return value.ok() ? Parse(*value) : value.status();
}

absl::StatusOr<NcclUniqueId> AgreeNcclUniqueId(const Context& context,
                                               std::chrono::milliseconds timeout) {
  return internal::AgreeNcclUniqueId(*internal::ContextAccess::GatewayOf(context),
                                     "ddl/nccl/" + std::to_string(context.NextSequence()),
                                     context.rank(), timeout);
}

}  // namespace ddl
