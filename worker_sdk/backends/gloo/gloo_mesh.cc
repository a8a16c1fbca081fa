// A full mesh by Gloo, tried link by link, and the ranks' verdict on it.
#include "worker_sdk/backends/gloo/gloo_mesh.h"

#include <gloo/alltoall.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "agent/base/status_macros.h"
#include "worker_sdk/backends/gloo/gloo_store.h"

namespace ddl::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 4;

// Once all addresses are known a link takes a round trip, or, where packets are
// lost, a few retransmissions (after 1, 3 and 7 s by RFC 6298).
constexpr std::chrono::milliseconds kLinkTimeout = std::chrono::seconds(10);

// Gloo waits this many times its timeout for a connection (pair.h).
constexpr int kGlooConnectFactor = 5;

constexpr char kConnected[] = "connected";

// Sends this rank's number over every link and expects the peer's.
void TryLinks(const Mesh& mesh, std::chrono::milliseconds timeout) {
  std::vector<int> sent(static_cast<std::size_t>(mesh->size), mesh->rank);
  std::vector<int> received(sent.size(), -1);
  gloo::AlltoallOptions options(mesh);
  options.setInput(sent.data(), sent.size());
  options.setOutput(received.data(), received.size());
  options.setTimeout(timeout);
  gloo::alltoall(options);
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    if (received[rank] != static_cast<int>(rank)) {
      throw std::runtime_error("somebody else answered in the place of rank " +
                               std::to_string(rank));
    }
  }
}

// One try as this rank sees it.
absl::StatusOr<Mesh> Connect(const MeshOptions& options, GlooStore& store) {
  const std::chrono::milliseconds link_timeout = std::min(options.timeout, kLinkTimeout);
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.address;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    auto mesh = std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
    mesh->setTimeout(std::max(link_timeout / kGlooConnectFactor, std::chrono::milliseconds(1)));
    mesh->connectFullMesh(store, device);
    TryLinks(mesh, link_timeout);
    mesh->setTimeout(options.timeout);
    return mesh;
  } catch (const std::exception& e) {
    DDL_RETURN_IF_ERROR(store.error());
    return absl::UnavailableError("gloo, rank " + std::to_string(options.rank) +
                                  ", connecting from " + options.address + ": " + e.what());
  }
}

// What the ranks together make of a try: rank 0 reads every rank's outcome and
// tells the others. The first trouble in rank order, or kConnected.
absl::StatusOr<std::string> Verdict(const MeshOptions& options, const std::string& prefix,
                                    const std::string& outcome, Clock::time_point deadline) {
  const auto fetch = [&](const std::string& key) {
    return FetchBefore(*options.gateway, prefix + key, deadline);
  };
  if (options.rank != 0) {
    DDL_RETURN_IF_ERROR(
        options.gateway->Publish(prefix + "outcome/" + std::to_string(options.rank), outcome));
    return fetch("verdict");
  }
  std::string verdict = outcome;
  for (int rank = 1; rank < options.world_size; ++rank) {
    absl::StatusOr<std::string> other = fetch("outcome/" + std::to_string(rank));
    if (!other.ok()) {
      return absl::Status(
          other.status().code(),
          "rank " + std::to_string(rank) +
              " joined the Gloo backend, but did not say whether it is connected: " +
              std::string(other.status().message()));
    }
    if (verdict == kConnected) {
      verdict = *std::move(other);
    }
  }
  DDL_RETURN_IF_ERROR(options.gateway->Publish(prefix + "verdict", verdict));
  return verdict;
}

// `status`, with what the try before it came to: when the time runs out in a later one,
// that is the cause.
absl::Status After(const std::string& verdict, const absl::Status& status) {
  if (status.ok() || verdict.empty()) {
    return status;
  }
  return {status.code(),
          std::string(status.message()) + "; the try before it failed so: " + verdict};
}

}  // namespace

absl::StatusOr<Mesh> ConnectMesh(const MeshOptions& options, const std::string& prefix) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  std::string verdict;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::string keys = prefix + std::to_string(attempt) + "/";
    GlooStore store(*options.gateway, keys, options.rank, options.world_size, deadline);
    absl::StatusOr<Mesh> mesh = Connect(options, store);
    // Without all addresses there was no try, and no other will go better.
    DDL_RETURN_IF_ERROR(After(verdict, store.error()));
    absl::StatusOr<std::string> agreed = Verdict(
        options, keys, mesh.ok() ? kConnected : std::string(mesh.status().message()), deadline);
    DDL_RETURN_IF_ERROR(After(verdict, agreed.status()));
    verdict = *std::move(agreed);
    if (verdict == kConnected) {
      return mesh;
    }
  }
  return absl::UnavailableError("the ranks could not be connected in " + std::to_string(kTries) +
                                " tries; the last one failed so: " + verdict);
}

}  // namespace ddl::internal
