// Checker: what must hold of the core after every step. It keeps its own, much
// simpler account of each job from the events given and the effects returned,
// and never looks at the core's state, except whether a job is still known.
#ifndef DDLAUNCH_TESTS_SIM_CHECKER_H_
#define DDLAUNCH_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/rendezvous.h"
#include "agent/core/types.h"

namespace ddl::core::sim {

class Checker {
 public:
  explicit Checker(const Options& options) : options_(options) {}

  // `known`: the job still has a record after the step.
  void AfterStep(Instant now, const Event& event, const Effects& effects, bool known);

  // Empty: all is well.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  void Fail(const std::string& what);
  // The job is known and has no result yet.
  [[nodiscard]] bool JobIsOpen(const std::string& job_id) const;

 private:
  struct Agent {
    AgentConnected hello;
    bool connected = true;
    bool admitted = false;  // it was told something else than a refusal
    bool gone = false;      // left, given up, or past its grace
    Instant disconnected_at;
    Instant last_heard;
    std::uint32_t port = 0;
    std::optional<std::int32_t> held;
  };
  // One life of a job, from its first agent until it is forgotten.
  struct Job {
    std::map<std::string, Agent> agents;
    std::int64_t round = 0;  // that started last
    std::int32_t restart_count = 0;
    std::map<std::string, RoundStart> members;
    std::set<std::string> stopped;
    std::set<std::string> succeeded;
    std::map<std::string, std::set<std::string>> barriers;
    std::map<std::string, std::string> keys;
    std::optional<PlanReply> plan;
    std::optional<WorkerFailure> first_failure;
    std::optional<RoundStop> stop;
    Instant stop_at;
    std::optional<JobDone> result;
    bool ended = false;  // Persist said so
    std::set<std::int32_t> signals;
    std::map<std::int64_t, std::int64_t> persisted;  // sequence -> round
    std::int64_t stored_round = 0;
  };
  struct Step {
    Instant now;
    const Event& event;
    const Effects& effects;
    Job& job;
  };

  void NoteEvent(const Step& step);
  void NoteWord(const Step& step, const std::string& sender);
  // A word of the past that must change nothing.
  [[nodiscard]] bool IsStale(const Step& step) const;
  void CheckStale(const Step& step);
  void CheckReply(const Step& step, const Reply& reply);
  void CheckRoundStop(const Step& step, const Reply& reply, const RoundStop& stop);
  void CheckResult(const Step& step, const JobDone& done);
  void CheckNewRound(const Step& step);
  void CheckMembersGone(const Step& step);
  void CheckRanks(const Step& step, const std::map<std::string, RoundStart>& starts);
  void CheckSticky(const Step& step, const std::map<std::string, RoundStart>& starts);
  void CheckAgreement(const Step& step, const std::map<std::string, RoundStart>& starts);
  void BeginRound(const Step& step, const std::map<std::string, RoundStart>& starts);

  const Options options_;
  std::map<std::string, Job> jobs_;
  std::string violation_;
};

}  // namespace ddl::core::sim

#endif  // DDLAUNCH_TESTS_SIM_CHECKER_H_
