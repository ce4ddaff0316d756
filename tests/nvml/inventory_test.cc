// What is found of the GPUs, and what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "daemon/nvml/library.h"
#include "daemon/nvml/nvml.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Inventory : public testing::Test {
 protected:
  Inventory() { set("FAKE_NVML_EVENTS", directory_ / "events"); }

  void set(const std::string& name, const std::string& value) {
    set_.erase(name);
    set_.try_emplace(name, name, value);
  }
  std::unique_ptr<GpuInventory> open() {
    Result<std::unique_ptr<GpuInventory>> opened = GpuInventory::open(TUTTI_FAKE_NVML);
    EXPECT_EQ(opened.status().to_string(), "OK");
    return *std::move(opened);
  }
  void report(const std::string& line) const {
    std::ofstream(directory_ / "events", std::ios::app) << line << std::endl;
  }

  const TemporaryDirectory directory_;
  std::map<std::string, Variable> set_;
};

TEST_F(Inventory, AGpuHasNameUuidMemoryAndPlace) {
  const auto inventory = open();
  ASSERT_EQ(inventory->gpus().size(), 2u);
  const GpuInfo& gpu = inventory->gpus()[1];
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.name, "NVIDIA H100");
  EXPECT_EQ(gpu.uuid, "GPU-10000000-1111-2222-3333-444444444444");
  EXPECT_EQ(gpu.pci_bus_id, "00000000:2B:00.0");
  EXPECT_EQ(gpu.memory_bytes, uint64_t{80} << 30);
  EXPECT_EQ(gpu.used_bytes, uint64_t{2} << 30);
  EXPECT_EQ(gpu.ecc_errors, 3u);
  EXPECT_EQ(gpu.nvlinks, 4);
  EXPECT_FALSE(gpu.mig);
  EXPECT_EQ(gpu.state(), "OK");
}

TEST_F(Inventory, PeersAreNamedNearestFirst) {
  set("FAKE_NVML_GPUS", "5");
  const auto inventory = open();
  EXPECT_THAT(inventory->gpus()[2].peers, ElementsAre(GpuPeer{3, "NV4"}, GpuPeer{0, "NODE"},
                                                      GpuPeer{1, "NODE"}, GpuPeer{4, "SYS"}));
}

TEST_F(Inventory, ThroughASwitchAllLinksReachAllPeers) {
  set("FAKE_NVML_GPUS", "3");
  set("FAKE_NVML_SWITCH", "1");
  const auto inventory = open();
  EXPECT_EQ(inventory->gpus()[0].nvlinks, 18);
  EXPECT_THAT(inventory->gpus()[0].peers, ElementsAre(GpuPeer{1, "NV18"}, GpuPeer{2, "NV18"}));
}

TEST_F(Inventory, WhatADriverDoesNotSupportIsLeftOut) {
  set("FAKE_NVML_MIG", "1");
  const auto second_without = [this](const char* function) {
    set("FAKE_NVML_REFUSES", function);
    const GpuInfo gpu = open()->gpus().at(1);
    EXPECT_EQ(gpu.name, "NVIDIA H100") << function;
    EXPECT_EQ(gpu.state(), "OK") << function;
    return gpu;
  };
  EXPECT_FALSE(second_without("nvmlDeviceGetMigMode").mig);
  EXPECT_EQ(second_without("nvmlDeviceGetTotalEccErrors").ecc_errors, 0u);
  EXPECT_EQ(second_without("nvmlDeviceGetNvLinkState").nvlinks, 0);
  EXPECT_EQ(second_without("nvmlDeviceGetNvLinkState").peers[0].path, "NODE");
  EXPECT_EQ(second_without("nvmlDeviceGetP2PStatus").peers[0].path, "NODE");
  set("FAKE_NVML_GPUS", "3");
  EXPECT_EQ(second_without("nvmlDeviceGetTopologyCommonAncestor").peers[1], (GpuPeer{2, "SYS"}));
}

TEST_F(Inventory, WhereEventsAreNotSupportedThereAreNone) {
  report("0 79");
  for (const char* function :
       {"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"}) {
    set("FAKE_NVML_REFUSES", function);
    const auto inventory = open();
    inventory->watch();
    EXPECT_THAT(inventory->poll(), IsEmpty()) << function;
    EXPECT_EQ(inventory->gpus()[0].is_watched, std::string(function) == "nvmlEventSetWait_v2");
  }
}

