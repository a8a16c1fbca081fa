// CUDA_VISIBLE_DEVICES, entry by entry, as CUDA reads it.
#include "launcher/binding/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Gpu> FourGpus() {
  return {{"GPU-1a2b0000", "H100", "0000:0b:00.0", {}},
          {"GPU-1a2c0000", "H100", "0000:0c:00.0", {}},
          {"GPU-77770000", "A100", "0000:8b:00.0", {"MIG-3c4d", "MIG-3c5e"}},
          {"GPU-88880000", "A100", "0000:8c:00.0", {}}};
}

// Which of the machine's GPUs each entry is.
std::vector<std::size_t> Gpus(const VisibleDevices& visible) {
  std::vector<std::size_t> gpus;
  for (const VisibleDevice& device : visible.devices) {
    gpus.push_back(device.gpu.value());
  }
  return gpus;
}

std::vector<std::size_t> Read(const std::string& list) {
  const std::vector<Gpu> gpus = FourGpus();
  return Gpus(ReadVisibleDevices(list, &gpus));
}

TEST(VisibleDevices, Indices_InTheOrderOfTheList) {
  EXPECT_THAT(Read("2,0, 1"), ElementsAre(2, 0, 1));
  EXPECT_THAT(Read("3"), ElementsAre(3));
}

TEST(VisibleDevices, EmptyList_ShowsNone) {
  EXPECT_THAT(Read(""), IsEmpty());
  EXPECT_EQ(ReadVisibleDevices("", nullptr).count(), 0);
}

TEST(VisibleDevices, EntryThatNamesNoDevice_EndsTheList) {
  EXPECT_THAT(Read("0,2,-1,1"), ElementsAre(0, 2));
  EXPECT_THAT(Read("1,4,0"), ElementsAre(1)) << "this machine has no GPU 4";
  EXPECT_THAT(Read("1,NoDevFiles,0"), ElementsAre(1));
  EXPECT_THAT(Read("1,,0"), ElementsAre(1));
  EXPECT_THAT(Read("none"), IsEmpty());
  const std::vector<Gpu> gpus = FourGpus();
  EXPECT_EQ(ReadVisibleDevices("1,4,0", &gpus).ended_by, "4");
  EXPECT_EQ(ReadVisibleDevices("1,0", &gpus).ended_by, "");
}

TEST(VisibleDevices, NumberWithATail_IsTheNumber) {
  EXPECT_THAT(Read("1gpu,2x"), ElementsAre(1, 2));
}

TEST(VisibleDevices, UuidOrItsBeginning_MustBeOfOneGpu) {
  EXPECT_THAT(Read("GPU-88880000,GPU-1a2b"), ElementsAre(3, 0));
  EXPECT_THAT(Read("GPU-88,GPU-1a2,GPU-7"), ElementsAre(3)) << "two begin with GPU-1a2";
  EXPECT_THAT(Read("GPU-ffff"), IsEmpty());
}

TEST(VisibleDevices, MigInstances_BelongToTheirGpu) {
  EXPECT_THAT(Read("MIG-3c4d,MIG-3c5e"), ElementsAre(2, 2));
  EXPECT_THAT(Read("MIG-3c"), IsEmpty()) << "two begin so";
  EXPECT_THAT(Read("MIG-GPU-77770000/1/0"), ElementsAre(2)) << "as old drivers wrote it";
  EXPECT_THAT(Read("MIG-ffff"), IsEmpty());
}

TEST(VisibleDevices, NamedTwice_IsNoDeviceForAWholeList) {
  const std::vector<Gpu> gpus = FourGpus();
  for (const char* const list : {"0,1,0", "1,GPU-1a2c", "GPU-8888,GPU-88", "MIG-3c4d,MIG-3c4d"}) {
    const VisibleDevices visible = ReadVisibleDevices(list, &gpus);
    EXPECT_EQ(visible.count(), 0) << list;
    EXPECT_NE(visible.twice, "") << list;
    EXPECT_GE(visible.devices.size(), 2U) << list;
  }
  EXPECT_EQ(ReadVisibleDevices("0,0", nullptr).count(), 0);
}

TEST(VisibleDevices, MachineUnknown_EntriesAreTakenAtTheirWord) {
  EXPECT_EQ(ReadVisibleDevices("GPU-1a2b,MIG-3c4d", nullptr).count(), 2);
  EXPECT_EQ(ReadVisibleDevices("0,17", nullptr).count(), 2);
  EXPECT_EQ(ReadVisibleDevices("0,2,-1,3", nullptr).count(), 2);
  EXPECT_FALSE(ReadVisibleDevices("0", nullptr).devices[0].gpu.has_value());
}

}  // namespace
}  // namespace ddl
