// Serve: what one request does to the table, and its reply. Pure.
#ifndef DDLAUNCH_LAUNCHER_TCPSTORE_SERVE_H_
#define DDLAUNCH_LAUNCHER_TCPSTORE_SERVE_H_

#include "absl/status/status.h"
#include "launcher/tcpstore/key_table.h"
#include "launcher/tcpstore/limits.h"
#include "launcher/tcpstore/out_buffer.h"
#include "launcher/tcpstore/protocol.h"

namespace ddl::tcpstore {

// Serves `client`'s request; its reply, if it has one already, is added to `out`.
// Then table.TakeWoken() has whom to send kStopWaiting.
// A client that waits and asks something else does not wait any more: 1.13's do
// so when their time is up, without a word.
// An error has no form in the protocol: the connection is to be closed.
// INVALID_ARGUMENT: an ADD to what is no number; RESOURCE_EXHAUSTED: a limit.
absl::Status Serve(KeyTable::Client client, Request request, const Limits& limits, KeyTable& table,
                   OutBuffer& out);

}  // namespace ddl::tcpstore

#endif  // DDLAUNCH_LAUNCHER_TCPSTORE_SERVE_H_
