// Said for sure where the kernel's counters prove it, else as a question.
#include "launcher/failures/failure_hint.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "agent/base/device_memory.h"
#include "agent/base/signal_name.h"
#include "agent/base/size_text.h"
#include "launcher/exit_code.h"
#include "launcher/failures/out_of_memory.h"

namespace ddl {
namespace {

// How much a counter rose; unset: it could not be read.
std::optional<std::int64_t> Rise(std::optional<std::int64_t> before,
                                 std::optional<std::int64_t> after) {
  return before.has_value() && after.has_value() ? std::optional(*after - *before) : std::nullopt;
}

std::string HintForKill(const MemoryFacts& before, const MemoryFacts& after) {
  if (const auto kills = Rise(before.group_oom_kills, after.group_oom_kills);
      kills.value_or(0) > 0) {
    return "The out-of-memory killer: the kernel counts " + std::to_string(*kills) +
           (*kills == 1 ? " such kill" : " such kills") +
           " in this node's control group since the round began" +
           (after.group_limit_bytes.has_value()
                ? ", whose limit is " + SizeText(*after.group_limit_bytes)
                : "") +
           ". Give it more memory, or use less: fewer data loader workers, a smaller "
           "micro-batch.";
  }
  const auto kills = Rise(before.host_oom_kills, after.host_oom_kills);
  if (kills.value_or(0) > 0) {
    return "Probably the out-of-memory killer: the kernel counts " + std::to_string(*kills) +
           (*kills == 1 ? " such kill" : " such kills") +
           " on this host since the round began; `dmesg` names the processes.";
  }
  if (kills.has_value()) {
    return "Not the kernel's out-of-memory killer, which has killed nothing on this host since "
           "the round began: somebody sent SIGKILL, for example the batch system, the "
           "container's runtime or a user.";
  }
  return "Was it the out-of-memory killer? Look at `dmesg` and the container's memory limit.";
}

std::string HintForBusError(const MemoryFacts& facts) {
  constexpr std::int64_t kFullPart = 10;  // less than a tenth is free
  if (!facts.shm_bytes.has_value() || !facts.shm_free_bytes.has_value()) {
    return "Often a full /dev/shm: look at `df -h /dev/shm`; containers need --shm-size or "
           "--ipc=host.";
  }
  const std::string state = "/dev/shm has " + SizeText(*facts.shm_bytes) + ", of which " +
                            SizeText(*facts.shm_free_bytes) + " are free now";
  return *facts.shm_free_bytes < *facts.shm_bytes / kFullPart
             ? state + ": it is too small; make it larger (containers: --shm-size or --ipc=host)."
             : "Often a full /dev/shm, or a mapped file that became shorter or could not be "
               "read. " +
                   state + ".";
}

std::string HintForSignal(int signal, const MemoryFacts& before, const MemoryFacts& after) {
  switch (signal) {
    case SIGKILL:
      return HintForKill(before, after);
    case SIGBUS:
      return HintForBusError(after);
    case SIGSEGV:
      return "A crash in native code: `ulimit -c unlimited` keeps a core file; Python shows the "
             "stack with PYTHONFAULTHANDLER=1.";
    case SIGABRT:
      return "The program ended itself: a failed assertion or an uncaught C++ exception, see its "
             "last lines.";
    case SIGILL:
      return "An instruction that this CPU does not have: a library that was built for another "
             "CPU than this node's?";
    case SIGFPE:
      return "A division of integers by zero in native code.";
    case SIGTERM:
      return "Not by ddlaunch: somebody else sent SIGTERM, for example the batch system or a user.";
    case SIGXCPU:
      return "Its limit of CPU time is used up: `ulimit -t`.";
    case SIGXFSZ:
      return "A file grew beyond the limit: `ulimit -f`.";
    default:
      return {};
  }
}

// What a shell script says by its exit code.
std::string HintForExitCode(int code, const MemoryFacts& before, const MemoryFacts& after) {
  if (code == kExitNotFound) {
    return "By a shell's convention: a command was not found.";
  }
  if (code == kExitNotExecutable) {
    return "By a shell's convention: a command was found, but cannot be executed.";
  }
  const int signal = code - kSignalExitBase;
  // Only what ends a program by itself: 255 and its like are other things.
  constexpr std::array<int, 8> kSignals = {SIGKILL, SIGBUS, SIGSEGV, SIGABRT,
                                           SIGILL,  SIGFPE, SIGXCPU, SIGXFSZ};
  if (std::find(kSignals.begin(), kSignals.end(), signal) == kSignals.end()) {
    return {};
  }
  return "By a shell's convention: something that it ran was ended by " + SignalName(signal) +
         ". " + HintForSignal(signal, before, after);
}

struct KnownWords {
  std::string_view words;
  std::string_view hint;
};

constexpr std::string_view kNccl =
    "NCCL_DEBUG=INFO shows which peer and which network interface; NCCL_SOCKET_IFNAME chooses "
    "the interface.";

constexpr std::string_view kNcclCuda =
    "A CUDA call inside NCCL failed: NCCL_DEBUG=INFO names it. Often the device has no memory left "
    "for NCCL's buffers (other programs on it? see `nvidia-smi`), or its driver is too old for "
    "this NCCL.";

constexpr std::string_view kPortInUse =
    "If the port is MASTER_PORT: ddlaunch serves PyTorch's store there. A program that listens at "
    "it itself needs --worker-store; JAX's coordinator and TensorFlow's workers get ports of their "
    "own by --env=jax or --env=tensorflow.";

// The first that is found counts: the more telling come first.
constexpr std::array<KnownWords, 10> kKnown = {{
    {"Duplicate GPU detected",
     "Two ranks use one GPU: choose it by LOCAL_RANK, or start as many workers as there are GPUs "
     "(--nproc-per-node=gpu)."},
    {"ncclRemoteError", kNccl},
    {"ncclSystemError", kNccl},
    {"ncclUnhandledCudaError", kNcclCuda},
    {"killed by signal: Bus error", ""},  // a data loader's process: see below
    {"unable to write to file </torch_", ""},
    {"Address already in use", kPortInUse},
    {"EADDRINUSE", kPortInUse},
    {"Failed to add port to server", kPortInUse},  // gRPC's words: JAX, TensorFlow
    {"Too many open files",
     "The limit of open files is too low: `ulimit -n`; or "
     "torch.multiprocessing.set_sharing_strategy('file_system')."},
}};

std::string HintForWords(std::string_view text, const MemoryFacts& facts) {
  if (LastSaysOutOfMemory(text)) {
    return ExplainDeviceMemory(ReadDeviceMemory(text));
  }
  const auto* const it = std::find_if(
      kKnown.begin(), kKnown.end(),
      [text](const KnownWords& known) { return text.find(known.words) != std::string_view::npos; });
  if (it == kKnown.end()) {
    return {};
  }
  return it->hint.empty() ? HintForBusError(facts) : std::string(it->hint);
}

}  // namespace

std::string FailureHint(const HowItEnded& how, const MemoryFacts& before,
                        const MemoryFacts& after) {
  // These say more than the last lines: nothing that was printed is their cause.
  if (how.term_signal == SIGKILL || how.term_signal == SIGBUS) {
    return HintForSignal(how.term_signal, before, after);
  }
  if (std::string hint = HintForWords(how.error_text, after); !hint.empty()) {
    return hint;
  }
  return how.term_signal != 0 ? HintForSignal(how.term_signal, before, after)
                              : HintForExitCode(how.exit_code, before, after);
}

}  // namespace ddl
