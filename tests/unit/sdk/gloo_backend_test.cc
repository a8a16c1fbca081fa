// The Gloo backend over loopback: threads as ranks, and a peer that dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "ddl/backend.h"
#include "tests/unit/sdk/world.h"

namespace ddl {
namespace {

using ::ddl::testing::MakeContext;
using ::ddl::testing::OnEveryRank;
using ::testing::Each;
using ::testing::HasSubstr;

// gmock's Each takes seconds for a million elements.
template <typename T>
bool AllEqual(const std::vector<T>& values, T expected) {
  return std::all_of(values.begin(), values.end(), [&](T value) { return value == expected; });
}

// Runs body(backend) on every rank, connected by Gloo.
void OverGloo(int world, const BackendOptions& options,
              const std::function<void(std::unique_ptr<Backend>)>& body) {
  auto gateway = std::make_shared<internal::MemoryGateway>(world);
  OnEveryRank(world, [&](int rank) {
    const Context context = MakeContext(gateway, rank, world);
    auto backend = CreateBackend(context, "gloo", options);
    ASSERT_TRUE(backend.ok()) << backend.status();
    body(*std::move(backend));
  });
}

TEST(Gloo, AllReduce_SumsAnySizeAtAnyWorld) {
  for (const int world : {2, 3, 4, 5}) {
    OverGloo(world, {}, [world](std::unique_ptr<Backend> backend) {
      EXPECT_EQ(backend->name(), "gloo");
      EXPECT_EQ(backend->world_size(), world);
      const float sum = static_cast<float>(world * (world + 1)) / 2;
      for (const std::size_t size : {0, 1, 2, 3, 7, 64, 1000, 1'000'003}) {
        std::vector<float> floats(size, static_cast<float>(backend->rank() + 1));
        ASSERT_TRUE(backend->AllReduceSum(std::span(floats)).ok());
        ASSERT_TRUE(AllEqual(floats, sum)) << size;
        std::vector<double> doubles(size, backend->rank() + 1);
        ASSERT_TRUE(backend->AllReduceSum(std::span(doubles)).ok());
        ASSERT_TRUE(AllEqual(doubles, static_cast<double>(sum))) << size;
      }
    });
  }
}

TEST(Gloo, AllReduce_GivesEveryRankTheSameBits) {
  constexpr std::size_t kSize = 10'007;
  std::vector<std::vector<float>> results(4);
  OverGloo(4, {}, [&](std::unique_ptr<Backend> backend) {
    std::vector<float> values(kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      values[i] = 1.0F / static_cast<float>(i * 7 + static_cast<std::size_t>(backend->rank()) + 1);
    }
    ASSERT_TRUE(backend->AllReduceSum(std::span(values)).ok());
    results[static_cast<std::size_t>(backend->rank())] = values;
  });
  for (const auto& result : results) {
    ASSERT_EQ(result.size(), kSize);
    EXPECT_EQ(result, results[0]) << "every rank gets the same bits";
  }
}

TEST(Gloo, Broadcast_FromAnyRoot) {
  OverGloo(3, {}, [](std::unique_ptr<Backend> backend) {
    for (int root = 0; root < 3; ++root) {
      std::vector<int> values(1000, backend->rank());
      ASSERT_TRUE(backend->Broadcast(std::as_writable_bytes(std::span(values)), root).ok());
      ASSERT_THAT(values, Each(root));
    }
    EXPECT_EQ(backend->Broadcast({}, 3).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(backend->Broadcast({}, 0).ok());
    EXPECT_TRUE(backend->Barrier().ok());
  });
}

TEST(Gloo, RankThatEndsAtOnce_TakesNothingFromTheOthers) {
  // The last operation's bytes must reach slower ranks although the faster one
  // has closed its connections.
  for (int repetition = 0; repetition < 50; ++repetition) {
    OverGloo(4, {}, [](std::unique_ptr<Backend> backend) {
      std::vector<float> values(10'000, 1);
      const absl::Status status = backend->AllReduceSum(std::span(values));
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_TRUE(backend->Close().ok());
    });
  }
}

TEST(Gloo, Close_WaitsForEveryRankAndEndsTheBackend) {
  std::atomic<bool> second_is_here = false;
  OverGloo(2, {}, [&](std::unique_ptr<Backend> backend) {
    ASSERT_TRUE(backend->Barrier().ok());
    if (backend->rank() == 1) {
      second_is_here = true;
    }
    EXPECT_TRUE(backend->Close().ok());
    EXPECT_TRUE(second_is_here);
    EXPECT_EQ(backend->Barrier().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST(Gloo, CloseWithoutAPeer_IsATimeoutThatSaysHowMany) {
  BackendOptions options;
  options.timeout = std::chrono::seconds(2);
  OverGloo(2, options, [&](std::unique_ptr<Backend> backend) {
    // Both have connected before one of them goes.
    ASSERT_TRUE(backend->Barrier().ok());
    if (backend->rank() == 0) {
      const absl::Status status = backend->Close();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 2 ranks did not come"));
    }
  });
}

TEST(Gloo, PeerThatGoes_IsNoticedByAllAtOnce) {
  BackendOptions options;
  options.timeout = std::chrono::minutes(5);  // nobody may wait that long
  const auto start = std::chrono::steady_clock::now();
  OverGloo(4, options, [](std::unique_ptr<Backend> backend) {
    std::vector<float> values(100'000, 1);
    ASSERT_TRUE(backend->AllReduceSum(std::span(values)).ok());
    ASSERT_TRUE(backend->Barrier().ok());
    if (backend->rank() == 2) {
      backend.reset();  // what a death looks like to the others
      return;
    }
    absl::Status status;
    while (status.ok()) {
      status = backend->AllReduceSum(std::span(values));
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(HasSubstr("rank " + std::to_string(backend->rank()) + " of 4"),
                                 HasSubstr("it has died")));
    // Broken for good, with the same words.
    EXPECT_EQ(backend->Barrier(), status);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Gloo, Reconnect_MakesABrokenBackendUsableAgain) {
  BackendOptions options;
  options.timeout = std::chrono::minutes(5);
  testing::Meeting done(4);
  OverGloo(4, options, [&](std::unique_ptr<Backend> backend) {
    for (int round = 0; round < 2; ++round) {
      // One rank leaves while the others wait for it; the next time another one.
      std::vector<float> values(1000, 1);
      if (backend->rank() != round) {
        absl::Status status;
        while (status.ok()) {
          status = backend->AllReduceSum(std::span(values));
        }
      }
      const absl::Status again = backend->Reconnect();
      ASSERT_TRUE(again.ok()) << again;
      values.assign(1000, 1);
      ASSERT_TRUE(backend->AllReduceSum(std::span(values)).ok());
      ASSERT_TRUE(AllEqual(values, 4.0F));
      done.Meet([] {}, [] {});
    }
    EXPECT_TRUE(backend->Close().ok());
    EXPECT_EQ(backend->Reconnect().code(), absl::StatusCode::kFailedPrecondition);
  });
}

// Connects to every address of the ranks' first try before the ranks can, as a port
// scanner would, and says nothing.
class Strangers final : public testing::ForwardingGateway {
 public:
  explicit Strangers(int world_size) : ForwardingGateway(world_size), world_size_(world_size) {}

  absl::Status Publish(std::string_view key, std::string_view value) override {
    // A rank listens once for each peer. Gloo's addresses begin with a sockaddr and
    // are all of one size.
    const std::size_t size = value.size() / static_cast<std::size_t>(world_size_ - 1);
    if (size >= sizeof(sockaddr_storage) && visited_.fetch_add(1) < world_size_) {
      for (std::size_t at = 0; at < value.size(); at += size) {
        Visit(value.substr(at));
      }
    }
    return ForwardingGateway::Publish(key, value);
  }

  [[nodiscard]] int connections() const { return connections_; }

 private:
  void Visit(std::string_view bytes) {
    sockaddr_in address{};
    std::memcpy(&address, bytes.data(), sizeof(address));
    UniqueFd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(stranger.valid());
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): what sockets want.
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    ASSERT_EQ(::connect(stranger.get(), to, sizeof(address)), 0);
    ++connections_;
    const std::lock_guard lock(mutex_);
    strangers_.push_back(std::move(stranger));
  }

  const int world_size_;
  std::atomic<int> visited_ = 0;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  std::vector<UniqueFd> strangers_;  // guarded by mutex_
};

TEST(Gloo, StrangersConnectFirst_TheRanksMeetElsewhere) {
  constexpr int kWorld = 3;
  auto gateway = std::make_shared<Strangers>(kWorld);
  OnEveryRank(kWorld, [&](int rank) {
    const Context context = MakeContext(gateway, rank, kWorld);
    auto backend = CreateBackend(context, "gloo");
    ASSERT_TRUE(backend.ok()) << backend.status();
    std::vector<float> values(1000, 1);
    ASSERT_TRUE((*backend)->AllReduceSum(std::span(values)).ok());
    EXPECT_TRUE(AllEqual(values, 3.0F));
    EXPECT_TRUE((*backend)->Close().ok());
  });
  EXPECT_EQ(gateway->connections(), kWorld * (kWorld - 1));
}

TEST(Gloo, Interrupt_EndsWhatWaitsAsSoonAsAPeerReconnects) {
  testing::Meeting done(3);
  OverGloo(3, {}, [&](std::unique_ptr<Backend> backend) {
    ASSERT_TRUE(backend->Barrier().ok());
    done.Meet([] {}, [] {});
    backend->Interrupt();
    std::vector<float> values(10, 1);
    const absl::Status status = backend->AllReduceSum(std::span(values));
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    ASSERT_TRUE(backend->Reconnect().ok());
    ASSERT_TRUE(backend->AllReduceSum(std::span(values)).ok());
    ASSERT_TRUE(AllEqual(values, 3.0F));
    done.Meet([] {}, [] {});
    // One goes to connect anew, the others wait in an operation: none of them
    // blames it for it.
    if (backend->rank() != 0) {
      std::thread other([&] { backend->Interrupt(); });
      const absl::Status waiting = backend->AllReduceSum(std::span(values));
      EXPECT_EQ(waiting.code(), absl::StatusCode::kAborted) << waiting;
      other.join();
    }
    ASSERT_TRUE(backend->Reconnect().ok());
    ASSERT_TRUE(backend->Barrier().ok());
    done.Meet([] {}, [] {});
  });
}

TEST(Gloo, PeerThatDoesNotCome_IsATimeout) {
  BackendOptions options;
  options.timeout = std::chrono::milliseconds(500);
  testing::Meeting after(2);
  OverGloo(2, options, [&](std::unique_ptr<Backend> backend) {
    if (backend->rank() == 0) {
      std::vector<float> values(10, 1);
      const absl::Status status = backend->AllReduceSum(std::span(values));
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("within 500 ms"));
    }
    after.Meet([] {}, [] {});
  });
}

TEST(Gloo, RankThatNeverConnects_IsNamed) {
  BackendOptions options;
  options.timeout = std::chrono::milliseconds(200);
  auto gateway = std::make_shared<internal::MemoryGateway>(2);
  const Context context = MakeContext(gateway, 0, 2);
  const auto backend = CreateBackend(context, "gloo", options);
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("rank 1 did not join"));
}

TEST(Gloo, SecondBackend_HasItsOwnConnections) {
  auto gateway = std::make_shared<internal::MemoryGateway>(2);
  OnEveryRank(2, [&](int rank) {
    const Context context = MakeContext(gateway, rank, 2);
    for (int i = 0; i < 3; ++i) {
      auto backend = CreateBackend(context, "auto");
      ASSERT_TRUE(backend.ok()) << backend.status();
      ASSERT_TRUE((*backend)->Barrier().ok());
    }
  });
}

TEST(CreateBackend, WorldOfOne_IsSingleAndLeavesValuesAlone) {
  const Context context = MakeContext(std::make_shared<internal::MemoryGateway>(1), 0, 1);
  auto backend = CreateBackend(context);
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->name(), "single");
  std::vector<float> values(3, 2);
  EXPECT_TRUE((*backend)->AllReduceSum(std::span(values)).ok());
  EXPECT_THAT(values, Each(2.0F));
  EXPECT_TRUE((*backend)->Barrier().ok());
  EXPECT_FALSE((*backend)->Broadcast({}, 1).ok());
}

TEST(CreateBackend, UnknownOrUnfitName_IsRefused) {
  auto gateway = std::make_shared<internal::MemoryGateway>(2);
  const Context context = MakeContext(gateway, 0, 2);
  EXPECT_THAT(std::string(CreateBackend(context, "mpi").status().message()),
              HasSubstr("use auto, single or gloo"));
  EXPECT_EQ(CreateBackend(context, "single").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddl
