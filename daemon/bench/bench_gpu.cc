#include "daemon/bench/bench_gpu.h"

#include <cstring>

#include "daemon/base/settings.h"
#include "daemon/bench/bench_client.h"

namespace tutti {
namespace {

cuda::Pointer address_of(const void* memory) { return reinterpret_cast<cuda::Pointer>(memory); }

void throw_unless_ok(const cuda::Driver& driver, cuda::Error error, const std::string& what) {
  if (Status status = cuda::status_of(driver, error, what); !status.ok()) throw BenchError{status};
}

const cuda::Driver& driver_or_throw() {
  const Result<const cuda::Driver*> driver = bench_driver();
  if (!driver.ok()) throw BenchError{driver.status()};
  return **driver;
}

cuda::DeviceId device_for(const cuda::Driver& driver, uint32_t rank) {
  int count = 0;
  throw_unless_ok(driver, driver.device_get_count(&count), "cannot count the GPUs");
  if (count == 0)
    throw BenchError{unavailable("rank " + std::to_string(rank) +
                                 " sees no GPU: see CUDA_VISIBLE_DEVICES, or leave out --device")};
  const int ordinal = static_cast<int>(rank) % count;
  cuda::DeviceId device = 0;
  throw_unless_ok(driver, driver.device_get(&device, ordinal),
                  "cannot use GPU " + std::to_string(ordinal));
  return device;
}

}  // namespace

Result<const cuda::Driver*> bench_driver() {
  Settings settings;
  if (Status status = read_settings_environment(settings); !status.ok()) return status;
  Result<const cuda::Driver*> driver = cuda::load_driver(settings.cuda_driver);
  if (driver.ok()) return driver;
  return Status(driver.status().code(),
                driver.status().message() +
                    "; install the GPU's driver or name its library in TUTTI_CUDA_DRIVER, or "
                    "leave out --device cuda to measure on host memory");
}

BenchGpu::Context::Context(const cuda::Driver& driver, cuda::DeviceId device)
    : driver_(driver), device_(device) {
  cuda::Context context = nullptr;
  throw_unless_ok(driver, driver.device_primary_ctx_retain(&context, device),
                  "cannot make a context on the GPU");
  throw_unless_ok(driver, driver.ctx_push_current(context), "cannot use the GPU's context");
}

BenchGpu::Context::~Context() {
  cuda::Context popped = nullptr;
  driver_.ctx_pop_current(&popped);
  driver_.device_primary_ctx_release(device_);
}

BenchGpu::BenchGpu(uint32_t rank)
    : driver_(driver_or_throw()), device_(device_for(driver_, rank)), context_(driver_, device_) {
  cuda::Uuid uuid{};
  check(driver_.device_get_uuid(&uuid, device_), "the GPU has no UUID");
  std::memcpy(id_.data(), uuid.bytes, id_.size());
  std::array<char, 128> name{};
  check(driver_.device_get_name(name.data(), name.size() - 1, device_), "the GPU has no name");
  model_ = name.data();
  check(driver_.stream_create(&stream_, cuda::kStreamNonBlocking), "cannot make a stream");
}

BenchGpu::~BenchGpu() { driver_.stream_destroy(stream_); }

void BenchGpu::check(cuda::Error error, const std::string& what) const {
  throw_unless_ok(driver_, error, what);
}

void* BenchGpu::allocate(size_t bytes) {
  cuda::Pointer made = 0;
  check(driver_.mem_alloc(&made, bytes),
        "no GPU memory for " + std::to_string(bytes) + " bytes: lower --max");
  return reinterpret_cast<void*>(made);  // NOLINT(performance-no-int-to-ptr): it is a pointer.
}

void BenchGpu::free(void* memory) { driver_.mem_free(address_of(memory)); }

void BenchGpu::copy(void* to, const void* from, size_t bytes) {
  check(driver_.memcpy_async(address_of(to), address_of(from), bytes, stream_),
        "cannot copy " + std::to_string(bytes) + " bytes");
}

void BenchGpu::synchronize() {
  check(driver_.stream_synchronize(stream_), "the GPU's stream has failed");
}

}  // namespace tutti
