// The requests of PyTorch's TCPStore, read from bytes.
#include "launcher/tcpstore/protocol.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"

namespace ddl::tcpstore {
namespace {

// By their number on the wire. 7 of the bare dialect is WATCH_KEY, which only C++
// programs could send: a callback for each change of a key. It is not served.
constexpr std::array<std::optional<Op>, 13> kBareOps = {
    Op::kSet,      Op::kCompareSet, Op::kGet,       Op::kAdd,    Op::kCheck,
    Op::kWait,     Op::kNumKeys,    std::nullopt,   Op::kDelete, Op::kAppend,
    Op::kMultiGet, Op::kMultiSet,   Op::kCancelWait};
// From 1 on; 0 is VALIDATE, which comes once, at the opening.
constexpr std::array<Op, 18> kValidatedOps = {
    Op::kSet,     Op::kCompareSet, Op::kGet,      Op::kAdd,      Op::kCheck,    Op::kWait,
    Op::kNumKeys, Op::kDelete,     Op::kAppend,   Op::kMultiGet, Op::kMultiSet, Op::kCancelWait,
    Op::kPing,    Op::kQueuePush,  Op::kQueuePop, Op::kQueueLen, Op::kListKeys, Op::kBarrier};

// Reserved at once for a text that was announced; more only as it comes.
constexpr std::size_t kMaxReserved = kKib;

std::optional<Op> OpOf(Dialect dialect, std::uint8_t code) {
  if (dialect == Dialect::kBare) {
    return code < kBareOps.size() ? kBareOps[code] : std::nullopt;
  }
  return code >= 1 && code <= kValidatedOps.size() ? std::optional<Op>(kValidatedOps[code - 1])
                                                   : std::nullopt;
}

template <typename T>
void AppendInteger(T value, std::string& out) {
  std::array<char, sizeof value> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  out.append(bytes.data(), bytes.size());
}

}  // namespace

RequestParser::Shape RequestParser::ShapeOf(Op op) {
  switch (op) {
    case Op::kSet:
    case Op::kAppend:
    case Op::kQueuePush:
      return {false, {Field::kKey, Field::kValue}};
    case Op::kCompareSet:
      return {false, {Field::kKey, Field::kValue, Field::kValue}};
    case Op::kGet:
    case Op::kDelete:
    case Op::kQueuePop:
    case Op::kQueueLen:
      return {false, {Field::kKey}};
    case Op::kAdd:
    case Op::kBarrier:
      return {false, {Field::kKey, Field::kInt64}};
    case Op::kCheck:
    case Op::kWait:
    case Op::kMultiGet:
      return {true, {Field::kKey}};
    case Op::kMultiSet:
      return {true, {Field::kKey, Field::kValue}};
    case Op::kPing:
      return {false, {Field::kUint32}};
    case Op::kNumKeys:
    case Op::kCancelWait:
    case Op::kListKeys:
      break;
  }
  return {};
}

// Collects an integer of `size` bytes; true once it is whole.
bool RequestParser::Fill(std::string_view& bytes, std::size_t size) {
  const std::size_t taken = std::min(size - integer_bytes_, bytes.size());
  std::memcpy(integer_.data() + integer_bytes_, bytes.data(), taken);
  integer_bytes_ += taken;
  bytes.remove_prefix(taken);
  return integer_bytes_ == size;
}

template <typename T>
T RequestParser::Filled() const {
  T value = 0;
  std::memcpy(&value, integer_.data(), sizeof value);
  return value;
}

absl::Status RequestParser::Begin(std::uint8_t code) {
  const std::optional<Op> op = OpOf(dialect_, code);
  if (!op.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("operation ", static_cast<int>(code), " is not known"));
  }
  request_ = Request{};
  request_.op = *op;
  shape_ = ShapeOf(*op);
  field_ = 0;
  items_left_ = 1;
  return absl::OkStatus();
}

// REQUIRES: fields before field_ were read.
bool RequestParser::Advance() {
  integer_bytes_ = 0;
  if (shape_.fields[field_] == Field::kEnd) {
    --items_left_;
    field_ = 0;
    if (items_left_ == 0) {
      stage_ = Stage::kOp;
      return true;
    }
  }
  switch (shape_.fields[field_]) {
    case Field::kInt64:
      stage_ = Stage::kInt64;
      break;
    case Field::kUint32:
      stage_ = Stage::kUint32;
      break;
    default:
      stage_ = Stage::kLength;
      break;
  }
  return false;
}

