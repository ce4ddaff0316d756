// tuttid on a node with GPUs: what it finds, reports and logs of them.
#include <gmock/gmock.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

struct AgentGpus : AgentTest {
  AgentGpus() {
    environment["TUTTI_NVML_LIBRARY"] = TUTTI_FAKE_NVML;
    environment["FAKE_NVML_GPUS"] = "3";
    environment["FAKE_NVML_EVENTS"] = home + "/events";
  }
  v1::AgentReport report() const {
    const auto reply = admin_status(address(), true, kPatienceMs);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply->agents(0);
  }
  void emit(const std::string& line) const {
    std::ofstream(home + "/events", std::ios::app) << line << std::endl;
  }
};

TEST_F(AgentGpus, AreReported) {
  start();
  const v1::AgentReport found = report();
  ASSERT_EQ(found.gpus_size(), 3);
  const v1::Gpu& gpu = found.gpus(1);
  EXPECT_EQ(gpu.index(), 1u);
  EXPECT_EQ(gpu.name(), "NVIDIA H100");
  EXPECT_EQ(gpu.uuid(), "GPU-10000000-1111-2222-3333-444444444444");
  EXPECT_EQ(gpu.pci_bus_id(), "00000000:2B:00.0");
  EXPECT_EQ(gpu.memory_bytes(), uint64_t{80} << 30);
  EXPECT_EQ(gpu.used_bytes(), uint64_t{2} << 30);
  EXPECT_EQ(gpu.ecc_errors(), 3u);
  EXPECT_EQ(gpu.nvlinks(), 4u);
  ASSERT_EQ(gpu.peers_size(), 2);
  EXPECT_EQ(gpu.peers(0).index(), 0u);
  EXPECT_EQ(gpu.peers(0).path(), "NV4");
  EXPECT_EQ(gpu.peers(1).path(), "NODE");
  EXPECT_EQ(gpu.state(), "OK");
  EXPECT_FALSE(gpu.failed() || gpu.mig());
}

TEST_F(AgentGpus, AFatalXidIsReportedAndLoggedOnce) {
  start();
  emit("0 31");
  emit("2 79");
  emit("2 79");
  emit("1 31");
  ASSERT_TRUE(await([&] { return count_in_log("GPU 1 (NVIDIA H100") > 0; })) << log();
  const std::string said =
      "GPU 2 (NVIDIA H100, GPU-20000000-1111-2222-3333-444444444444, "
      "00000000:3B:00.0) failed: XID 79 (GPU has fallen off the bus); reset "
      "it or restart the node, then restart tuttid";
  EXPECT_EQ(count_in_log(said), 1u) << log();
  EXPECT_EQ(count_in_log(" error "), 1u) << log();
  const v1::AgentReport found = report();
  EXPECT_EQ(found.gpus(2).state(), "failed: XID 79 (GPU has fallen off the bus)");
  EXPECT_TRUE(found.gpus(2).failed());
  EXPECT_EQ(found.gpus(2).xid(), 79u);
  EXPECT_FALSE(found.gpus(0).failed());
  EXPECT_EQ(found.gpus(0).xid(), 31u);
}

TEST_F(AgentGpus, OneThatCannotBeOpenedHasFailed) {
  environment["FAKE_NVML_LOST"] = "1";
  start();
  EXPECT_THAT(log(), HasSubstr(" error "));
  EXPECT_THAT(log(), HasSubstr(" GPU 1 failed: GPU is lost; reset it"));
  EXPECT_TRUE(report().gpus(1).failed());
}

TEST_F(AgentGpus, WithoutNvmlThereAreNoneAndItIsSaidForDebuggingOnly) {
  environment["TUTTI_NVML_LIBRARY"] = "libnvml-that-is-not-there.so";
  end(start(), SIGTERM);
  EXPECT_THAT(log(), Not(HasSubstr("GPU")));
  EXPECT_EQ(next_notification(), "STOPPING=1");
  start({"--log-level=debug"});
  EXPECT_EQ(report().gpus_size(), 0);
  EXPECT_THAT(log(), HasSubstr("no GPUs: there is no NVML here: libnvml-that-is-not-there.so"));
}

}  // namespace
}  // namespace tutti
