// Every bound of the store that ddlaunch serves to PyTorch's workers.
//
// A client cannot be told apart from a stranger: the protocol has no
// authentication. So nothing that arrives may make a table or a buffer grow
// without end; who asks for more is disconnected. A key's and a request's bounds
// are PyTorch's own (its libuv server) or wider.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_LIMITS_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_LIMITS_H_

#include <cstddef>

namespace ddl::tcpstore {

inline constexpr std::size_t kKib = 1024;
inline constexpr std::size_t kMib = kKib * kKib;

// Sizes in bytes. Tests set smaller ones.
struct Limits {
  std::size_t max_key_bytes = 8 * kKib;
  std::size_t max_value_bytes = 64 * kMib;
  // Of one request: how many keys, and all its keys and values together.
  std::size_t max_keys_per_request = 128 * kKib;
  std::size_t max_request_bytes = 72 * kMib;
  // Of one reply.
  std::size_t max_reply_bytes = 256 * kMib;

  // The table, queues included.
  std::size_t max_keys = kMib;
  std::size_t max_stored_bytes = 1024 * kMib;
  // What the waits of all clients cost, with the keys that they wait for.
  std::size_t max_wait_bytes = 1024 * kMib;

  // 1.13's clients have two each. Whoever serves it lowers this to the descriptors
  // that it has.
  std::size_t max_connections = 64 * kKib;
  // Of one connection: while so much waits for it to read, it is not served.
  std::size_t max_unread_bytes = kMib;
  // Of all connections: requests that are not whole yet, and replies that were
  // not taken yet.
  std::size_t max_buffered_bytes = 1024 * kMib;
};

// What keeping one string costs beside its bytes, about.
inline constexpr std::size_t kStringOverhead = 64;

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_LIMITS_H_