TEST(Library, AFunctionThatAnOldDriverLacksIsNotFound) {
  const nvml::Library old{};
  unsigned is_active = 0;
  EXPECT_EQ(nvml::call(old.device_get_nvlink_state, nvml::Device(), 0U, &is_active),
            nvml::kFunctionNotFound);
}

TEST_F(Inventory, AGpuDividedByMigSaysSo) {
  set("FAKE_NVML_MIG", "0");
  const auto inventory = open();
  EXPECT_TRUE(inventory->gpus()[0].mig);
  EXPECT_FALSE(inventory->gpus()[1].mig);
}

TEST_F(Inventory, AGpuThatCannotBeOpenedHasAFaultAndKeepsItsIndex) {
  set("FAKE_NVML_LOST", "0");
  const auto inventory = open();
  ASSERT_EQ(inventory->gpus().size(), 2u);
  EXPECT_EQ(inventory->gpus()[0].state(), "failed: GPU is lost");
  EXPECT_EQ(inventory->gpus()[1].index, 1);
  EXPECT_EQ(inventory->gpus()[1].state(), "OK");
  EXPECT_THAT(inventory->gpus()[1].peers, IsEmpty());
}

TEST_F(Inventory, AFatalXidFailsItsGpuAndIsReportedOnce) {
  const auto inventory = open();
  inventory->watch();
  EXPECT_TRUE(inventory->gpus()[0].is_watched);
  EXPECT_THAT(inventory->poll(), IsEmpty());
  report("1 79");
  EXPECT_THAT(inventory->poll(), ElementsAre(1));
  EXPECT_EQ(inventory->gpus()[1].state(), "failed: XID 79 (GPU has fallen off the bus)");
  EXPECT_EQ(inventory->gpus()[0].state(), "OK");
  report("1 79");
  report("1 43");
  EXPECT_THAT(inventory->poll(), IsEmpty());
  report("1 48");
  EXPECT_THAT(inventory->poll(), ElementsAre(1));
  EXPECT_EQ(inventory->gpus()[1].fault, "XID 48 (uncorrectable double bit ECC error)");
}

TEST_F(Inventory, AnXidOfAnApplicationLeavesItsGpuAtWork) {
  const auto inventory = open();
  inventory->watch();
  report("0 31");
  EXPECT_THAT(inventory->poll(), ElementsAre(0));
  EXPECT_EQ(inventory->gpus()[0].state(),
            "OK, last XID 31 (an application accessed memory that is not mapped)");
  EXPECT_EQ(inventory->gpus()[0].fault, "");
}

TEST_F(Inventory, AGpuThatIsLostWithoutAnXidIsFound) {
  const auto inventory = open();
  inventory->watch();
  report("lost 1");
  EXPECT_THAT(inventory->poll(), ElementsAre(1));
  EXPECT_EQ(inventory->gpus()[1].state(), "failed: GPU is lost");
  EXPECT_EQ(inventory->gpus()[0].state(), "OK");
}

TEST_F(Inventory, WhereThereIsNoneItIsUnavailableAndSaysWhy) {
  const Status absent = GpuInventory::open("libnvml-that-is-not-there.so").status();
  EXPECT_EQ(absent.code(), Code::unavailable);
  EXPECT_THAT(absent.message(), HasSubstr("libnvml-that-is-not-there.so"));
  const Status other = GpuInventory::open("libm.so.6").status();
  EXPECT_EQ(other.code(), Code::unavailable);
  EXPECT_EQ(other.message(), "libm.so.6 lacks nvmlInit_v2; install driver 450 or later");
  set("FAKE_NVML_REFUSES", "nvmlInit_v2");
  const Status refused = GpuInventory::open(TUTTI_FAKE_NVML).status();
  EXPECT_EQ(refused.code(), Code::unavailable);
  EXPECT_THAT(refused.message(), HasSubstr("NVML does not start: Not Supported; nvidia-smi"));
}

TEST(Xid, CommonOnesHaveText) {
  for (const uint64_t xid : {31, 43, 48, 62, 63, 64, 74, 79, 94, 95, 119, 120})
    EXPECT_THAT(describe_xid(xid), HasSubstr(" (")) << xid;
  EXPECT_EQ(describe_xid(7), "XID 7");
  EXPECT_TRUE(is_fatal_xid(7) && is_fatal_xid(79) && is_fatal_xid(95));
  for (const uint64_t xid : {8, 11, 13, 31, 41, 43, 45, 63, 94, 154})
    EXPECT_FALSE(is_fatal_xid(xid)) << xid;
}

}  // namespace
}  // namespace tutti
