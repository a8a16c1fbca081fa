// Any bytes from a few clients of PyTorch's store, in any pieces: served or
// refused, within the bounds; and how they are cut changes nothing.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/base/check.h"
#include "launcher/tcpstore/key_table.h"
#include "launcher/tcpstore/out_buffer.h"
#include "launcher/tcpstore/protocol.h"
#include "launcher/tcpstore/serve.h"

namespace {

using ddl::tcpstore::KeyTable;
using ddl::tcpstore::Limits;
using ddl::tcpstore::OutBuffer;
using ddl::tcpstore::Request;
using ddl::tcpstore::RequestParser;

constexpr std::size_t kClients = 4;

Limits SmallLimits() {
  Limits limits;
  limits.max_key_bytes = 16;
  limits.max_value_bytes = 64;
  limits.max_keys_per_request = 8;
  limits.max_request_bytes = 600;
  limits.max_reply_bytes = 128;
  limits.max_keys = 12;
  limits.max_stored_bytes = 2'000;
  limits.max_wait_bytes = 1'000;
  return limits;
}

struct Client {
  std::optional<RequestParser> parser;
  OutBuffer out;
};

void Drain(OutBuffer& out) {
  while (!out.empty()) {
    DDL_CHECK(!out.front().empty());
    out.Take(std::min<std::size_t>(out.front().size(), 7));
  }
}

void ServeAll(std::string_view data) {
  const Limits limits = SmallLimits();
  KeyTable table(limits);
  std::array<Client, kClients> clients;
  while (data.size() > 2) {
    const auto number = static_cast<std::uint8_t>(data[0]) % kClients;
    std::string_view piece = data.substr(2, static_cast<std::uint8_t>(data[1]));
    data.remove_prefix(2 + piece.size());
    Client& client = clients[number];
    if (!client.parser.has_value()) {
      client.parser.emplace(limits);
    }
    bool is_good = true;
    while (!piece.empty() && is_good) {
      auto request = client.parser->Next(piece);
      is_good =
          request.ok() &&
          (!request->has_value() ||
           ddl::tcpstore::Serve(number, **std::move(request), limits, table, client.out).ok());
      DDL_CHECK(client.parser->held_bytes() <= limits.max_request_bytes);
    }
    if (!is_good) {
      table.CancelWait(number);
      client.parser.reset();
    }
    for (const KeyTable::Client woken : table.TakeWoken()) {
      DDL_CHECK(woken < kClients);
    }
    DDL_CHECK(table.size() <= limits.max_keys);
    DDL_CHECK(table.stored_bytes() <= limits.max_stored_bytes);
    DDL_CHECK(table.wait_bytes() <= limits.max_wait_bytes);
    Drain(client.out);
  }
  for (std::size_t number = 0; number < kClients; ++number) {
    table.CancelWait(number);
  }
  DDL_CHECK(table.wait_bytes() == 0);
}

// How many requests there are before the end, or before what is refused.
std::pair<std::size_t, bool> Count(std::string_view data, std::size_t step) {
  const Limits limits = SmallLimits();
  RequestParser parser(limits);
  std::size_t count = 0;
  while (!data.empty()) {
    std::string_view piece = data.substr(0, step);
    data.remove_prefix(piece.size());
    while (!piece.empty()) {
      const auto request = parser.Next(piece);
      if (!request.ok()) {
        return {count, false};
      }
      count += request->has_value() ? 1 : 0;
    }
  }
  return {count, true};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes are bytes.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ServeAll(bytes);
  DDL_CHECK(Count(bytes, 1) == Count(bytes, size + 1));
  return 0;
}
