// Whether this process uses a CUDA device. Thread safe.
#ifndef DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_PRIMARY_CONTEXT_H_
#define DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_PRIMARY_CONTEXT_H_

namespace ddl::internal {

// False: `device` has no primary context in this process. True also when the driver
// cannot be asked.
[[nodiscard]] bool MayHavePrimaryContext(int device);

}  // namespace ddl::internal

#endif  // DDLAUNCH_WORKER_SDK_BACKENDS_NCCL_PRIMARY_CONTEXT_H_
