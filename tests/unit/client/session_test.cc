// The agent's decisions about its session, with time and stream by hand.
#include "agent/client/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ddl {
namespace {

using ::testing::HasSubstr;

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr Duration kMs = std::chrono::milliseconds(1);
constexpr Duration kConnectTimeout = 60 * kSecond;
constexpr std::int64_t kRound = 4;

core::Welcome SomeWelcome() {
  return {kSecond, 5 * kSecond, kSecond};
}

core::RoundStart SomeStart(std::int64_t round = kRound, std::int32_t restart_count = 0) {
  core::RoundStart start;
  start.round = round;
  start.restart_count = restart_count;
  return start;
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : session_(SomeOptions(), now_) { Take(session_.Start(now_)); }

  static Session::Options SomeOptions() {
    Session::Options options;
    options.endpoint = "h:1";
    options.hello.agent = {"j", "a"};
    options.hello.master_port = 7;
    options.connect_timeout = kConnectTimeout;
    return options;
  }

  void Take(SessionActions actions) { actions_ = std::move(actions); }
  void Hear(absl::StatusOr<core::Message> message) {
    Take(session_.OnMessage(now_, attempt_, std::move(message)));
  }
  void End(const absl::Status& status) { Take(session_.OnStreamEnded(now_, attempt_, status)); }
  void Wait(Duration duration) {
    now_ += duration;
    Take(session_.OnTime(now_));
  }
  // Connected at once on the stream that is open.
  void Connect() {
    Hear(SomeWelcome());
    ASSERT_TRUE(Found<core::Message>().has_value());
  }
  // Time passes with a heartbeat and its answer each second.
  void Live(int seconds) {
    for (int second = 0; second < seconds; ++second) {
      Wait(kSecond);
      Hear(core::HeartbeatAck{});
    }
  }
  // Another stream, as OnTime opened it.
  void Reopened() {
    const auto open = Found<OpenStream>();
    ASSERT_TRUE(open.has_value());
    attempt_ = open->attempt;
  }

  // The first T of the latest actions.
  template <typename T>
  std::optional<T> Found() const {
    for (const SessionAction& action : actions_) {
      if (const auto* const found = std::get_if<T>(&action)) {
        return *found;
      }
    }
    return std::nullopt;
  }
  template <typename T>
  std::optional<T> Sent() const {
    const auto send = Found<SendEvent>();
    const T* const event = send.has_value() ? std::get_if<T>(&send->event) : nullptr;
    return event == nullptr ? std::nullopt : std::optional(*event);
  }

  Instant now_ = Instant{} + 1000 * kSecond;
  Session session_;
  int attempt_ = 1;
  SessionActions actions_;
};

TEST_F(SessionTest, Start_OpensAStreamWithItsHello) {
  const auto open = Found<OpenStream>();
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->attempt, 1);
  EXPECT_EQ(open->hello.agent.incarnation, "a");
  EXPECT_EQ(session_.deadline(), now_ + 5 * kSecond) << "when the user is told that it takes long";
}

TEST_F(SessionTest, FirstConnectionFails_IsTriedAgainWithNoticesUntilItsTimeout) {
  End(absl::UnavailableError("refused"));
  EXPECT_EQ(session_.deadline(), now_ + 200 * kMs);
  Wait(200 * kMs);
  Reopened();
  Wait(5 * kSecond);
  EXPECT_THAT(Found<ClientNotice>()->text, HasSubstr("refused"));
  Wait(kConnectTimeout);
  ASSERT_TRUE(Found<ClientLost>().has_value());
  EXPECT_THAT(std::string(Found<ClientLost>()->status.message()), HasSubstr("could not reach"));
  EXPECT_TRUE(Found<CancelStream>().has_value());
  EXPECT_TRUE(session_.closed());
  EXPECT_EQ(session_.deadline(), std::nullopt);
}

TEST_F(SessionTest, NotConnected_WordsAreDropped) {
  Take(session_.Send(core::WorkersSucceeded{{}, kRound}));
  EXPECT_TRUE(actions_.empty());
  Connect();
  Take(session_.Send(core::WorkersSucceeded{{}, kRound}));
  EXPECT_TRUE(Sent<core::WorkersSucceeded>().has_value());
}

