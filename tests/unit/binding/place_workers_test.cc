// GPUs of a machine that a fake NVML tells of, and where workers go for them.
#include "launcher/binding/place_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "launcher/binding/shared_memory.h"

namespace ddl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kTwoGpus[] =
    "GPU-1a2b|H100|0:b:0\n"
    "GPU-3c4d|H100|0:8b:0|MIG-aaaa||MIG-bbbb\n";

class GpuTest : public testing::Test {
 protected:
  GpuTest() {
    std::string pattern = testing::TempDir() + "ddl_gpu_XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    sources_.nvml_library = DDL_FAKE_NVML_LIBRARY;
    sources_.device_dir = dir_ + "/dev";
    sources_.pci_dir = dir_ + "/pci";
    std::filesystem::create_directories(sources_.device_dir);
    ::setenv("DDL_FAKE_NVML", (dir_ + "/gpus").c_str(), 1);
  }
  ~GpuTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  void HaveGpus(const std::string& description) const {
    std::ofstream(dir_ + "/gpus") << description;
  }
  void HaveNumaNode(const std::string& address, int node) const {
    std::filesystem::create_directories(sources_.pci_dir + "/" + address);
    std::ofstream(sources_.pci_dir + "/" + address + "/numa_node") << node << "\n";
  }
  void HaveDeviceFiles(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      std::ofstream(sources_.device_dir + "/" + name) << "";
    }
  }
  void HaveNoNvml() { sources_.nvml_library = dir_ + "/libnvidia-ml.so.1"; }

  [[nodiscard]] GpuView Look(const EnvironmentMap& environment = {}) const {
    return LookAtGpus(environment, sources_);
  }

  // Each worker's environment entries for devices, or the error.
  [[nodiscard]] std::vector<std::string> Shown(std::int32_t nproc,
                                               const EnvironmentMap& environment) {
    placement_ = {};
    placement_.workers.resize(static_cast<std::size_t>(nproc));
    const absl::Status status = ShowEachItsGpu(environment, Look(environment), placement_);
    if (!status.ok()) {
      return {std::string(status.message())};
    }
    std::vector<std::string> shown;
    for (const WorkerPlace& worker : placement_.workers) {
      for (const std::string& entry : worker.devices) {
        shown.push_back(entry);
      }
    }
    return shown;
  }

  // Each worker's CPUs on two NUMA nodes of two cores each.
  [[nodiscard]] std::vector<std::string> Bound(NumaBinding kind, std::int32_t nproc,
                                               const EnvironmentMap& environment,
                                               const std::string& machine = "numa:2 core:2 pu:1") {
    placement_ = {};
    placement_.workers.resize(static_cast<std::size_t>(nproc));
    const absl::StatusOr<Topology> topology = LoadTopology(machine);
    EXPECT_TRUE(topology.ok());
    const absl::Status status = BindEachToCpus({nproc, kind, false}, environment, Look(environment),
                                               sources_, *topology, placement_);
    if (!status.ok()) {
      return {std::string(status.message())};
    }
    std::vector<std::string> bound;
    for (const WorkerPlace& worker : placement_.workers) {
      bound.push_back(ToText(worker.cpus));
    }
    return bound;
  }

  std::string dir_;
  DeviceSources sources_;
  Placement placement_;
};

TEST_F(GpuTest, Nvml_TellsOfEveryGpu) {
  HaveGpus(kTwoGpus);
  const auto gpus = ListGpus(sources_.nvml_library);
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_THAT(*gpus, SizeIs(2));
  EXPECT_EQ((*gpus)[0].uuid, "GPU-1a2b");
  EXPECT_EQ((*gpus)[0].name, "H100");
  EXPECT_EQ((*gpus)[0].pci_address, "0000:0b:00.0");
  EXPECT_THAT((*gpus)[0].mig_uuids, IsEmpty());
  EXPECT_THAT((*gpus)[1].mig_uuids, ElementsAre("MIG-aaaa", "MIG-bbbb"));
}

TEST_F(GpuTest, Nvml_GpuThatIsLost_StillCounts) {
  HaveGpus("GPU-1a2b|H100|0:b:0\nlost\n");
  const auto gpus = ListGpus(sources_.nvml_library);
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_THAT(*gpus, SizeIs(2));
  EXPECT_EQ((*gpus)[1].uuid, "");
}

