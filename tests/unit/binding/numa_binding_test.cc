// Golden maps: which CPUs each local rank gets, over several machines.
#include "launcher/binding/numa_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"

namespace ddl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The machine that hwloc makes of a description: a real read of a real tree.
Topology Machine(const std::string& description) {
  absl::StatusOr<Topology> topology = LoadTopology(description);
  EXPECT_TRUE(topology.ok()) << topology.status();
  return *std::move(topology);
}

// Two sockets of two NUMA nodes each, two L3 a node, two cores an L3, two threads
// a core: 8 CPUs a node, 4 an L3.
Topology TwoSockets() {
  return Machine("pack:2 numa:2 l3:2 core:2 pu:2");
}

// "0-3 4-7": by local rank.
std::string Bound(NumaBinding kind, const Topology& topology, std::int32_t nproc,
                  const std::vector<std::int32_t>& gpu_nodes = {}) {
  const auto workers = BindWorkers(kind, topology, nproc, gpu_nodes);
  if (!workers.ok()) {
    return std::string(workers.status().message());
  }
  return absl::StrJoin(*workers, " ",
                       [](std::string* out, const CpuList& cpus) { out->append(ToText(cpus)); });
}

TEST(Topology, SyntheticMachine_EachCpuKnowsItsPlace) {
  const Topology topology = TwoSockets();
  ASSERT_EQ(topology.cpus.size(), 32U);
  const CpuPlace& place = topology.cpus[21];
  EXPECT_EQ(place.cpu, 21);
  EXPECT_EQ(place.core, 20);
  EXPECT_EQ(place.cache, 20);
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.package, 16);
}

TEST(Topology, BadDescription_IsAnError) {
  EXPECT_EQ(LoadTopology("many cores").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Topology, ThisMachine_HasThisProcessesCpus) {
  const absl::StatusOr<Topology> topology = LoadTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  const CpuList allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(Restrict(*topology, allowed).cpus.size(), allowed.size());
}

TEST(BindWorkers, ByGpu_NodeSocketExclusiveAndComplex) {
  // GPUs 0 and 1 at node 1, 2 and 3 at node 2.
  const std::vector<std::int32_t> gpus = {1, 1, 2, 2};
  const Topology machine = TwoSockets();
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 4, gpus), "8-15 8-15 16-23 16-23");
  EXPECT_EQ(Bound(NumaBinding::kSocket, machine, 4, gpus), "0-15 0-15 16-31 16-31");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, machine, 4, gpus), "8-11 12-15 16-19 20-23");
  EXPECT_EQ(Bound(NumaBinding::kCoreComplex, machine, 4, gpus), "8-11 12-15 16-19 20-23");
}

TEST(BindWorkers, GpusThatNoWorkerUses_KeepTheirShare) {
  EXPECT_EQ(Bound(NumaBinding::kExclusive, TwoSockets(), 2, {0, 0, 0, 0}), "0-1 2-3");
  EXPECT_EQ(Bound(NumaBinding::kNode, TwoSockets(), 1, {3, 0}), "24-31");
}

TEST(BindWorkers, GpusInAnyOrder_EachRankFollowsItsOwn) {
  EXPECT_EQ(Bound(NumaBinding::kNode, TwoSockets(), 4, {3, 0, 3, 1}), "24-31 0-7 24-31 8-15");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, TwoSockets(), 4, {3, 0, 3, 1}), "24-27 0-7 28-31 8-15");
}

TEST(BindWorkers, CoresThatDoNotDivide_GoToTheFirst) {
  const Topology machine = Machine("numa:1 core:5 pu:2");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, machine, 3, {0, 0, 0}), "0-3 4-7 8-9");
}

