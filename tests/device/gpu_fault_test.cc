// What is left of a GPU after a fault: errors by name, and an end that waits for nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "daemon/device/device.h"

namespace tutti {
namespace {

struct GpuFaultTest : testing::Test {
  static std::string poison() {
    return testing::TempDir() + "tutti-poison-" + std::to_string(getpid());
  }
  // Before the driver's first call, which reads it.
  static void SetUpTestSuite() { setenv("FAKE_CUDA_POISON", poison().c_str(), 1); }
  static void TearDownTestSuite() { unlink(poison().c_str()); }
  // A stream that never gets further, an event and memory.
  struct Parts {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> event;
    std::unique_ptr<Buffer> memory;
  };
  Parts make_parts() {
    Parts parts{*gpu->make_stream(), nullptr, *gpu->allocate(4096)};
    EXPECT_TRUE(gpu->wait(*parts.stream, words->data(), 1).ok());
    parts.event = *gpu->record(*parts.stream);
    return parts;
  }
  void expect_lost(const Status& status) const {
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_EQ(status, fault->status());
  }

  int told = 0;
  const std::shared_ptr<GpuFault> fault =
      std::make_shared<GpuFault>("the worker of host a", [this] { ++told; });
  const cuda::Driver& driver = **cuda::load_driver(TUTTI_FAKE_CUDA);
  const std::unique_ptr<Gpu> gpu = *make_gpu(driver, 1, fault);
  const std::unique_ptr<Buffer> words = *gpu->allocate_pinned(4096);
};

// The driver would wait for ever for the stream's work.
TEST_F(GpuFaultTest, AGpuThatIsGivenUpIsLeftAlone) {
  {
    const Parts parts = make_parts();
    EXPECT_FALSE(*gpu->is_done(*parts.stream));
    gpu->give_up("GPU 1 failed: XID 79");
    gpu->give_up("something else");
    expect_lost(gpu->wait(*parts.stream));
    expect_lost(gpu->is_done(*parts.stream).status());
    expect_lost(gpu->allocate(4096).status());
  }
  EXPECT_EQ(fault->status().message(),
            "the worker of host a can do no more work on GPUs and ends: GPU 1 failed: XID 79");
  EXPECT_EQ(told, 1);
}

// Last: it is the end of this process on its GPUs.
TEST_F(GpuFaultTest, AStickyErrorIsNotedByName) {
  const Parts parts = make_parts();
  EXPECT_FALSE(fault->is_set());
  std::ofstream(poison()) << getpid() << std::endl;
  expect_lost(gpu->is_done(*parts.stream).status());
  EXPECT_EQ(told, 1);
  EXPECT_EQ(fault->status().message().find(
                "the worker of host a can do no more work on GPUs and ends: GPU 1 (Fake GPU, GPU-"),
            0u);
  EXPECT_NE(fault->status().message().find(
                "): an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS); join"),
            std::string::npos)
      << fault->status().message();
  expect_lost(gpu->make_stream().status());
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace tutti
