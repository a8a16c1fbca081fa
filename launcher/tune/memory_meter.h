// How much memory a trial uses, and how much there is: of the GPU that its worker
// sees, by NVML; on a machine without one, of the host (or the control group, where
// that has a limit), by the resident sets of the processes. Not thread safe.
#ifndef DDLAUNCH_LAUNCHER_TUNE_MEMORY_METER_H_
#define DDLAUNCH_LAUNCHER_TUNE_MEMORY_METER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "launcher/binding/devices.h"
#include "launcher/binding/nvml.h"

namespace ddl::tune {

class MemoryMeter {
 public:
  // For a worker with this environment.
  MemoryMeter(const EnvironmentMap& environment, const DeviceSources& sources);

  [[nodiscard]] bool is_gpu() const { return gpu_ != nullptr; }
  // 0: not known.
  [[nodiscard]] std::int64_t total_bytes() const { return total_bytes_; }
  // "GPU NVIDIA H200 (GPU-8932f937-...)", "this host": whose memory it is.
  [[nodiscard]] const std::string& whose() const { return whose_; }

  // In use now: of the GPU, by everybody; of the host, by the processes below
  // `root`. 0: not known.
  [[nodiscard]] std::int64_t UsedBytes(pid_t root) const;

 private:
  std::unique_ptr<GpuMemoryReader> gpu_;
  std::int64_t total_bytes_ = 0;
  std::string whose_;
};

}  // namespace ddl::tune

#endif  // DDLAUNCH_LAUNCHER_TUNE_MEMORY_METER_H_
