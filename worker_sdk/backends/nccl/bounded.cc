// A detached thread that says when it is done.
#include "worker_sdk/backends/nccl/bounded.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/base/thread_signals.h"

namespace ddl::internal {
namespace {

struct Call {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;  // guarded by mutex
};

}  // namespace

bool ReturnsWithin(std::chrono::milliseconds bound, std::function<void()> work) {
  const auto call = std::make_shared<Call>();
  call->work = std::move(work);
  try {
    const BlockAllSignals blocked;  // the program's handlers run in threads of its own
    std::thread([call] {
      call->work();
      call->work = nullptr;  // what it owns is the caller's again
      const std::lock_guard lock(call->mutex);
      call->has_ended = true;
      call->ended.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    call->work();  // no thread to be had
    return true;
  }
  std::unique_lock lock(call->mutex);
  return call->ended.wait_for(lock, bound, [&] { return call->has_ended; });
}

}  // namespace ddl::internal
