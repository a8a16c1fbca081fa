// Who is let in by a coordinator and who is not: versions, tokens, silence,
// crowds, and strangers of all kinds while a job forms.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/base/unique_fd.h"
#include "agent/service/coordinator.h"
#include "agent/wire/wire.h"
#include "ddlaunch/v1/rendezvous.grpc.pb.h"
#include "tests/support/test_agent.h"

namespace ddl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A session by hand: what an agent of ours would never do.
class Stream {
 public:
  explicit Stream(std::uint16_t port)
      : stub_(ddlaunch::v1::Rendezvous::NewStub(
            RendezvousClient::NewChannel(absl::StrCat("127.0.0.1:", port)))) {
    context_.set_deadline(std::chrono::system_clock::now() + seconds(20));
    stream_ = stub_->Session(&context_);
  }

  void Write(const ddlaunch::v1::AgentMessage& message) { stream_->Write(message); }
  ddlaunch::v1::CoordinatorMessage Read() {
    ddlaunch::v1::CoordinatorMessage message;
    stream_->Read(&message);
    return message;
  }
  // Reads all that still comes, then how the stream ended.
  grpc::Status Finish() {
    ddlaunch::v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<ddlaunch::v1::Rendezvous::Stub> stub_;
  std::unique_ptr<
      grpc::ClientReaderWriter<ddlaunch::v1::AgentMessage, ddlaunch::v1::CoordinatorMessage>>
      stream_;
};

ddlaunch::v1::AgentMessage HelloMessage(const std::string& host, const std::string& token) {
  ddlaunch::v1::AgentMessage message = wire::ToWire(core::Event(SomeHello(host, 1)));
  message.mutable_hello()->set_token(token);
  return message;
}

TEST(Door, OtherProtocolVersion_IsRejectedWithBothNamed) {
  const auto coordinator = StartCoordinator();
  ddlaunch::v1::AgentMessage message;
  message.mutable_hello()->set_protocol_version(99);
  Stream stream(coordinator->port());
  stream.Write(message);
  const auto answer = stream.Read();
  EXPECT_EQ(answer.rejected().reason(), ddlaunch::v1::REASON_VERSION);
  EXPECT_THAT(answer.rejected().text(), HasSubstr("version 99"));
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(Door, FirstMessageIsNoHello_IsInvalidArgument) {
  const auto coordinator = StartCoordinator();
  ddlaunch::v1::AgentMessage message;
  message.mutable_heartbeat();
  Stream stream(coordinator->port());
  stream.Write(message);
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A coordinator that notes what it says.
class DoorWithToken : public testing::Test {
 protected:
  DoorWithToken() {
    Coordinator::Options options;
    options.token = "secret";
    options.explain = [this](const core::Explain& explain) {
      const std::lock_guard lock(mutex_);
      explained_.push_back(explain);
    };
    options.tell_of_job = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(line);
    };
    coordinator_ = StartCoordinator(std::move(options));
  }
  // Once the coordinator is gone, so that all is said.
  const std::vector<core::Explain>& Explained() {
    coordinator_.reset();
    return explained_;
  }
  const std::vector<std::string>& Jobs() {
    coordinator_.reset();
    return jobs_;
  }

 private:
  std::mutex mutex_;
  std::vector<core::Explain> explained_;
  std::vector<std::string> jobs_;

 protected:
  std::unique_ptr<Coordinator> coordinator_;  // the last: it speaks until its end
};

TEST_F(DoorWithToken, NoTokenOrAnother_IsRejectedBeforeTheCore) {
  for (const std::string token : {"", "secre", "secrets", "Secret"}) {
    Stream stream(coordinator_->port());
    stream.Write(HelloMessage("host-a", token));
    const auto answer = stream.Read();
    EXPECT_EQ(answer.rejected().reason(), ddlaunch::v1::REASON_UNAUTHENTICATED) << token;
    EXPECT_THAT(answer.rejected().text(), AllOf(HasSubstr("host-a"), HasSubstr("--rdzv-token-file"),
                                                Not(HasSubstr("secre"))));
    EXPECT_TRUE(stream.Finish().ok());
  }
  EXPECT_THAT(Jobs(), IsEmpty());
  ASSERT_THAT(Explained(), SizeIs(4));
  for (const core::Explain& explain : Explained()) {
    EXPECT_EQ(explain.reason, core::Reason::kUnauthenticated);
    EXPECT_EQ(explain.job_id, "");
  }
}

TEST_F(DoorWithToken, AgentWithTheToken_IsAdmitted) {
  TestAgent agent(coordinator_->port(), SomeHello("a", 1), "secret");
  EXPECT_TRUE(agent.WaitFor<core::RoundStart>().has_value());
  EXPECT_THAT(Jobs(), SizeIs(1));
}

TEST_F(DoorWithToken, AgentWithout_IsToldToGiveOne) {
  TestAgent agent(coordinator_->port(), SomeHello("a", 1));
  const auto rejected = agent.WaitFor<core::Rejected>();
  ASSERT_TRUE(rejected.has_value());
  EXPECT_EQ(rejected->reason, core::Reason::kUnauthenticated);
}

TEST_F(DoorWithToken, HostNameThatWouldForgeTheLog_IsEscaped) {
  Stream stream(coordinator_->port());
  stream.Write(HelloMessage("a\n\x1b[2Jb", ""));
  const std::string text = stream.Read().rejected().text();
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
}

TEST(Door, NoTokenAskedFor_AgentWithOneIsAdmitted) {
  const auto coordinator = StartCoordinator();
  TestAgent agent(coordinator->port(), SomeHello("a", 1), "secret");
  EXPECT_TRUE(agent.WaitFor<core::RoundStart>().has_value());
}

TEST(Door, SilentStream_EndsAfterItsTime) {
  Coordinator::Options options;
  options.hello_timeout = milliseconds(50);
  const auto coordinator = StartCoordinator(std::move(options));
  const grpc::Status status = Stream(coordinator->port()).Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "no Hello came");
}

TEST(Door, AgentThatSaidHello_StaysBeyondThatTime) {
  Coordinator::Options options;
  options.hello_timeout = milliseconds(50);
  const auto coordinator = StartCoordinator(std::move(options));
  TestAgent agent(coordinator->port(), SomeHello("a", 2));
  ASSERT_TRUE(agent.WaitFor<core::Waiting>().has_value());
  // By then the agent's time would be over too.
  EXPECT_EQ(Stream(coordinator->port()).Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  TestAgent other(coordinator->port(), SomeHello("b", 2));
  EXPECT_TRUE(agent.WaitFor<core::RoundStart>().has_value());
}

TEST(Door, CrowdOfSilentStreams_IsBoundedAndAgentsComeInWhenItIsGone) {
  Coordinator::Options options;
  options.max_unintroduced_streams = 2;
  options.hello_timeout = seconds(60);
  const auto coordinator = StartCoordinator(std::move(options));
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<grpc::Status> ended;  // guarded by mutex
  for (int i = 0; i < 3; ++i) {
    streams.push_back(std::make_unique<Stream>(coordinator->port()));
    threads.emplace_back([&, stream = streams.back().get()] {
      grpc::Status status = stream->Finish();
      const std::lock_guard lock(mutex);
      ended.push_back(std::move(status));
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, seconds(20), [&] { return !ended.empty(); }));
    ASSERT_THAT(ended, SizeIs(1)) << "two wait, the third was sent away";
    EXPECT_EQ(ended[0].error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(ended[0].error_message(), HasSubstr("have not said Hello"));
  }
  for (const auto& stream : streams) {
    stream->Cancel();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  TestAgent agent(coordinator->port(), SomeHello("a", 1));
  EXPECT_TRUE(agent.WaitFor<core::RoundStart>().has_value());
}

TEST(Door, CoordinatorEndsItsSessions_AgentsAreToldWhy) {
  const auto coordinator = StartCoordinator();
  Stream agent(coordinator->port());
  agent.Write(HelloMessage("a", ""));
  EXPECT_TRUE(agent.Read().has_welcome());
  coordinator->EndSessions(seconds(20));
  const grpc::Status status = agent.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the coordinator was stopped");
}

// ---- strangers ------------------------------------------------------------------

UniqueFd ConnectTo(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the socket API.
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

void SendAll(const UniqueFd& fd, const std::string& bytes) {
  // The other side may hang up in the middle: that is its right.
  [[maybe_unused]] const ssize_t ignored =
      ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Closes with a reset, as scanners do.
void Reset(UniqueFd fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

TEST(Door, StrangersOfAllKinds_DoNotHarmAJobThatForms) {
  const auto coordinator = StartCoordinator();
  const std::uint16_t port = coordinator->port();
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\x04\0\0\0\0\0", 9);
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string(65'536, '\0'),
      std::string("\x16\x03\x01\x02\x00\x01", 6),  // TLS
      preface,
      preface + settings,
      preface + settings + std::string(4096, '\xff'),
      preface + settings + std::string("\xff\xff\xff\x01\x05\0\0\0\x01", 9),  // a huge frame
      std::string("\x3c\x85\xf7\xce", 4),                                     // another store's
      "SSH-2.0-scan\r\n",
      "",  // half open
  };
  std::vector<UniqueFd> strangers;
  const auto let_them_come = [&] {
    for (const std::string& bytes : garbage) {
      strangers.push_back(ConnectTo(port));
      SendAll(strangers.back(), bytes);
    }
    constexpr int kScans = 50;
    for (int i = 0; i < kScans; ++i) {
      UniqueFd fd = ConnectTo(port);
      if (i % 2 == 0) {
        Reset(std::move(fd));
      }
    }
  };
  let_them_come();
  std::vector<std::unique_ptr<Stream>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<Stream>(port));
  }
  TestAgent first(port, SomeHello("a"));
  ASSERT_TRUE(first.WaitFor<core::Waiting>().has_value());
  let_them_come();
  Stream no_agent(port);
  ddlaunch::v1::AgentMessage message;
  message.mutable_hello();
  no_agent.Write(message);
  TestAgent second(port, SomeHello("b"));
  const auto start = first.WaitFor<core::RoundStart>();
  ASSERT_TRUE(start.has_value());
  EXPECT_TRUE(second.WaitFor<core::RoundStart>().has_value());
  let_them_come();
  first.client().Send(core::WorkersSucceeded{{}, start->round});
  second.client().Send(core::WorkersSucceeded{{}, start->round});
  EXPECT_TRUE(first.WaitFor<core::JobDone>().has_value());
  EXPECT_TRUE(second.WaitFor<core::JobDone>().has_value());
  for (const auto& stream : silent) {
    stream->Cancel();
  }
}

}  // namespace
}  // namespace ddl
