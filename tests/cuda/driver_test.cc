// The table of the driver's functions, and what is said where there is no driver.
#include <gtest/gtest.h>

#include "daemon/cuda/cuda.h"

namespace tutti::cuda {
namespace {

TEST(Driver, IsLoadedOnce) {
  const auto first = load_driver(TUTTI_FAKE_CUDA);
  ASSERT_EQ(first.status().to_string(), "OK");
  EXPECT_EQ(*first, *load_driver(TUTTI_FAKE_CUDA));
  int gpus = 0;
  EXPECT_EQ((*first)->device_get_count(&gpus), kSuccess);
  EXPECT_EQ(gpus, 2);
}

TEST(Driver, OneThatIsNotThereIsUnavailableAndSaysWhere) {
  const Status status = load_driver("libcuda-that-is-not-there.so").status();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_NE(status.message().find("libcuda-that-is-not-there.so"), std::string::npos);
}

TEST(Driver, ALibraryThatIsNoDriverIsNamedWithWhatItLacks) {
  const Status status = load_driver("libm.so.6").status();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_EQ(status.message(), "libm.so.6 lacks cuInit; install driver 525 or later");
}

TEST(Driver, ErrorsHaveTextAndCode) {
  const Driver& driver = **load_driver(TUTTI_FAKE_CUDA);
  EXPECT_EQ(status_of(driver, kSuccess, "x").to_string(), "OK");
  const Status status = status_of(driver, kOutOfMemory, "cannot allocate");
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_EQ(status.message(), "cannot allocate: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
}

TEST(Driver, AContextIsCurrentForAScope) {
  const Driver& driver = **load_driver(TUTTI_FAKE_CUDA);
  Context context = nullptr;
  ASSERT_EQ(driver.device_primary_ctx_retain(&context, 1), kSuccess);
  Pointer memory = 0;
  EXPECT_EQ(driver.mem_alloc(&memory, 16), kInvalidContext);
  {
    const Current current(driver, context);
    EXPECT_EQ(current.error(), kSuccess);
    EXPECT_EQ(driver.mem_alloc(&memory, 16), kSuccess);
  }
  int gpu = -1;
  EXPECT_EQ(driver.pointer_get_attribute(&gpu, kPointerDeviceOrdinal, memory), kSuccess);
  EXPECT_EQ(gpu, 1);
  EXPECT_EQ(driver.mem_free(memory), kSuccess);
  EXPECT_EQ(Current(driver, nullptr).error(), kInvalidContext);
}

}  // namespace
}  // namespace tutti::cuda
