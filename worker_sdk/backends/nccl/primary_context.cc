// Asks the driver that the CUDA runtime has loaded; the runtime itself cannot say.
#include "worker_sdk/backends/nccl/primary_context.h"

#include <dlfcn.h>

namespace ddl::internal {
namespace {

// From cuda.h: CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned int* flags,
// int* active). CUdevice is an int, the runtime's number of the device; 0 is
// CUDA_SUCCESS.
using GetState = int (*)(int, unsigned int*, int*);

GetState FindGetState() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): dlsym's contract.
  return driver == nullptr
             ? nullptr
             : reinterpret_cast<GetState>(::dlsym(driver, "cuDevicePrimaryCtxGetState"));
}

}  // namespace

bool MayHavePrimaryContext(int device) {
  static const GetState get_state = FindGetState();
  unsigned int flags = 0;
  int active = 0;
  return get_state == nullptr || get_state(device, &flags, &active) != 0 || active != 0;
}

}  // namespace ddl::internal
