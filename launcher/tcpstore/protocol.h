// The protocol of PyTorch's TCPStore, from the server's side. Pure.
//
// A client sends requests, one byte of operation and its fields each, and reads
// the replies in order. Integers have the byte order of the machine; a string is
// its length (u64) and its bytes; a list its count (u64) and its items.
//
// There are two dialects:
//   bare       1.x and 2.0: the first byte is an operation, numbered from SET = 0
//   validated  later 2.x: the connection opens with VALIDATE = 0 and a magic
//              number (u32); operations are numbered from SET = 1
// Which one it is shows in the first bytes: only a bare SET starts with 0 too,
// and the magic number read as the length of its key would be a gigabyte, which no
// key has.
//
// Read from torch/csrc/distributed/c10d: TCPStore.cpp (1.13, 2.0),
// store/TCPStoreBackend.hpp and store/TCPStoreLibUvBackend.cpp (2.15), and checked
// against the clients of 1.13.1 and 2.15.0.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_PROTOCOL_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_PROTOCOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/tcpstore/limits.h"

namespace ddl::tcpstore {

enum class Op : std::uint8_t {
  kSet,         // key, value; no reply
  kCompareSet,  // key, expected, desired -> value
  kGet,         // key -> value, empty when there is none
  kAdd,         // key, i64 -> i64
  kCheck,       // keys -> kReady or kNotReady
  kWait,        // keys -> kStopWaiting, once all are there
  kNumKeys,     // -> i64
  kDelete,      // key -> i64: how many were deleted
  kAppend,      // key, value; no reply
  kMultiGet,    // keys -> values
  kMultiSet,    // keys and values in turn; no reply
  kCancelWait,  // -> kWaitCanceled
  kPing,        // u32 -> the same
  kQueuePush,   // key, value; no reply
  kQueuePop,    // key -> i64: the length before, and a value if that is not 0
  kQueueLen,    // key -> i64
  kListKeys,    // -> i64 and the keys
  kBarrier,     // key, i64 -> kStopWaiting, once so many have asked
};

enum class Dialect : std::uint8_t { kUnknown, kBare, kValidated };

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCanceled = 1;

struct Request {
  Op op = Op::kPing;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;  // ADD's, BARRIER's world size, PING's
};

// Reads one connection's requests as their bytes come. What it holds is bounded by
// `limits.max_request_bytes`, and never reserved before it came. Not thread safe.
class RequestParser {
 public:
  // REQUIRES: `limits` outlives it.
  explicit RequestParser(const Limits& limits) : limits_(limits) {}

  // Takes bytes from the front of `bytes`, up to the end of one request; nothing
  // when all were taken and the request is not whole yet. INVALID_ARGUMENT: these
  // are no requests; RESOURCE_EXHAUSTED: one is beyond a limit, which is named.
  // After an error the connection is of no use.
  absl::StatusOr<std::optional<Request>> Next(std::string_view& bytes);

  [[nodiscard]] Dialect dialect() const { return dialect_; }
  // What came of the request that is not whole yet.
  [[nodiscard]] std::size_t held_bytes() const { return held_bytes_; }

 private:
  enum class Stage : std::uint8_t { kOp, kAfterZero, kCount, kLength, kText, kInt64, kUint32 };
  enum class Field : std::uint8_t { kEnd, kKey, kValue, kInt64, kUint32 };
  static constexpr std::size_t kMaxFields = 4;  // with the end
  struct Shape {
    bool is_list = false;  // a count first, and the fields so many times
    std::array<Field, kMaxFields> fields{};
  };

  static Shape ShapeOf(Op op);
  bool Fill(std::string_view& bytes, std::size_t size);
  template <typename T>
  T Filled() const;
  absl::Status Begin(std::uint8_t code);
  // The next field, or the end of the request: true.
  bool Advance();
  absl::Status BeginText(std::uint64_t length);
  absl::StatusOr<bool> Step(std::string_view& bytes);
  absl::StatusOr<bool> ReadOp(std::string_view& bytes);
  absl::StatusOr<bool> ReadMagic(std::string_view& bytes);
  absl::StatusOr<bool> ReadCount(std::string_view& bytes);
  absl::StatusOr<bool> ReadText(std::string_view& bytes);

  const Limits& limits_;
  Dialect dialect_ = Dialect::kUnknown;
  Stage stage_ = Stage::kOp;
  std::array<char, sizeof(std::uint64_t)> integer_{};  // one that is being read
  std::size_t integer_bytes_ = 0;
  Request request_;
  Shape shape_;
  std::size_t field_ = 0;
  std::uint64_t items_left_ = 0;
  std::uint64_t text_left_ = 0;
  std::size_t request_bytes_ = 0;  // as announced
  std::size_t held_bytes_ = 0;
};

// A reply's parts, at the end of `out`.
void AppendByte(std::uint8_t value, std::string& out);
void AppendUint32(std::uint32_t value, std::string& out);
void AppendInt64(std::int64_t value, std::string& out);
void AppendText(std::string_view text, std::string& out);

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_PROTOCOL_H_
