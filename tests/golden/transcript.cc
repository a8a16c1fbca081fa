// Runs a transcript: commands in, effects out.
#include "tests/golden/transcript.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/golden/render.h"

namespace ddl::core {
namespace {

constexpr char kDefaultJob[] = "j";

std::int64_t Number(const std::map<std::string, std::string>& values, const std::string& name,
                    std::int64_t otherwise) {
  const auto it = values.find(name);
  std::int64_t number = otherwise;
  if (it != values.end() && !absl::SimpleAtoi(it->second, &number)) {
    return otherwise;
  }
  return number;
}

std::int32_t Number32(const std::map<std::string, std::string>& values, const std::string& name,
                      std::int32_t otherwise) {
  return static_cast<std::int32_t>(Number(values, name, otherwise));
}

std::string Text(const std::map<std::string, std::string>& values, const std::string& name,
                 const std::string& otherwise) {
  const auto it = values.find(name);
  return it == values.end() ? otherwise : it->second;
}

// "2.5s"
Duration ParseSeconds(const std::string& text) {
  double seconds = 0;
  if (text.empty() || text.back() != 's' ||
      !absl::SimpleAtod(text.substr(0, text.size() - 1), &seconds)) {
    return Duration::zero();
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

plan::Request ParsePlan(const std::map<std::string, std::string>& values) {
  plan::Request request;
  if (values.contains("batch")) {
    request.global_batch_size = Number(values, "batch", 0);
  }
  if (values.contains("micro")) {
    request.micro_batch_size = Number(values, "micro", 0);
  }
  if (values.contains("floor")) {
    request.min_micro_batch_size = Number(values, "floor", 0);
  }
  return request;
}

}  // namespace

Transcript::Command Transcript::Parse(const std::string& line) {
  Command command;
  std::istringstream words(line);
  words >> command.verb;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      command.values[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (command.subject.empty()) {
      command.subject = word;
    } else {
      command.values["port"] = word;
    }
  }
  return command;
}

std::string Transcript::Run(const std::string& line) {
  trace_.clear();
  const Command command = Parse(line);
  if (command.verb == "set") {
    for (const auto& [name, value] : command.values) {
      defaults_[name] = value;
    }
  } else if (command.verb == "tick") {
    Tick(ParseSeconds(command.subject), Text(command.values, "alive", ""));
  } else if (command.verb == "store") {
    hold_store_ = command.subject == "hold";
    AnswerStore();
  } else if (!RunOnAgent(command) && !RunOnRound(command)) {
    absl::StrAppend(&trace_, "ERROR: no such command: ", line, "\n");
  }
  return trace_;
}

bool Transcript::RunOnAgent(const Command& command) {
  const Values& values = command.values;
  const AgentRef agent = Ref(command.subject);
  if (command.verb == "connect") {
    const AgentConnected hello = MakeHello(command);
    job_of_[command.subject] = hello.agent.job_id;
    Give(hello);
  } else if (command.verb == "port") {
    Give(AgentHeard{agent, static_cast<std::uint32_t>(Number(values, "port", 0))});
  } else if (command.verb == "heard") {
    Give(AgentHeard{agent, 0});
  } else if (command.verb == "disconnect") {
    Give(AgentDisconnected{agent});
  } else if (command.verb == "leave") {
    Give(AgentLeft{agent, Text(values, "why", "")});
  } else if (command.verb == "stop") {
    Give(StopRequested{agent, Number32(values, "signal", 0), values.contains("only")});
  } else {
    return false;
  }
  return true;
}

bool Transcript::RunOnRound(const Command& command) {
  const Values& values = command.values;
  const AgentRef agent = Ref(command.subject);
  const std::int64_t round = Number(values, "round", 0);
  const std::string key = Text(values, "key", "");
  if (command.verb == "failed") {
    WorkerFailure failure;
    failure.rank = Number32(values, "rank", 0);
    failure.local_rank = Number32(values, "local", 0);
    failure.exit_code = Number32(values, "exit", 0);
    failure.term_signal = Number32(values, "signal", 0);
    failure.blames_peer = values.contains("blames");
    failure.out_of_memory = values.contains("memory");
    Give(WorkerFailed{agent, round, failure, ParseSeconds(Text(values, "age", "0s"))});
  } else if (command.verb == "succeeded") {
    Give(WorkersSucceeded{agent, round});
  } else if (command.verb == "stopped") {
    Give(RoundStopped{agent, round});
  } else if (command.verb == "put") {
    Give(KeyWritten{agent, round, key, Text(values, "value", "")});
  } else if (command.verb == "get") {
    Give(KeyWanted{agent, round, key});
  } else if (command.verb == "barrier") {
    Give(BarrierReached{agent, round, Text(values, "name", "")});
  } else if (command.verb == "memory") {
    Give(OutOfMemory{agent, round, Number32(values, "rank", 0), Number(values, "micro", 0),
                     Number(values, "step", 0), Text(values, "text", "")});
  } else if (command.verb == "propose") {
    Give(PlanProposed{agent, round, ParsePlan(values)});
  } else {
    return false;
  }
  return true;
}

AgentConnected Transcript::MakeHello(const Command& command) const {
  Values values = command.values;
  values.insert(defaults_.begin(), defaults_.end());
  AgentConnected hello;
  hello.agent = AgentRef{Text(values, "job", kDefaultJob), command.subject};
  hello.host = Text(values, "host", command.subject);
  hello.address = Text(values, "addr", absl::StrCat(command.subject, ".test"));
  hello.nproc = Number32(values, "nproc", 2);
  hello.max_nodes = Number32(values, "nodes", 2);
  hello.min_nodes = Number32(values, "min", hello.max_nodes);
  hello.max_restarts = Number32(values, "restarts", 0);
  hello.join_timeout = ParseSeconds(Text(values, "join", "60s"));
  hello.last_call_timeout = ParseSeconds(Text(values, "call", "5s"));
  hello.stop_grace = ParseSeconds(Text(values, "grace", "10s"));
  hello.plan = ParsePlan(values);
  hello.last_round = Number(values, "round", 0);
  hello.restart_count = Number32(values, "count", 0);
  hello.last_plan.world_size = Number(values, "world", 0);
  if (values.contains("held")) {
    hello.last_plan.request.global_batch_size = Number(values, "held", 0);
  }
  if (values.contains("learned")) {
    hello.last_plan.request.learned_max_micro_batch_size = Number(values, "learned", 0);
  }
  if (const std::int32_t first = Number32(values, "workerport", 0); first != 0) {
    for (std::int32_t i = 0; i < hello.nproc; ++i) {
      hello.worker_ports.push_back(static_cast<std::uint32_t>(first + i));
    }
  }
  if (values.contains("rank")) {
    hello.node_rank = Number32(values, "rank", 0);
  }
  return hello;
}

AgentRef Transcript::Ref(const std::string& name) const {
  return AgentRef{Text(job_of_, name, kDefaultJob), name};
}

void Transcript::Give(const Event& event) {
  for (const Effect& effect : rendezvous_.Step(now_, event)) {
    absl::StrAppend(&trace_, Render(effect), "\n");
    if (const auto* const persist = std::get_if<Persist>(&effect)) {
      unanswered_.push_back(StoreDone{persist->job_id, persist->sequence});
    } else if (const auto* const arm = std::get_if<ArmTimer>(&effect)) {
      timers_[arm->id] = arm->deadline;
    }
  }
  AnswerStore();
}

void Transcript::AnswerStore() {
  while (!hold_store_ && !unanswered_.empty()) {
    const StoreDone done = unanswered_.front();
    unanswered_.erase(unanswered_.begin());
    absl::StrAppend(&trace_, "-- stored #", done.sequence, "\n");
    Give(done);
  }
}

void Transcript::Tick(Duration duration, const std::string& alive) {
  constexpr Duration kHeartbeat = std::chrono::seconds(1);
  const Instant end = now_ + duration;
  if (alive.empty()) {
    PassTo(end);
    return;
  }
  const std::vector<std::string> names = absl::StrSplit(alive, ',');
  while (now_ < end) {
    for (const std::string& name : names) {
      Give(AgentHeard{Ref(name), 0});
    }
    PassTo(std::min(end, now_ + kHeartbeat));
  }
}

void Transcript::PassTo(Instant end) {
  while (true) {
    const auto next =
        std::min_element(timers_.begin(), timers_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (next == timers_.end() || next->second > end) {
      break;
    }
    now_ = std::max(now_, next->second);
    const TimerId id = next->first;
    timers_.erase(next);
    absl::StrAppend(&trace_, "-- ", Render(now_.time_since_epoch()), ": ", Render(id), " fires\n");
    Give(TimerFired{id});
  }
  now_ = end;
}

}  // namespace ddl::core
