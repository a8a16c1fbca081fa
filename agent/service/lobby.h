// Lobby: a bounded number of streams that have not said who they are yet.
//
// A place is held until its Place goes; who finds the lobby full is sent away,
// so that strangers at the port cannot take memory without end. Thread safe.
#ifndef DDLAUNCH_AGENT_SERVICE_LOBBY_H_
#define DDLAUNCH_AGENT_SERVICE_LOBBY_H_

#include <atomic>
#include <cstddef>
#include <memory>

namespace ddl {

class Lobby {
 public:
  using Place = std::shared_ptr<void>;

  explicit Lobby(std::size_t capacity)
      : capacity_(capacity), taken_(std::make_shared<std::atomic<std::size_t>>(0)) {}

  // Null: it is full.
  [[nodiscard]] Place Enter() const {
    if (taken_->fetch_add(1) >= capacity_) {
      taken_->fetch_sub(1);
      return nullptr;
    }
    // Owns the count, not the lobby: a stream may outlive its coordinator.
    return {taken_.get(), [taken = taken_](void* /*place*/) { taken->fetch_sub(1); }};
  }

  [[nodiscard]] std::size_t taken() const { return taken_->load(); }

 private:
  const std::size_t capacity_;
  const std::shared_ptr<std::atomic<std::size_t>> taken_;
};

}  // namespace ddl

#endif  // DDLAUNCH_AGENT_SERVICE_LOBBY_H_
