// Streams that delay, hold back and lose what is on them.
#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

namespace ddl::sim {

StreamId Network::Open(NodeId node) {
  Stream stream;
  stream.node = node;
  stream.life = life_;
  stream.last_up = now_;
  stream.last_down = now_;
  streams_.push_back(stream);
  const auto id = static_cast<StreamId>(streams_.size() - 1);
  if (!coordinator_up_) {  // refused
    streams_[id].up_lost = true;
    agenda_.At(now_ + Latency(), What::kEndDown, id,
               static_cast<std::uint64_t>(absl::StatusCode::kUnavailable));
  }
  return id;
}

Network::CutOff& Network::CutOf(NodeId node) {
  if (cuts_.size() <= node) {
    cuts_.resize(node + 1);
  }
  return cuts_[node];
}

// ---- the node's end ---------------------------------------------------------

void Network::SendUp(StreamId id, core::Event event) {
  Stream& stream = streams_[id];
  if (stream.node_gone || stream.up_lost) {
    return;
  }
  stream.last_up = std::max(stream.last_up, now_ + Latency());
  stream.up_words.Push(up_.Put(std::move(event)));
  agenda_.At(stream.last_up, What::kWordUp, id, 0);
}

void Network::NodeCancels(StreamId id) {
  Stream& stream = streams_[id];
  if (stream.node_gone) {
    return;
  }
  stream.node_gone = true;
  stream.up_lost = stream.up_lost || dice_.Chance(50);
  stream.last_up = std::max(stream.last_up, now_ + Latency());
  agenda_.At(stream.last_up, What::kEndUp, id, 0);
}

void Network::NodeHalfCloses(StreamId id) {
  Stream& stream = streams_[id];
  stream.last_up = std::max(stream.last_up, now_ + Latency());
  agenda_.At(stream.last_up, What::kEndUp, id, 0);
}

void Network::NodeLosesPower(StreamId id) {
  streams_[id].node_gone = true;
  streams_[id].up_lost = streams_[id].up_lost || dice_.Chance(50);
}

void Network::OnWordUp(StreamId id) {
  Stream& stream = streams_[id];
  if (stream.up_lost || stream.coordinator_gone || stream.life != life_ || !coordinator_up_) {
    static_cast<void>(up_.Take(stream.up_words.Pop()));
    return;
  }
  if (const Time heals = CutOf(stream.node).up_until; heals > now_) {
    stream.last_up = std::max(stream.last_up, heals);
    agenda_.At(heals, What::kWordUp, id, 0);
    return;
  }
  ends_.CoordinatorHears(id, up_.Take(stream.up_words.Pop()));
}

void Network::OnEndUp(StreamId id) {
  Stream& stream = streams_[id];
  if (stream.coordinator_gone || stream.life != life_ || !coordinator_up_) {
    return;
  }
  if (const Time heals = CutOf(stream.node).up_until; heals > now_) {
    agenda_.At(heals, What::kEndUp, id, 0);
    return;
  }
  stream.up_lost = true;
  ends_.CoordinatorSeesEnd(id);
}

// ---- the coordinator's end --------------------------------------------------

void Network::CoordinatorDies() {
  coordinator_up_ = false;
  for (std::size_t id = 0; id < streams_.size(); ++id) {
    Stream& stream = streams_[id];
    if (stream.life == life_ && !stream.node_gone) {
      stream.up_lost = true;
      stream.down_lost = stream.down_lost || dice_.Chance(50);
      agenda_.At(std::max(stream.last_down, now_) + Latency(), What::kEndDown,
                 static_cast<StreamId>(id),
                 static_cast<std::uint64_t>(absl::StatusCode::kUnavailable));
    }
  }
  ++life_;
}

void Network::SendDown(StreamId id, core::Message message) {
  Stream& stream = streams_[id];
  if (stream.node_gone || stream.down_lost || stream.coordinator_gone) {
    return;
  }
  stream.last_down = std::max(stream.last_down, now_ + Latency());
  stream.down_words.Push(down_.Put(std::move(message)));
  agenda_.At(stream.last_down, What::kWordDown, id, 0);
}

void Network::CoordinatorCloses(StreamId id, absl::StatusCode code) {
  Stream& stream = streams_[id];
  if (stream.coordinator_gone) {
    return;
  }
  stream.coordinator_gone = true;
  stream.last_down = std::max(stream.last_down, now_ + Latency());
  agenda_.At(stream.last_down, What::kEndDown, id, static_cast<std::uint64_t>(code));
}

void Network::OnWordDown(StreamId id) {
  Stream& stream = streams_[id];
  if (stream.down_lost || stream.node_gone) {
    static_cast<void>(down_.Take(stream.down_words.Pop()));
    return;
  }
  if (const Time heals = CutOf(stream.node).down_until; heals > now_) {
    stream.last_down = std::max(stream.last_down, heals);
    agenda_.At(heals, What::kWordDown, id, 0);
    return;
  }
  ends_.NodeHears(stream.node, id, down_.Take(stream.down_words.Pop()));
}

void Network::OnEndDown(StreamId id, std::uint64_t code) {
  Stream& stream = streams_[id];
  if (stream.node_gone) {
    return;
  }
  if (const Time heals = CutOf(stream.node).down_until; heals > now_) {
    agenda_.At(heals, What::kEndDown, id, code);
    return;
  }
  stream.node_gone = true;
  ends_.NodeSeesEnd(stream.node, id, static_cast<absl::StatusCode>(code));
}

// ---- faults -----------------------------------------------------------------

void Network::Break(StreamId id, Duration coordinator_notices, Duration node_notices) {
  Stream& stream = streams_[id];
  stream.up_lost = true;
  stream.down_lost = true;
  if (coordinator_notices != kNever) {
    agenda_.At(now_ + coordinator_notices, What::kEndUp, id, 0);
  }
  if (node_notices != kNever) {
    agenda_.At(now_ + node_notices, What::kEndDown, id,
               static_cast<std::uint64_t>(absl::StatusCode::kUnavailable));
  }
}

void Network::Stall(StreamId id, Time until) {
  streams_[id].last_up = std::max(streams_[id].last_up, until);
  streams_[id].last_down = std::max(streams_[id].last_down, until);
}

void Network::Cut(NodeId node, Time up_until, Time down_until) {
  CutOff& cut = CutOf(node);
  cut.up_until = std::max(cut.up_until, up_until);
  cut.down_until = std::max(cut.down_until, down_until);
}

}  // namespace ddl::sim
