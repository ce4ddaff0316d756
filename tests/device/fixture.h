// The contract suite's subject: each device in turn. One that is not here is skipped by name.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "tests/support/cuda_driver.h"

namespace tutti {

using Bytes = std::vector<std::byte>;

// "cuda": a GPU, "fake": the same code over a driver of host threads and memory.
inline std::string driver_library(const std::string& kind) {
  return kind == "fake" ? TUTTI_FAKE_CUDA : driver_under_test(cuda::kDriverLibrary);
}

inline Result<std::unique_ptr<Device>> make_device(const std::string& kind) {
  if (kind == "host") return make_host_device();
  const auto driver = cuda::load_driver(driver_library(kind));
  if (!driver.ok()) return driver.status();
  Result<std::unique_ptr<Gpu>> gpu = make_gpu(**driver, 0);
  if (!gpu.ok()) return gpu.status();
  return std::unique_ptr<Device>(*std::move(gpu));
}

class DeviceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use(GetParam()); }

  void use(const std::string& kind) {
    Result<std::unique_ptr<Device>> made = make_device(kind);
    if (!made.ok()) GTEST_SKIP() << "no CUDA device here: " << made.status().to_string();
    device = *std::move(made);
    stream = *device->make_stream();
  }

  std::unique_ptr<Buffer> allocate(size_t bytes) { return *device->allocate(bytes); }

  // Memory of the device that holds `bytes`, `offset` bytes behind an aligned address.
  std::unique_ptr<Buffer> upload(std::span<const std::byte> bytes, size_t offset = 0) {
    std::unique_ptr<Buffer> buffer = allocate(offset + bytes.size());
    expect_ok(device->copy(*stream, buffer->data() + offset, bytes.data(), bytes.size()));
    expect_ok(device->wait(*stream));
    return buffer;
  }

  Bytes download(const std::byte* from, size_t bytes) {
    Bytes read(bytes);
    expect_ok(device->copy(*stream, read.data(), from, bytes));
    expect_ok(device->wait(*stream));
    return read;
  }

  static void expect_ok(const Status& status) { EXPECT_EQ(status.to_string(), "OK"); }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

inline const auto kDevices = ::testing::Values("host", "cuda", "fake");
inline std::string device_name(const ::testing::TestParamInfo<std::string>& of) { return of.param; }

// Bytes that differ from neighbour to neighbour and from seed to seed.
inline Bytes pattern(size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
  return made;
}

}  // namespace tutti
