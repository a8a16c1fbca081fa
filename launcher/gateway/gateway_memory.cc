// Out of memory at the gateway: a worker's report goes to the coordinator, whose
// answer is a revision of the plan for every worker that waits for one.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/base/device_memory.h"
#include "agent/base/limits.h"
#include "agent/base/status_macros.h"
#include "agent/plan_wire/plan_wire.h"
#include "agent/wire/wire.h"
#include "launcher/gateway/gateway_impl.h"

namespace ddl {
namespace {

using ddlaunch::v1::PlanRevision;
using ddlaunch::v1::ReportOutOfMemoryRequest;

absl::Status CheckReport(const ReportOutOfMemoryRequest& report) {
  const ddlaunch::v1::MemoryReport& memory = report.memory();
  for (const std::int64_t bytes :
       {memory.asked_bytes(), memory.in_use_bytes(), memory.reserved_bytes(), memory.free_bytes(),
        memory.total_bytes()}) {
    if (bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a report of the memory has ", bytes, " bytes; it must be 0 or more"));
    }
  }
  DDL_RETURN_IF_ERROR(wire::CheckSize("memory.text", memory.text(), limits::kMaxErrorTextBytes));
  // A worker that will exit may not know them.
  if (!report.exiting() && (report.micro_batch_size() < 1 || report.step() < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("out of memory with micro-batch ", report.micro_batch_size(), " in step ",
                     report.step(), ": the first must be 1 or more, the second 0 or more"));
  }
  return absl::OkStatus();
}

// Its numbers, else those in the error's own words.
DeviceMemory MemoryOf(const ddlaunch::v1::MemoryReport& report) {
  const DeviceMemory memory{report.asked_bytes(), report.in_use_bytes(), report.reserved_bytes(),
                            report.free_bytes(), report.total_bytes()};
  return memory == DeviceMemory() ? ReadDeviceMemory(report.text()) : memory;
}

void Fill(const core::PlanChanged& change, PlanRevision* out) {
  out->set_revision(change.revision);
  *out->mutable_plan() = wire::ToWire(*change.plan);
  out->set_step(change.step);
  out->set_text(change.text);
}

}  // namespace

void Gateway::Impl::SendReport(const ReportOutOfMemoryRequest& report) const {
  send_(core::OutOfMemory{{},
                          round_->round,
                          round_->first_rank + report.local_rank(),
                          report.micro_batch_size(),
                          report.step(),
                          DescribeDeviceMemory(MemoryOf(report.memory()))});
}

void Gateway::Impl::Handle(const Call& call, const ReportOutOfMemoryExchange& body) {
  const ReportOutOfMemoryRequest& report = *body.request;
  absl::Status status = CheckLocalRank(report.local_rank());
  if (status.ok()) {
    status = CheckReport(report);
  }
  if (status.ok() && reports_.size() >= limits::kMaxPlanCallsPerNode) {
    status = absl::ResourceExhaustedError(
        absl::StrCat(reports_.size(), " reports of this node wait for the coordinator, the limit"));
  }
  if (!status.ok() || report.exiting()) {
    if (status.ok()) {
      // Only so: one whose report is refused may find another way to go on.
      out_of_memory_[report.local_rank()] = {MemoryOf(report.memory()),
                                             std::max<std::int64_t>(report.micro_batch_size(), 0)};
    }
    call.Finish(status);
    return;
  }
  if (revision_.has_value() && report.micro_batch_size() > revision_->plan->micro_batch_size) {
    Fill(*revision_, body.response);
    call.Finish(absl::OkStatus());
    return;
  }
  reports_.push_back(call);
  SendReport(report);
}

void Gateway::Impl::Handle(const Call& call, const WatchPlanExchange& body) {
  absl::Status status = CheckLocalRank(body.request->local_rank());
  if (status.ok() && body.request->after_revision() < 0) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "after_revision is ", body.request->after_revision(), "; it must be 0 or more"));
  }
  const bool is_later =
      revision_.has_value() && revision_->revision > body.request->after_revision();
  if (status.ok()) {
    EndWatchOf(body.request->local_rank());
    if (!is_later) {
      watchers_.push_back(call);
      return;
    }
    Fill(*revision_, body.response);
  }
  call.Finish(status);
}

// A client that gave up its call is not heard of; its next call says so.
void Gateway::Impl::EndWatchOf(std::int32_t local_rank) {
  std::erase_if(watchers_, [local_rank](const Call& call) {
    if (std::get<WatchPlanExchange>(call.body).request->local_rank() != local_rank) {
      return false;
    }
    call.Finish(absl::AbortedError(
        absl::StrCat("local rank ", local_rank, " has called again to watch the plan")));
    return true;
  });
}

void Gateway::Impl::RefuseReports(const core::PlanChanged& refusal) {
  std::erase_if(reports_, [&](const Call& call) {
    const ReportOutOfMemoryRequest& report =
        *std::get<ReportOutOfMemoryExchange>(call.body).request;
    if (round_->first_rank + report.local_rank() != refusal.rank) {
      return false;
    }
    call.Finish(absl::FailedPreconditionError(refusal.error));
    return true;
  });
}

void Gateway::Impl::OnMessage(const core::PlanChanged& message) {
  if (!CheckRound(message.round).ok()) {
    return;
  }
  if (!message.plan.has_value()) {
    RefuseReports(message);
    return;
  }
  std::erase_if(reports_, [&message](const Call& call) {
    const auto& body = std::get<ReportOutOfMemoryExchange>(call.body);
    if (body.request->micro_batch_size() <= message.plan->micro_batch_size) {
      return false;
    }
    Fill(message, body.response);
    call.Finish(absl::OkStatus());
    return true;
  });
  if (message.revision <= (revision_.has_value() ? revision_->revision : 0)) {
    return;  // repeated after a reconnect
  }
  revision_ = message;
  if (plan_.reply.has_value() && plan_.reply->plan.has_value()) {
    plan_.reply->plan = message.plan;  // for ranks that ask late
    plan_.reply->plan_request = message.plan_request;
  }
  std::erase_if(watchers_, [&message](const Call& call) {
    const auto& body = std::get<WatchPlanExchange>(call.body);
    if (message.revision <= body.request->after_revision()) {
      return false;
    }
    Fill(message, body.response);
    call.Finish(absl::OkStatus());
    return true;
  });
}

}  // namespace ddl
