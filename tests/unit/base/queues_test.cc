// Queues between threads.
#include <gtest/gtest.h>
#include <poll.h>

#include <optional>
#include <thread>
#include <vector>

#include "agent/base/event_queue.h"
#include "agent/base/mailbox.h"

namespace ddl {
namespace {

TEST(EventQueue, ManyProducers_EveryEventOnceInOrderOfEach) {
  EventQueue<std::pair<int, int>> queue;
  constexpr int kProducers = 4;
  constexpr int kEvents = 2000;
  std::vector<std::thread> producers;
  for (int producer = 0; producer < kProducers; ++producer) {
    producers.emplace_back([&queue, producer] {
      for (int i = 0; i < kEvents; ++i) {
        queue.Push({producer, i});
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  for (int i = 0; i < kProducers * kEvents; ++i) {
    const auto event = queue.Pop(std::nullopt);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->second, next[static_cast<std::size_t>(event->first)]++);
  }
  for (std::thread& producer : producers) {
    producer.join();
  }
}

TEST(EventQueue, DeadlinePassed_PopReturnsNothing) {
  EventQueue<int> queue;
  EXPECT_FALSE(queue.Pop(MonotonicNow()).has_value());
}

TEST(EventQueue, Closed_GivesWhatIsInsideThenNothing) {
  EventQueue<int> queue;
  queue.Push(1);
  queue.Close();
  queue.Push(2);
  EXPECT_EQ(queue.Pop(std::nullopt), 1);
  EXPECT_FALSE(queue.Pop(std::nullopt).has_value());
}

bool IsReadable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(Mailbox, PutAndTake_DescriptorFollows) {
  Mailbox<int> mailbox;
  EXPECT_FALSE(IsReadable(mailbox.fd()));
  EXPECT_TRUE(mailbox.TakeAll().empty());
  mailbox.Put(1);
  mailbox.Put(2);
  EXPECT_TRUE(IsReadable(mailbox.fd()));
  EXPECT_EQ(mailbox.TakeAll(), (std::vector{1, 2}));
  EXPECT_FALSE(IsReadable(mailbox.fd()));
}

TEST(Mailbox, OtherThread_WakesThePoll) {
  Mailbox<int> mailbox;
  std::thread producer([&mailbox] { mailbox.Put(7); });
  pollfd entry{mailbox.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, -1), 1);
  EXPECT_EQ(mailbox.TakeAll(), std::vector{7});
  producer.join();
}

}  // namespace
}  // namespace ddl