TEST(BindWorkers, ThreadsOfACore_StayTogetherHoweverTheyAreNumbered) {
  // As Linux numbers them: the second threads of all cores come last.
  const Topology machine = Machine("pack:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, machine, 4, {0, 0, 0, 0}), "0,4 1,5 2,6 3,7");
}

TEST(BindWorkers, ComplexesFewerThanWorkers_AreSharedInTurn) {
  EXPECT_EQ(Bound(NumaBinding::kCoreComplex, TwoSockets(), 3, {0, 0, 0}), "0-3 4-7 0-3");
}

TEST(BindWorkers, ComplexWithMoreUsableCpus_ComesFirst) {
  CpuList allowed;
  for (std::int32_t cpu = 2; cpu < 32; ++cpu) {  // half of the first complex is not ours
    allowed.push_back(cpu);
  }
  EXPECT_EQ(Bound(NumaBinding::kCoreComplex, Restrict(TwoSockets(), allowed), 2, {0, 0}),
            "4-7 2-3");
}

TEST(BindWorkers, WithoutGpus_TheNodesAreDealtOut) {
  const Topology machine = TwoSockets();
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 4), "0-7 8-15 16-23 24-31");
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 8), "0-7 0-7 8-15 8-15 16-23 16-23 24-31 24-31");
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 6), "0-7 0-7 8-15 16-23 16-23 24-31");
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 2), "0-15 16-31");
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 3), "0-7 8-15 16-31");
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 1), "0-31");
  EXPECT_EQ(Bound(NumaBinding::kSocket, machine, 4), "0-15 0-15 16-31 16-31");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, machine, 8),
            "0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, machine, 2), "0-15 16-31");
  EXPECT_EQ(Bound(NumaBinding::kCoreComplex, machine, 2), "0-3 16-19");
}

TEST(BindWorkers, OneNumaNode_NodeAndSocketAreTheWholeMachine) {
  const Topology machine = Machine("core:2 pu:1");
  EXPECT_EQ(Bound(NumaBinding::kNode, machine, 2), "0-1 0-1");
  EXPECT_EQ(Bound(NumaBinding::kSocket, machine, 2), "0-1 0-1");
  EXPECT_EQ(Bound(NumaBinding::kExclusive, machine, 2), "0 1");
  EXPECT_EQ(Bound(NumaBinding::kCoreComplex, machine, 2), "0-1 0-1") << "no cache is told of";
}

TEST(BindWorkers, OnlyAllowedCpus_AreGiven) {
  const Topology ours = Restrict(TwoSockets(), {1, 9, 10, 24, 25, 40});
  EXPECT_EQ(Bound(NumaBinding::kNode, ours, 3), "1 9-10 24-25") << "node 2 is not ours";
  EXPECT_EQ(Bound(NumaBinding::kSocket, ours, 2, {1, 3}), "1,9-10 24-25");
}

TEST(BindWorkers, NoUsableCpuAtTheGpu_NamesRankGpuAndNode) {
  const Topology ours = Restrict(TwoSockets(), {0, 1, 2});
  EXPECT_EQ(Bound(NumaBinding::kNode, ours, 2, {0, 2}),
            "local rank 1: its GPU (1) is at NUMA node 2, of which this process may use no CPU; "
            "it may use CPU 0-2");
  EXPECT_EQ(Bound(NumaBinding::kNode, ours, 1, {0, 2}), "0-2") << "nobody uses that GPU";
}

TEST(BindWorkers, MoreWorkersThanCores_ExclusiveIsRefused) {
  EXPECT_THAT(Bound(NumaBinding::kExclusive, Machine("core:2 pu:2"), 3),
              HasSubstr("NUMA node 0 has 2 cores that this process may use, for 3 workers"));
  EXPECT_THAT(Bound(NumaBinding::kExclusive, {}, 3), HasSubstr("no CPU"));
}

TEST(BindWorkers, MoreWorkersThanGpus_ShareThemInTurn) {
  EXPECT_EQ(Bound(NumaBinding::kExclusive, TwoSockets(), 4, {0, 2}), "0-3 16-19 4-7 20-23");
}

TEST(FairThreads, SharedCpus_AreSplit) {
  EXPECT_THAT(FairThreads({{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6}}), ElementsAre(2, 2, 3));
  EXPECT_THAT(FairThreads({{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}}), ElementsAre(1, 1, 1));
  EXPECT_THAT(FairThreads({{0}, {0}}), ElementsAre(1, 1)) << "never none";
}

TEST(CpuList, OfThisProcess_AreCounted) {
  EXPECT_EQ(UsableCpus(), static_cast<std::int32_t>(AllowedCpus().size()));
  EXPECT_GE(UsableCpus(), 1);
}

TEST(CpuList, Text_IsRanges) {
  EXPECT_EQ(ToText(CpuList{}), "");
  EXPECT_EQ(ToText(CpuList{3}), "3");
  EXPECT_EQ(ToText(CpuList{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace ddl