TEST_F(SessionTest, Connected_SendsAHeartbeatEachInterval) {
  Connect();
  EXPECT_EQ(session_.deadline(), now_ + kSecond);
  Wait(kSecond - kMs);
  EXPECT_TRUE(actions_.empty());
  Wait(kMs);
  EXPECT_TRUE(Sent<core::AgentHeard>().has_value());
  EXPECT_EQ(session_.deadline(), now_ + kSecond);
}

TEST_F(SessionTest, HeartbeatAck_IsNotForTheNode) {
  Connect();
  Wait(kSecond);
  Hear(core::HeartbeatAck{});
  EXPECT_TRUE(actions_.empty());
}

TEST_F(SessionTest, StreamBreaks_ComesBackAtOnceAndGivesUpBeforeTheGraceEnds) {
  Connect();
  Live(10);
  End(absl::UnavailableError("reset"));
  EXPECT_TRUE(actions_.empty());
  Wait({});
  Reopened();
  Wait(749 * kMs);
  EXPECT_FALSE(Found<ClientLost>().has_value());
  Wait(kMs);
  ASSERT_TRUE(Found<ClientLost>().has_value());
  EXPECT_THAT(std::string(Found<ClientLost>()->status.message()),
              HasSubstr("lost the coordinator"));
}

TEST_F(SessionTest, StreamBreaks_WelcomedAgain_GoesOn) {
  Connect();
  Live(10);
  End(absl::UnavailableError("reset"));
  Wait({});
  Reopened();
  Connect();
  Live(10);
  EXPECT_FALSE(session_.closed());
}

TEST_F(SessionTest, Silence_BreaksTheStreamInTimeForTheCoordinatorsOwnLimit) {
  Connect();
  Live(10);
  for (int ms = 0; ms < 2999; ++ms) {
    Wait(kMs);
    ASSERT_FALSE(Found<CancelStream>().has_value()) << ms;
  }
  Wait(kMs);
  EXPECT_TRUE(Found<CancelStream>().has_value());
  Reopened();
  Wait(750 * kMs);
  ASSERT_TRUE(Found<ClientLost>().has_value()) << "3.75 s: the coordinator's limit is 5 s";
  EXPECT_THAT(std::string(Found<ClientLost>()->status.message()), HasSubstr("for 3 s"));
}

TEST_F(SessionTest, IntervalTooLongForTheTimeout_HeartbeatsComeOftenEnough) {
  core::Welcome welcome = SomeWelcome();
  welcome.heartbeat_timeout = kSecond;
  Hear(welcome);
  EXPECT_EQ(session_.deadline(), now_ + 250 * kMs);
  Wait(250 * kMs);
  EXPECT_TRUE(Sent<core::AgentHeard>().has_value());
  EXPECT_FALSE(Found<CancelStream>().has_value());
}

TEST_F(SessionTest, OldStreamsWords_AreIgnored) {
  Connect();
  const int old_attempt = attempt_;
  End(absl::UnavailableError("reset"));
  Wait({});
  Reopened();
  Take(session_.OnMessage(now_, old_attempt, SomeWelcome()));
  EXPECT_TRUE(actions_.empty());
  Take(session_.OnStreamEnded(now_, old_attempt, absl::UnavailableError("late")));
  Take(session_.Send(core::WorkersSucceeded{{}, kRound}));
  EXPECT_TRUE(actions_.empty()) << "not connected yet";
}

TEST_F(SessionTest, NextHello_SaysWhatPassedThrough) {
  Connect();
  Hear(SomeStart(kRound, 2));
  EXPECT_EQ(std::get<core::RoundStart>(*Found<core::Message>()).round, kRound);
  Take(session_.SetMasterPort(now_, 9));
  EXPECT_EQ(Sent<core::AgentHeard>()->master_port, 9);
  core::RoundStop stop;
  stop.round = kRound + 1;  // its start was lost
  Hear(stop);
  End(absl::UnavailableError("reset"));
  Take(session_.SetMasterPort(now_, 10));
  EXPECT_TRUE(actions_.empty());
  Wait({});
  const auto open = Found<OpenStream>();
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->hello.last_round, kRound + 1);
  EXPECT_EQ(open->hello.restart_count, 2);
  EXPECT_EQ(open->hello.master_port, 10);
}

