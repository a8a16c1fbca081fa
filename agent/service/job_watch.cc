// Beginnings and ends of jobs, in words.
#include "agent/service/job_watch.h"

#include <cstddef>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/core/job.h"

namespace ddl {
namespace {

const std::string& JobIdOf(const core::Event& event) {
  return std::visit(
      [](const auto& one) -> const std::string& {
        if constexpr (requires { one.agent; }) {
          return one.agent.job_id;
        } else if constexpr (requires { one.id; }) {
          return one.id.job_id;
        } else {
          return one.job_id;
        }
      },
      event);
}

std::string Begun(const std::string& job_id, const core::Job& job) {
  std::string text = absl::StrCat("job ", job_id, " has begun");
  if (!job.agents().empty()) {
    const core::AgentConnected& hello = job.agents().begin()->second.hello;
    absl::StrAppend(&text, ": host ", hello.host, " is there, of ");
    if (hello.min_nodes != hello.max_nodes) {
      absl::StrAppend(&text, hello.min_nodes, " to ");
    }
    absl::StrAppend(&text, hello.max_nodes, hello.max_nodes == 1 ? " node" : " nodes");
  }
  return text;
}

std::string EndOf(const std::string& job_id, const core::Job& job) {
  const auto& result = job.result();
  if (!result.has_value()) {
    return absl::StrCat("job ", job_id, " has ended");
  }
  return absl::StrCat("job ", job_id, " has ended with exit code ", result->exit_code,
                      result->text.empty() ? "" : ": ", result->text);
}

// Beyond so many, what is kept of jobs that are gone is looked for.
constexpr std::size_t kSlack = 64;

}  // namespace

std::optional<std::string> JobWatch::Look(const core::Rendezvous& core, const core::Event& event) {
  if (has_ended_.size() > 2 * core.num_jobs() + kSlack) {
    std::erase_if(has_ended_,
                  [&core](const auto& entry) { return core.FindJob(entry.first) == nullptr; });
  }
  const std::string& job_id = JobIdOf(event);
  const core::Job* const job = core.FindJob(job_id);
  const auto known = has_ended_.find(job_id);
  const bool was_running = known != has_ended_.end() && !known->second;
  if (job == nullptr) {
    if (known != has_ended_.end()) {
      has_ended_.erase(known);
    }
    return was_running ? std::optional(absl::StrCat("job ", job_id, " has ended")) : std::nullopt;
  }
  if (job->state() == core::Job::State::kEnded) {
    has_ended_[job_id] = true;
    return was_running || known == has_ended_.end() ? std::optional(EndOf(job_id, *job))
                                                    : std::nullopt;
  }
  has_ended_[job_id] = false;
  return was_running ? std::nullopt : std::optional(Begun(job_id, *job));
}

}  // namespace ddl