TEST_F(GpuTest, Nvml_WithoutDriverOrLibrary_SaysWhich) {
  EXPECT_EQ(std::string(ListGpus(sources_.nvml_library).status().message()),
            "the NVIDIA driver, starting NVML: Driver Not Loaded");
  EXPECT_EQ(ListGpus(dir_ + "/none.so").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ListGpus("libc.so.6").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GpuTest, Memory_OfOneByItsUuid_IsReadAgainAndAgain) {
  HaveGpus(kTwoGpus);
  const std::string path = dir_ + "/memory";
  ::setenv("DDL_FAKE_NVML_MEMORY", path.c_str(), 1);
  std::ofstream(path) << "1000 10\n";
  for (const char* const uuid : {"GPU-3c4d", "MIG-bbbb"}) {
    auto reader = OpenGpuMemory(sources_.nvml_library, uuid);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (const std::int64_t used : {10, 700}) {
      std::ofstream(path) << "1000 " << used << "\n";
      const auto memory = (*reader)->Read();
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_EQ(memory->total_bytes, 1000);
      EXPECT_EQ(memory->used_bytes, used);
    }
    std::filesystem::remove(path);
    EXPECT_EQ((*reader)->Read().status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_THAT(std::string(OpenGpuMemory(sources_.nvml_library, "GPU-none").status().message()),
              HasSubstr("GPU-none"));
  ::unsetenv("DDL_FAKE_NVML_MEMORY");
}

TEST_F(GpuTest, Count_IsWhatTheListShowsOfTheMachine) {
  HaveGpus(kTwoGpus);
  EXPECT_EQ(Look().visible.count(), 2);
  EXPECT_EQ(Look({{"CUDA_VISIBLE_DEVICES", "1"}}).visible.count(), 1);
  EXPECT_EQ(Look({{"CUDA_VISIBLE_DEVICES", "0,1,2"}}).visible.count(), 2);
  EXPECT_EQ(Look({{"CUDA_VISIBLE_DEVICES", "GPU-1a2b,MIG-aaaa"}}).visible.count(), 2);
  EXPECT_EQ(Look({{"CUDA_VISIBLE_DEVICES", ""}}).visible.count(), 0);
  EXPECT_THAT(Look({{"CUDA_VISIBLE_DEVICES", "7"}}).explanation,
              HasSubstr("CUDA_VISIBLE_DEVICES=7 ends at 7, which is no device here"));
  EXPECT_THAT(Look({{"CUDA_VISIBLE_DEVICES", "1,1"}}).explanation, HasSubstr("names 1 twice"));
}

TEST_F(GpuTest, Count_WithoutADriver_IsNone) {
  HaveDeviceFiles({"nvidia0"});
  EXPECT_EQ(Look({{"CUDA_VISIBLE_DEVICES", "0,1"}}).visible.count(), 0);
  EXPECT_THAT(Look().explanation, HasSubstr("Driver Not Loaded"));
}

TEST_F(GpuTest, Count_WithoutNvml_IsTheListOrTheDeviceFiles) {
  HaveNoNvml();
  EXPECT_EQ(Look().visible.count(), 0);
  HaveDeviceFiles(
      {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "nvidia1x"});
  EXPECT_EQ(Look().visible.count(), 3);
  EXPECT_EQ(GuessGpuCount({}, sources_), 3);
  EXPECT_EQ(Look({{"CUDA_VISIBLE_DEVICES", "GPU-1a2b,MIG-3c4d"}}).visible.count(), 2);
  EXPECT_EQ(GuessGpuCount({{"CUDA_VISIBLE_DEVICES", "GPU-1a2b,MIG-3c4d"}}, sources_), 2);
}

TEST_F(GpuTest, VirtualLocalRank_EachGetsItsEntryOfTheParentsList) {
  HaveGpus(kTwoGpus);
  EXPECT_THAT(Shown(2, {}), ElementsAre("CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"));
  EXPECT_THAT(Shown(2, {{"CUDA_VISIBLE_DEVICES", "MIG-bbbb, GPU-1a"}}),
              ElementsAre("CUDA_VISIBLE_DEVICES=MIG-bbbb", "CUDA_VISIBLE_DEVICES=GPU-1a"));
  EXPECT_THAT(Shown(1, {{"CUDA_VISIBLE_DEVICES", "1,0"}}), ElementsAre("CUDA_VISIBLE_DEVICES=1"));
}

TEST_F(GpuTest, VirtualLocalRank_HipsListComesFirst) {
  HaveNoNvml();
  EXPECT_THAT(Shown(2, {{"HIP_VISIBLE_DEVICES", "3,2"}, {"CUDA_VISIBLE_DEVICES", "0,1"}}),
              ElementsAre("CUDA_VISIBLE_DEVICES=3", "HIP_VISIBLE_DEVICES=3",
                          "CUDA_VISIBLE_DEVICES=2", "HIP_VISIBLE_DEVICES=2"));
}

TEST_F(GpuTest, VirtualLocalRank_FewerGpusThanWorkers_NamesWhoGetsNone) {
  HaveGpus(kTwoGpus);
  EXPECT_THAT(Shown(2, {{"CUDA_VISIBLE_DEVICES", "1"}}),
              ElementsAre("--virtual-local-rank gives each worker a GPU of its own, but 2 workers "
                          "see 1 GPU (CUDA_VISIBLE_DEVICES=1): none is left for local rank 1"));
  EXPECT_THAT(Shown(4, {}), ElementsAre(HasSubstr("none is left for local ranks 2 to 3")));
}

TEST_F(GpuTest, VirtualLocalRank_OneGpuTwice_IsWarnedOf) {
  HaveGpus(kTwoGpus);
  EXPECT_THAT(Shown(2, {{"CUDA_VISIBLE_DEVICES", "1,1"}}),
              ElementsAre("CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=1"));
  EXPECT_THAT(placement_.warnings, ElementsAre(HasSubstr("local ranks 0 and 1 get the same GPU")));
}

TEST_F(GpuTest, VirtualLocalRank_WithoutGpus_RefusesNobody) {
  HaveNoNvml();
  EXPECT_THAT(Shown(2, {}), ElementsAre("CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"));
  EXPECT_THAT(Shown(2, {{"CUDA_VISIBLE_DEVICES", ""}}),
              ElementsAre("CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES="));
}

TEST_F(GpuTest, NumaBinding_FollowsTheKernelsNodeOfEachVisibleGpu) {
  HaveGpus(kTwoGpus);
  HaveNumaNode("0000:0b:00.0", 1);
  HaveNumaNode("0000:8b:00.0", 0);
  EXPECT_THAT(Bound(NumaBinding::kNode, 2, {}), ElementsAre("2-3", "0-1"));
  EXPECT_THAT(Bound(NumaBinding::kNode, 2, {{"CUDA_VISIBLE_DEVICES", "1,0"}}),
              ElementsAre("0-1", "2-3"));
  EXPECT_THAT(Bound(NumaBinding::kExclusive, 2, {{"CUDA_VISIBLE_DEVICES", "MIG-aaaa,MIG-bbbb"}}),
              ElementsAre("0", "1"));
  EXPECT_THAT(placement_.warnings, IsEmpty());
  EXPECT_THAT(placement_.notes,
              ElementsAre("workers are bound to CPUs: local rank 0 to 0; local rank 1 to 1"));
}

TEST_F(GpuTest, NumaBinding_NodeUnknown_SharesTheNodesAndSaysSo) {
  HaveGpus(kTwoGpus);
  HaveNumaNode("0000:0b:00.0", -1);
  EXPECT_THAT(Bound(NumaBinding::kNode, 2, {}), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(placement_.warnings, ElementsAre(HasSubstr("not known at which NUMA node GPU 0 is")));
  EXPECT_THAT(Bound(NumaBinding::kNode, 2, {}, "core:2 pu:1"), ElementsAre("0-1", "0-1"));
  EXPECT_THAT(placement_.warnings, IsEmpty()) << "there is only one";
}

TEST_F(GpuTest, NumaBinding_SeveralModelsInCudasOwnOrder_IsWarnedOf) {
  HaveGpus("GPU-1a2b|H100|0:b:0\nGPU-3c4d|T4|0:8b:0\n");
  HaveNumaNode("0000:0b:00.0", 1);
  HaveNumaNode("0000:8b:00.0", 0);
  EXPECT_THAT(Bound(NumaBinding::kNode, 2, {}), ElementsAre("2-3", "0-1"));
  EXPECT_THAT(placement_.warnings, ElementsAre(HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID")));
  for (const EnvironmentMap& environment :
       {EnvironmentMap{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}},
        EnvironmentMap{{"CUDA_VISIBLE_DEVICES", "GPU-1a2b,GPU-3c4d"}}}) {
    EXPECT_THAT(Bound(NumaBinding::kNode, 2, environment), ElementsAre("2-3", "0-1"));
    EXPECT_THAT(placement_.warnings, IsEmpty());
  }
}

TEST_F(GpuTest, NothingAskedFor_NothingIsLookedAt) {
  const auto placement = PlaceWorkers({4, NumaBinding::kNone, false}, {}, sources_);
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->workers, IsEmpty());
}

TEST(SharingWarning, FewerGpusThanWorkers_NamesTwoThatWouldShare) {
  EXPECT_THAT(SharingWarning(2, 1), HasSubstr("local ranks 0 and 1 would share one"));
  EXPECT_THAT(SharingWarning(8, 4), HasSubstr("local ranks 0 and 4 would share one"));
  EXPECT_EQ(SharingWarning(2, 2), "");
  EXPECT_EQ(SharingWarning(8, 0), "") << "no GPU: then it is no program for GPUs";
}

TEST(SharedMemoryWarning, NoSuchDirectory_IsWarnedOf) {
  EXPECT_THAT(SharedMemoryWarning("/nonexistent/shm"), HasSubstr("there is no /nonexistent/shm"));
}

}  // namespace
}  // namespace ddl