TEST_F(SessionTest, NextHello_SaysWhatTheLastPlanWasSolvedFrom) {
  Connect();
  const auto next_hello = [this] {
    End(absl::UnavailableError("reset"));
    Wait({});
    const core::LastPlan last = Found<OpenStream>()->hello.last_plan;
    attempt_ = Found<OpenStream>()->attempt;
    Connect();
    return last;
  };
  const auto plan_of = [](std::int64_t world) {
    plan::Plan plan;
    plan.world_size = world;
    return plan;
  };
  core::RoundStart start = SomeStart();
  Hear(start);
  EXPECT_EQ(next_hello(), core::LastPlan()) << "no plan yet";
  core::PlanReply reply;
  reply.round = start.round;
  reply.plan = plan_of(4);
  reply.plan_request.micro_batch_size = 8;
  Hear(reply);
  EXPECT_EQ(next_hello(), (core::LastPlan{reply.plan_request, 4}));
  reply.round += 1;
  reply.plan = plan_of(2);
  Hear(reply);
  EXPECT_EQ(next_hello().world_size, 4) << "of another round";
  // The program has not asked yet in this round: what it had is held.
  start.round += 1;
  start.plan_request.learned_max_micro_batch_size = 4;
  Hear(start);
  core::LastPlan last = next_hello();
  EXPECT_EQ(last.world_size, 4);
  EXPECT_EQ(last.request.micro_batch_size, 8);
  EXPECT_EQ(last.request.learned_max_micro_batch_size, 4);
  core::PlanChanged changed;
  changed.round = start.round;
  changed.revision = 1;
  changed.plan = plan_of(3);
  changed.plan_request.uneven_micro_steps = true;
  Hear(changed);
  EXPECT_EQ(next_hello(), (core::LastPlan{changed.plan_request, 3}));
  start.round += 1;
  start.plan = plan_of(5);
  Hear(start);
  EXPECT_EQ(next_hello(), (core::LastPlan{start.plan_request, 5}));
}

TEST_F(SessionTest, Rejected_IsFinalAndEndsTheLease) {
  Connect();
  Hear(core::Rejected{core::Reason::kStopTimeout, "too slow"});
  EXPECT_TRUE(Found<core::Message>().has_value());
  EXPECT_EQ(session_.lease_until(), now_);
  End(absl::OkStatus());
  EXPECT_TRUE(session_.closed());
  Wait(kSecond);
  EXPECT_TRUE(actions_.empty());
}

TEST_F(SessionTest, InvalidArgument_IsFinal) {
  End(absl::InvalidArgumentError("the host name is too long"));
  ASSERT_TRUE(Found<ClientLost>().has_value());
  EXPECT_THAT(std::string(Found<ClientLost>()->status.message()), HasSubstr("too long"));
}

TEST_F(SessionTest, NonsenseFromTheCoordinator_IsFinal) {
  Connect();
  Hear(absl::InvalidArgumentError("nonsense"));
  EXPECT_TRUE(Found<CancelStream>().has_value());
  EXPECT_TRUE(Found<ClientLost>().has_value());
}

TEST_F(SessionTest, NewerCoordinatorsMessage_IsOnlyHeard) {
  Connect();
  Wait(2999 * kMs);
  Hear(absl::UnimplementedError("what?"));
  EXPECT_TRUE(actions_.empty());
  Wait(kMs);
  EXPECT_FALSE(Found<CancelStream>().has_value()) << "it was heard: no silence";
}

TEST_F(SessionTest, Leave_SaysGoodbyeAndWaitsForTheEnd) {
  Connect();
  Take(session_.Leave("done"));
  EXPECT_EQ(Sent<core::AgentLeft>()->why, "done");
  EXPECT_TRUE(Found<HalfCloseStream>().has_value());
  EXPECT_FALSE(session_.closed());
  End(absl::OkStatus());
  EXPECT_TRUE(session_.closed());
}

TEST_F(SessionTest, LeaveWhileConnecting_Cancels) {
  Take(session_.Leave("done"));
  EXPECT_TRUE(Found<CancelStream>().has_value());
  End(absl::CancelledError("cancelled"));
  EXPECT_TRUE(session_.closed());
}

TEST_F(SessionTest, LeaveBetweenTries_IsClosedAtOnce) {
  End(absl::UnavailableError("refused"));
  Take(session_.Leave("done"));
  EXPECT_TRUE(session_.closed());
}

// ---- the lease ---------------------------------------------------------------