absl::Status RequestParser::BeginText(std::uint64_t length) {
  const bool is_key = shape_.fields[field_] == Field::kKey;
  const std::size_t limit = is_key ? limits_.max_key_bytes : limits_.max_value_bytes;
  if (length > limit) {
    return absl::ResourceExhaustedError(absl::StrCat("a ", is_key ? "key" : "value", " of ", length,
                                                     " bytes; at most ", limit, " are taken"));
  }
  request_bytes_ += static_cast<std::size_t>(length) + kStringOverhead;
  if (request_bytes_ > limits_.max_request_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a request of more than ", limits_.max_request_bytes, " bytes"));
  }
  std::string& text = (is_key ? request_.keys : request_.values).emplace_back();
  text.reserve(std::min<std::size_t>(length, kMaxReserved));
  held_bytes_ += kStringOverhead;
  text_left_ = length;
  stage_ = Stage::kText;
  return absl::OkStatus();
}

// Each of these takes some of `bytes`; true: the request is whole.
// REQUIRES: `bytes` is not empty.

absl::StatusOr<bool> RequestParser::ReadOp(std::string_view& bytes) {
  const auto code = static_cast<std::uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  if (dialect_ == Dialect::kUnknown) {
    if (code == 0) {
      stage_ = Stage::kAfterZero;
      return false;
    }
    dialect_ = Dialect::kBare;
  }
  DDL_RETURN_IF_ERROR(Begin(code));
  if (shape_.is_list) {
    integer_bytes_ = 0;
    stage_ = Stage::kCount;
    return false;
  }
  return Advance();
}

absl::StatusOr<bool> RequestParser::ReadMagic(std::string_view& bytes) {
  if (!Fill(bytes, sizeof kMagic)) {
    return false;
  }
  if (Filled<std::uint32_t>() == kMagic) {
    dialect_ = Dialect::kValidated;
    stage_ = Stage::kOp;
    return false;
  }
  // A bare SET; what was read is the first half of its key's length.
  dialect_ = Dialect::kBare;
  DDL_RETURN_IF_ERROR(Begin(0));
  stage_ = Stage::kLength;
  return false;
}

absl::StatusOr<bool> RequestParser::ReadCount(std::string_view& bytes) {
  if (!Fill(bytes, sizeof(std::uint64_t))) {
    return false;
  }
  items_left_ = Filled<std::uint64_t>();
  if (items_left_ > limits_.max_keys_per_request) {
    return absl::ResourceExhaustedError(absl::StrCat("a request of ", items_left_,
                                                     " keys; at most ",
                                                     limits_.max_keys_per_request, " are taken"));
  }
  if (items_left_ == 0) {
    stage_ = Stage::kOp;
    return true;
  }
  return Advance();
}

absl::StatusOr<bool> RequestParser::ReadText(std::string_view& bytes) {
  auto& texts = shape_.fields[field_] == Field::kKey ? request_.keys : request_.values;
  const std::size_t taken = std::min<std::uint64_t>(text_left_, bytes.size());
  texts.back().append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  text_left_ -= taken;
  held_bytes_ += taken;
  if (text_left_ > 0) {
    return false;
  }
  ++field_;
  return Advance();
}

absl::StatusOr<bool> RequestParser::Step(std::string_view& bytes) {
  switch (stage_) {
    case Stage::kOp:
      return ReadOp(bytes);
    case Stage::kAfterZero:
      return ReadMagic(bytes);
    case Stage::kCount:
      return ReadCount(bytes);
    case Stage::kLength:
      if (!Fill(bytes, sizeof(std::uint64_t))) {
        return false;
      }
      DDL_RETURN_IF_ERROR(BeginText(Filled<std::uint64_t>()));
      return ReadText(bytes);  // an empty text is over now
    case Stage::kText:
      return ReadText(bytes);
    case Stage::kInt64:
      if (!Fill(bytes, sizeof(std::int64_t))) {
        return false;
      }
      request_.number = Filled<std::int64_t>();
      break;
    case Stage::kUint32:
      if (!Fill(bytes, sizeof(std::uint32_t))) {
        return false;
      }
      request_.number = Filled<std::uint32_t>();
      break;
  }
  ++field_;
  return Advance();
}

absl::StatusOr<std::optional<Request>> RequestParser::Next(std::string_view& bytes) {
  while (!bytes.empty()) {
    DDL_ASSIGN_OR_RETURN(const bool is_whole, Step(bytes));
    if (is_whole) {
      request_bytes_ = 0;
      held_bytes_ = 0;
      return std::optional<Request>(std::move(request_));
    }
  }
  return std::optional<Request>();
}

void AppendByte(std::uint8_t value, std::string& out) {
  out.push_back(static_cast<char>(value));
}

void AppendUint32(std::uint32_t value, std::string& out) {
  AppendInteger(value, out);
}

void AppendInt64(std::int64_t value, std::string& out) {
  AppendInteger(value, out);
}

void AppendText(std::string_view text, std::string& out) {
  AppendInteger(static_cast<std::uint64_t>(text.size()), out);
  out.append(text);
}

}  // namespace ddl::tcpstore
