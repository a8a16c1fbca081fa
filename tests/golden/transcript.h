// Transcript: plays a file of commands against the core and writes down every
// effect. The commands:
//
//   set nodes=2 restarts=1 ...      defaults of the connects that follow
//   connect a [host= addr= nproc= rank= nodes= min= restarts= join= grace=
//              call= batch= job=    Hello; without values as the defaults
//              round= count=]       (from a round of another coordinator's life)
//   port a 5001                     its master port; `heard a` without one
//   disconnect a | leave a why=x    the stream broke | goodbye
//   failed a round=1 rank=1 [local=0] [exit=3] [signal=9]
//                  [blames=yes] [age=2s]  (it blames a peer; it happened 2 s ago)
//   succeeded a round=1 | stopped a round=1
//   put a round=1 key=k value=v | get a round=1 key=k
//   barrier a round=1 name=x | propose a round=1 batch=64
//   stop a signal=2 [only=yes]      the user stopped it | took the node out
//   tick 5s [alive=a,b]             time passes; those named send heartbeats
//   store hold | store answer       the store stops answering | catches up
//
// An agent's name is its incarnation. Jobs: "j" unless job= says otherwise.
#ifndef DDLAUNCH_TESTS_GOLDEN_TRANSCRIPT_H_
#define DDLAUNCH_TESTS_GOLDEN_TRANSCRIPT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/core/rendezvous.h"
#include "agent/core/types.h"

namespace ddl::core {

class Transcript {
 public:
  // The command's trace, one effect a line. A command that is not understood
  // gives a line that starts with "ERROR".
  [[nodiscard]] std::string Run(const std::string& command);

 private:
  using Values = std::map<std::string, std::string>;

  struct Command {
    std::string verb;
    std::string subject;
    Values values;
  };
  static Command Parse(const std::string& line);
  bool RunOnAgent(const Command& command);
  bool RunOnRound(const Command& command);
  [[nodiscard]] AgentConnected MakeHello(const Command& command) const;
  [[nodiscard]] AgentRef Ref(const std::string& name) const;
  void Give(const Event& event);
  void Tick(Duration duration, const std::string& alive);
  void PassTo(Instant end);
  void AnswerStore();

  Rendezvous rendezvous_{Options()};
  Instant now_{};
  Values defaults_;
  std::map<std::string, std::string> job_of_;  // by agent
  std::map<TimerId, Instant> timers_;
  std::vector<StoreDone> unanswered_;
  bool hold_store_ = false;
  std::string trace_;
};

}  // namespace ddl::core

#endif  // DDLAUNCH_TESTS_GOLDEN_TRANSCRIPT_H_