TEST_F(SessionTest, Lease_CountsFromWhenTheAcknowledgedWordWasSent) {
  const Instant hello_sent = now_;
  EXPECT_EQ(session_.lease_until(), std::nullopt);
  Wait(300 * kMs);
  Connect();
  EXPECT_EQ(session_.lease_until(), hello_sent + 4 * kSecond);
  Wait(700 * kMs);
  ASSERT_TRUE(Sent<core::AgentHeard>().has_value()) << "the Hello counts as a heartbeat";
  const Instant first_sent = now_;
  Wait(kSecond);
  ASSERT_TRUE(Sent<core::AgentHeard>().has_value());
  const Instant second_sent = now_;
  Wait(300 * kMs);
  EXPECT_EQ(session_.lease_until(), hello_sent + 4 * kSecond);
  Hear(core::HeartbeatAck{});
  EXPECT_EQ(session_.lease_until(), first_sent + 4 * kSecond);
  Hear(core::HeartbeatAck{});
  EXPECT_EQ(session_.lease_until(), second_sent + 4 * kSecond);
  Hear(core::HeartbeatAck{});
  EXPECT_EQ(session_.lease_until(), second_sent + 4 * kSecond) << "one too many changes nothing";
}

TEST_F(SessionTest, Lease_AcknowledgementsOfABrokenStreamDoNotCountOnTheNext) {
  Connect();
  Wait(kSecond);
  End(absl::UnavailableError("reset"));
  Wait(100 * kMs);
  Reopened();
  const Instant second_hello = now_;
  Connect();
  EXPECT_EQ(session_.lease_until(), second_hello + 4 * kSecond);
  Wait(kSecond);
  Hear(core::HeartbeatAck{});
  EXPECT_EQ(session_.lease_until(), second_hello + 5 * kSecond);
}

TEST_F(SessionTest, LeaseRunsOutInARound_IsLostThoughOtherWordsCome) {
  Connect();
  Hear(SomeStart());
  for (int second = 0; second < 3; ++second) {
    Wait(kSecond);
    Hear(core::Waiting{});  // our words do not arrive, theirs do
  }
  EXPECT_FALSE(session_.closed());
  EXPECT_EQ(session_.deadline(), session_.lease_until());
  Wait(kSecond);
  ASSERT_TRUE(Found<ClientLost>().has_value());
  EXPECT_THAT(std::string(Found<ClientLost>()->status.message()),
              HasSubstr("acknowledges no heartbeats"));
}

TEST_F(SessionTest, LeaseRunsOutWithoutWorkers_IsNotLost) {
  Connect();
  Hear(SomeStart());
  Take(session_.Send(core::RoundStopped{{}, kRound}));
  for (int second = 0; second < 10; ++second) {
    Wait(kSecond);
    Hear(core::Waiting{});
  }
  EXPECT_FALSE(session_.closed());
}

TEST_F(SessionTest, LeaseRunsOutWhileReconnecting_IsLostBeforeTheGraceEnds) {
  Connect();
  Hear(SomeStart());
  Wait(3'500 * kMs);  // this process was starved
  EXPECT_TRUE(Found<CancelStream>().has_value());
  EXPECT_EQ(session_.deadline(), session_.lease_until());
  Wait(500 * kMs);
  EXPECT_TRUE(Found<ClientLost>().has_value());
}

TEST_F(SessionTest, LeaseOfAnIrreplaceable_EndsNothing) {
  Session::Options options = SomeOptions();
  options.is_irreplaceable = true;
  Session session(options, now_);
  static_cast<void>(session.Start(now_));
  static_cast<void>(session.OnMessage(now_, 1, SomeWelcome()));
  static_cast<void>(session.OnMessage(now_, 1, SomeStart()));
  now_ += 10 * kSecond;  // its process was stopped
  Take(session.OnTime(now_));
  EXPECT_FALSE(Found<ClientLost>().has_value());
  Reopened();
  static_cast<void>(session.OnMessage(now_, attempt_, SomeWelcome()));
  EXPECT_FALSE(session.closed());
}

TEST_F(SessionTest, RoundStartAfterTheLease_IsAskedForAgainOnANewStream) {
  now_ += 6 * kSecond;  // the answer was that long on its way
  Connect();
  Hear(SomeStart());
  EXPECT_FALSE(Found<core::Message>().has_value());
  EXPECT_TRUE(Found<CancelStream>().has_value());
  Wait({});
  Reopened();
  EXPECT_EQ(Found<OpenStream>()->hello.last_round, 0);
  Connect();
  Hear(SomeStart());
  EXPECT_TRUE(Found<core::Message>().has_value());
}

}  // namespace
}  // namespace ddl
