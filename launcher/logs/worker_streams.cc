// Prefixes, tees and redirects, as torchrun has them.
#include "launcher/logs/worker_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "agent/base/errno_text.h"
#include "agent/base/host.h"
#include "launcher/logs/prefix_template.h"

namespace ddl {
namespace {

std::string PrefixOf(const LaunchConfig& config, const RoundInfo& round, std::int32_t local_rank) {
  if (config.log_line_prefix_template.empty()) {
    return "[" + config.role + std::to_string(local_rank) + "]:";
  }
  return FillPrefixTemplate(config.log_line_prefix_template,
                            {config.role, local_rank, round.first_rank + local_rank, HostName()});
}

}  // namespace

absl::StatusOr<OutputPipe> MakeOutputPipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(ErrnoText("cannot open a worker's output pipe", errno));
  }
  OutputPipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  ::fcntl(pipe.read_end.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

std::vector<StreamSpec> StreamsOf(const LaunchConfig& config, const RoundInfo& round,
                                  std::int32_t local_rank, WorkerFiles& files, OutputPipe& out,
                                  OutputPipe& err) {
  const std::string prefix = PrefixOf(config, round, local_rank);
  // The only worker that its job can have needs none, unless it was asked for.
  const bool alone =
      round.world_size == 1 && config.max_nodes == 1 && config.log_line_prefix_template.empty();
  const bool shown = config.local_ranks_filter.empty() ||
                     config.local_ranks_filter.find(local_rank) != config.local_ranks_filter.end();
  // A tee wins over a redirect of the same stream, as in torchrun.
  const unsigned file_only =
      unsigned{config.redirects.of(local_rank)} & ~unsigned{config.tee.of(local_rank)};
  std::vector<StreamSpec> streams;
  for (const bool is_stderr : {false, true}) {
    StreamSpec spec;
    spec.pipe = std::move(is_stderr ? err.read_end : out.read_end);
    spec.is_stderr = is_stderr;
    spec.on_console = shown && (file_only & (is_stderr ? kStderr : kStdout)) == 0;
    spec.prefix = alone ? "" : prefix;
    spec.raw = alone;
    spec.file = std::move(is_stderr ? files.stderr_file : files.stdout_file);
    spec.file_path = is_stderr ? files.stderr_path : files.stdout_path;
    if (!spec.file.valid()) {
      spec.file_path.clear();
    }
    spec.filtered = is_stderr ? files.filtered_stderr : files.filtered_stdout;
    spec.filtered_prefix = prefix;
    streams.push_back(std::move(spec));
  }
  return streams;
}

}  // namespace ddl
