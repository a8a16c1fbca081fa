// Harness for jobs of a minimum and a maximum of nodes.
#ifndef DDLAUNCH_TESTS_UNIT_CORE_ELASTIC_HARNESS_H_
#define DDLAUNCH_TESTS_UNIT_CORE_ELASTIC_HARNESS_H_

#include <string>

#include "tests/unit/core/harness.h"

namespace ddl::core {

class ElasticHarness : public Harness {
 protected:
  static AgentConnected Elastic(const std::string& name, std::int32_t min, std::int32_t max,
                                std::int32_t max_restarts = 0) {
    AgentConnected hello = Hello(name, max, max_restarts);
    hello.min_nodes = min;
    hello.last_call_timeout = 5 * kSecond;
    return hello;
  }

  // "a" and "b" run round 1 of a job of 1 to `max` nodes.
  void StartTwo(std::int32_t max, std::int32_t max_restarts = 0) {
    Connect(Elastic("a", 1, max, max_restarts));
    Connect(Elastic("b", 1, max, max_restarts));
    PassAlive(5 * kSecond, {"a", "b"});
    ASSERT_EQ(StateOfJob(), Job::State::kRunning);
    Clear();
  }
};

}  // namespace ddl::core

#endif  // DDLAUNCH_TESTS_UNIT_CORE_ELASTIC_HARNESS_H_
