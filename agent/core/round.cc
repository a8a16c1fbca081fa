// One round: its members and what each is told.
#include "agent/core/round.h"

#include <utility>

#include "agent/base/check.h"
#include "agent/core/wording.h"

namespace ddl::core {

void Round::AddMember(AgentRef agent, std::string host, std::int32_t nproc) {
  Member member;
  member.node_rank = static_cast<std::int32_t>(members.size());
  member.first_rank = world_size;
  member.nproc = nproc;
  const bool added = index_.emplace(agent.incarnation, members.size()).second;
  DDL_CHECK(added);
  member.agent = std::move(agent);
  member.host = std::move(host);
  world_size += nproc;
  members.push_back(std::move(member));
}

Member* Round::FindMember(const std::string& incarnation) {
  const auto it = index_.find(incarnation);
  return it == index_.end() ? nullptr : &members[it->second];
}

std::string Round::NameHosts() const {
  std::vector<std::string> hosts;
  for (const Member& member : members) {
    if (hosts.size() == kMaxNamed) {
      break;
    }
    hosts.push_back(member.host);
  }
  return NameSome(hosts, members.size());
}

RoundStart Round::StartFor(const Member& member) const {
  RoundStart start;
  start.round = number;
  start.restart_count = restart_count;
  start.max_restarts = max_restarts;
  start.node_rank = member.node_rank;
  start.first_rank = member.first_rank;
  start.nproc = member.nproc;
  start.num_nodes = static_cast<std::int32_t>(members.size());
  start.world_size = world_size;
  start.master_addr = master_addr;
  start.master_port = master_port;
  start.plan = agreed.plan;
  start.plan_request = agreed.request;
  start.worker_addresses = worker_addresses;
  start.first_worker_port = first_worker_port;
  return start;
}

}  // namespace ddl::core
