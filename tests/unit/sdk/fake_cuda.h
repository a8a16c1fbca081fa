// CUDA and NCCL for a machine without a GPU: the functions that the NCCL backend calls,
// with two devices that remember who did what on which, and a table of hooks by which a
// test decides what a call returns. Collectives change nothing.
#ifndef DDLAUNCH_TESTS_UNIT_SDK_FAKE_CUDA_H_
#define DDLAUNCH_TESTS_UNIT_SDK_FAKE_CUDA_H_

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::testing {

// Thread safe.
class FakeCuda {
 public:
  static FakeCuda& Get();

  // Forgets calls and hooks. REQUIRES: no backend lives. What was left behind stays so.
  void Reset();

  // From now on `hook` answers `call` ("cudaMalloc"); nothing: as without it. It may
  // wait, but not call CUDA.
  using Hook = std::function<std::optional<int>()>;
  void Set(const std::string& call, Hook hook);

  // "cudaMalloc on 1" for each call, in order.
  [[nodiscard]] std::vector<std::string> Calls() const;
  [[nodiscard]] int Count(std::string_view call) const;  // on any device
  // Allocations and streams that were not freed; communicators that were used or
  // aborted after they had been.
  [[nodiscard]] int Living() const;
  [[nodiscard]] int Misuses() const;
  // The last error of the calling thread, left as it is.
  [[nodiscard]] static int LastError();

  // Devices that the process uses: switching to one makes it so.
  [[nodiscard]] bool IsInUse(int device) const;

  // For the fake functions. Notes the call and asks the hook.
  std::optional<int> Note(const std::string& call);
  void Live(const void* what);
  void Die(const void* what);
  void Use(const void* what);
  void Touch(int device);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Hook> hooks_;
  std::vector<std::string> calls_;
  std::set<const void*> living_;
  std::set<const void*> left_behind_;  // before Reset
  std::set<int> in_use_;
  int misuses_ = 0;
};

}  // namespace ddl::testing

#endif  // DDLAUNCH_TESTS_UNIT_SDK_FAKE_CUDA_H_
