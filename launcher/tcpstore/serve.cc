// One request and its reply.
#include "launcher/tcpstore/serve.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/status_macros.h"

namespace ddl::tcpstore {
namespace {

absl::Status TooLong(const Limits& limits) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a reply of more than ", limits.max_reply_bytes, " bytes"));
}

absl::Status MultiGet(const Request& request, const Limits& limits, const KeyTable& table,
                      OutBuffer& out) {
  std::size_t bytes = 0;
  for (const std::string& key : request.keys) {
    const Blob value = table.Get(key);
    bytes += sizeof(std::uint64_t) + (value == nullptr ? 0 : value->size());
    if (bytes > limits.max_reply_bytes) {
      return TooLong(limits);
    }
    out.AddValue(value);
  }
  return absl::OkStatus();
}

absl::Status MultiSet(Request& request, KeyTable& table) {
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    DDL_RETURN_IF_ERROR(table.Set(request.keys[i], std::move(request.values[i])));
  }
  return absl::OkStatus();
}

absl::Status ListKeys(const Limits& limits, const KeyTable& table, OutBuffer& out) {
  if (table.key_bytes() + table.size() * sizeof(std::uint64_t) > limits.max_reply_bytes) {
    return TooLong(limits);
  }
  AppendInt64(static_cast<std::int64_t>(table.size()), out.tail());
  table.ForEachKey([&out](const std::string& key) { AppendText(key, out.tail()); });
  return absl::OkStatus();
}

void ReplyIf(bool is_over, std::string& out) {
  if (is_over) {
    AppendByte(kStopWaiting, out);
  }
}

}  // namespace

absl::Status Serve(KeyTable::Client client, Request request, const Limits& limits, KeyTable& table,
                   OutBuffer& out) {
  table.CancelWait(client);
  switch (request.op) {
    case Op::kSet:
      return table.Set(request.keys[0], std::move(request.values[0]));
    case Op::kCompareSet: {
      DDL_ASSIGN_OR_RETURN(const Blob value,
                           table.CompareSet(request.keys[0], std::move(request.values[0]),
                                            std::move(request.values[1])));
      out.AddValue(value);
      break;
    }
    case Op::kGet:
      out.AddValue(table.Get(request.keys[0]));
      break;
    case Op::kAdd: {
      DDL_ASSIGN_OR_RETURN(const std::int64_t sum, table.Add(request.keys[0], request.number));
      AppendInt64(sum, out.tail());
      break;
    }
    case Op::kCheck:
      AppendByte(table.HasAll(request.keys) ? kReady : kNotReady, out.tail());
      break;
    case Op::kWait: {
      DDL_ASSIGN_OR_RETURN(const bool is_over, table.Wait(client, request.keys));
      ReplyIf(is_over, out.tail());
      break;
    }
    case Op::kNumKeys:
      AppendInt64(static_cast<std::int64_t>(table.size()), out.tail());
      break;
    case Op::kDelete:
      AppendInt64(table.Delete(request.keys[0]) ? 1 : 0, out.tail());
      break;
    case Op::kAppend:
      return table.Append(request.keys[0], request.values[0]);
    case Op::kMultiGet:
      return MultiGet(request, limits, table, out);
    case Op::kMultiSet:
      return MultiSet(request, table);
    case Op::kCancelWait:
      AppendByte(kWaitCanceled, out.tail());
      break;
    case Op::kPing:
      AppendUint32(static_cast<std::uint32_t>(request.number), out.tail());
      break;
    case Op::kQueuePush:
      return table.Push(request.keys[0], std::move(request.values[0]));
    case Op::kQueuePop: {
      const KeyTable::Popped popped = table.Pop(request.keys[0]);
      AppendInt64(static_cast<std::int64_t>(popped.length_before), out.tail());
      if (popped.value != nullptr) {
        out.AddValue(popped.value);
      }
      break;
    }
    case Op::kQueueLen:
      AppendInt64(static_cast<std::int64_t>(table.QueueLength(request.keys[0])), out.tail());
      break;
    case Op::kListKeys:
      return ListKeys(limits, table, out);
    case Op::kBarrier: {
      DDL_ASSIGN_OR_RETURN(const bool is_over,
                           table.Barrier(client, request.keys[0], request.number));
      ReplyIf(is_over, out.tail());
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace ddl::tcpstore
