// Network: the streams between nodes and coordinator, as gRPC over TCP gives
// them. On one stream words keep their order, in each direction, and come late
// or, when it breaks, not at all; two streams of one node know nothing of each
// other, so what an old one still holds may come after a newer one's words.
//
// A cut holds back the words of one direction while the stream looks up to both
// ends; they come when it heals, unless the stream was broken meanwhile.
#ifndef DDLAUNCH_TESTS_SIM_NETWORK_H_
#define DDLAUNCH_TESTS_SIM_NETWORK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "agent/core/types.h"
#include "tests/sim/agenda.h"
#include "tests/sim/dice.h"
#include "tests/sim/time.h"

namespace ddl::sim {

using StreamId = std::uint32_t;
using NodeId = std::uint32_t;

// Who is told of what arrives. REQUIRES of its functions: none opens a stream
// from within the coordinator's.
class NetworkEnds {
 public:
  virtual ~NetworkEnds() = default;
  virtual void CoordinatorHears(StreamId stream, core::Event event) = 0;
  virtual void CoordinatorSeesEnd(StreamId stream) = 0;
  virtual void NodeHears(NodeId node, StreamId stream, core::Message message) = 0;
  virtual void NodeSeesEnd(NodeId node, StreamId stream, absl::StatusCode code) = 0;
};

class Network {
 public:
  Network(Agenda& agenda, Dice& dice, const Time& now, NetworkEnds& ends)
      : agenda_(agenda), dice_(dice), now_(now), ends_(ends) {}

  void SetLatency(std::int64_t longest_ms) { latency_ms_ = longest_ms; }

  // ---- the node's end
  StreamId Open(NodeId node);
  void SendUp(StreamId stream, core::Event event);
  void NodeCancels(StreamId stream);
  void NodeHalfCloses(StreamId stream);
  // Without a word to anybody.
  void NodeLosesPower(StreamId stream);

  // ---- the coordinator's end
  void CoordinatorStarts() { coordinator_up_ = true; }
  void CoordinatorDies();
  void SendDown(StreamId stream, core::Message message);
  void CoordinatorCloses(StreamId stream, absl::StatusCode code);
  [[nodiscard]] NodeId NodeOf(StreamId stream) const { return streams_[stream].node; }

  // ---- faults
  // What is on it is lost. Each end notices after so long; kNever: not by this.
  void Break(StreamId stream, Duration coordinator_notices, Duration node_notices);
  void Stall(StreamId stream, Time until);
  void Cut(NodeId node, Time up_until, Time down_until);
  [[nodiscard]] bool IsOpen(StreamId stream) const {
    return !streams_[stream].node_gone && !streams_[stream].up_lost;
  }

  // ---- what the agenda brings
  void OnWordUp(StreamId stream);
  void OnWordDown(StreamId stream);
  void OnEndUp(StreamId stream);
  void OnEndDown(StreamId stream, std::uint64_t code);

 private:
  // Slots, in the order in which they were sent.
  class Words {
   public:
    void Push(std::uint64_t slot) { slots_.push_back(slot); }
    std::uint64_t Pop() {
      const std::uint64_t slot = slots_[head_++];
      if (head_ == slots_.size()) {
        slots_.clear();
        head_ = 0;
      }
      return slot;
    }

   private:
    std::vector<std::uint64_t> slots_;
    std::size_t head_ = 0;
  };
  struct Stream {
    NodeId node = 0;
    std::uint32_t life = 0;  // of the coordinator
    Time last_up{};          // when the last word sent arrives
    Time last_down{};
    Words up_words;  // on their way
    Words down_words;
    bool up_lost = false;  // what is on it does not arrive
    bool down_lost = false;
    bool node_gone = false;         // nobody listens there
    bool coordinator_gone = false;  // nor there
  };
  struct CutOff {
    Time up_until{};
    Time down_until{};
  };

  template <typename Word>
  class Slots {
   public:
    std::uint64_t Put(Word word) {
      if (free_.empty()) {
        words_.push_back(std::move(word));
        return words_.size() - 1;
      }
      const std::uint64_t slot = free_.back();
      free_.pop_back();
      words_[slot] = std::move(word);
      return slot;
    }
    Word Take(std::uint64_t slot) {
      free_.push_back(slot);
      return std::move(words_[slot]);
    }

   private:
    std::vector<Word> words_;
    std::vector<std::uint64_t> free_;
  };

  Duration Latency() { return dice_.Ms(0, latency_ms_); }
  CutOff& CutOf(NodeId node);

  Agenda& agenda_;
  Dice& dice_;
  const Time& now_;
  NetworkEnds& ends_;
  std::int64_t latency_ms_ = 0;
  bool coordinator_up_ = false;
  std::uint32_t life_ = 0;
  std::vector<Stream> streams_;
  std::vector<CutOff> cuts_;  // by node
  Slots<core::Event> up_;
  Slots<core::Message> down_;
};

}  // namespace ddl::sim

#endif  // DDLAUNCH_TESTS_SIM_NETWORK_H_
