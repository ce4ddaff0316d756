// The table of the driver's functions, and what is said where there is no driver.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/support/cuda_driver.h"

namespace tutti::cuda {
namespace {

std::string uuid_text(const Uuid& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

// tests/gpu/run reads what it prints.
TEST(Driver, NamesItsGpus) {
  const auto loaded = load_driver(driver_under_test());
  if (!loaded.ok()) std::printf("there is no GPU: %s\n", loaded.status().message().c_str());
  if (!loaded.ok()) GTEST_SKIP() << loaded.status().to_string();
  const Driver& driver = **loaded;
  EXPECT_GT(gpus_of(driver), 0);
  for (int gpu = 0; gpu < gpus_of(driver); ++gpu) {
    DeviceId device = 0;
    ASSERT_EQ(driver.device_get(&device, gpu), kSuccess);
    char name[128] = "";
    Uuid uuid{};
    size_t bytes = 0;
    EXPECT_EQ(driver.device_get_name(name, sizeof(name), device), kSuccess);
    EXPECT_EQ(driver.device_get_uuid(&uuid, device), kSuccess);
    EXPECT_EQ(driver.device_total_mem(&bytes, device), kSuccess);
    EXPECT_NE(std::strlen(name), 0u);
    EXPECT_GT(bytes, 0u);
    std::printf("GPU %d: %s, %zu MiB, %s\n", gpu, name, bytes >> 20, uuid_text(uuid).c_str());
  }
}

TEST(Driver, IsLoadedOnce) {
  const auto first = load_driver(driver_under_test());
  ASSERT_EQ(first.status().to_string(), "OK");
  EXPECT_EQ(*first, *load_driver(driver_under_test()));
  EXPECT_TRUE(!is_fake_under_test() || gpus_of(**first) == 2);
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

TEST(DriverWatch, FindsWhatIsLoadedAndNothingElse) {
  DriverWatch watch("libcuda-that-is-not-there.so");
  EXPECT_EQ(watch.find(), nullptr);
  EXPECT_EQ(watch.find(), nullptr);
}

// A thread looks for the driver while others ask for it, which was loaded before.
TEST(DriverWatch, EveryThreadFindsADriverThatWasLoaded) {
  ASSERT_NE(dlopen(driver_under_test().c_str(), RTLD_NOW), nullptr);
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  std::vector<std::unique_ptr<DriverWatch>> watches;
  for (int round = 0; round < kRounds; ++round)
    watches.push_back(std::make_unique<DriverWatch>(driver_under_test()));
  std::barrier start(kThreads);
  std::atomic<int> missed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (const auto& watch : watches) {
        start.arrive_and_wait();
        missed += watch->find() == nullptr ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missed, 0);
}

TEST(Driver, ErrorsHaveTextAndCode) {
  const Driver& driver = **load_driver(driver_under_test());
  EXPECT_EQ(status_of(driver, kSuccess, "x").to_string(), "OK");
  const Status status = status_of(driver, kOutOfMemory, "cannot allocate");
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_EQ(status.message(), "cannot allocate: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
}

// What fails for want of something, or is asked wrongly, leaves the process as it was.
TEST(Driver, SomeErrorsAreTheEndOfAProcessOnItsGpu) {
  for (const Error error : {kEccUncorrectable, kNvlinkUncorrectable, kContained, kIllegalAddress,
                            kAssert, kHardwareStackError, kLaunchFailed, kMpsClientTerminated})
    EXPECT_TRUE(is_sticky(error)) << error;
  for (const Error error : {kSuccess, kInvalidValue, kOutOfMemory, kInvalidContext, kNotReady,
                            kPeerAccessAlreadyEnabled, kNotSupported})
    EXPECT_FALSE(is_sticky(error)) << error;
}

TEST(Driver, AUuidIsWrittenAsNvidiaSmiDoes) {
  Uuid uuid{};
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) uuid.bytes[i] = static_cast<char>(i * 0x11);
  EXPECT_EQ(text_of(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Driver, AContextIsCurrentForAScope) {
  const Driver& driver = **load_driver(driver_under_test());
  Context context = nullptr;
  const int last = gpus_of(driver) - 1;
  ASSERT_EQ(driver.device_primary_ctx_retain(&context, last), kSuccess);
  Pointer memory = 0;
  EXPECT_EQ(driver.mem_alloc(&memory, 16), kInvalidContext);
  {
    const Current current(driver, context);
    EXPECT_EQ(current.error(), kSuccess);
    EXPECT_EQ(driver.mem_alloc(&memory, 16), kSuccess);
  }
  int gpu = -1;
  EXPECT_EQ(driver.pointer_get_attribute(&gpu, kPointerDeviceOrdinal, memory), kSuccess);
  EXPECT_EQ(gpu, last);
  {
    const Current current(driver, context);
    EXPECT_EQ(driver.mem_free(memory), kSuccess);
  }
  EXPECT_EQ(Current(driver, nullptr).error(), kInvalidValue);
}

}  // namespace
}  // namespace tutti::cuda
