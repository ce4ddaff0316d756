// The GPU of a rank: memory for tensors, a stream for calls, and copies. Methods throw BenchError.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/base/status.h"
#include "daemon/cuda/cuda.h"

namespace tutti {

// The driver that the settings of the environment name. UNAVAILABLE where there is none, or no GPU;
// the message says what to do.
Result<const cuda::Driver*> bench_driver();

// Used by one thread, whose current context is the GPU's while it lives.
class BenchGpu {
 public:
  using Id = std::array<uint8_t, 16>;

  // Ranks take the GPUs that they see in turn.
  explicit BenchGpu(uint32_t rank);
  BenchGpu(const BenchGpu&) = delete;
  BenchGpu& operator=(const BenchGpu&) = delete;
  ~BenchGpu();

  const Id& id() const { return id_; }  // Its UUID.
  const std::string& model() const { return model_; }
  void* stream() const { return stream_; }

  void* allocate(size_t bytes);
  void free(void* memory);
  // Queues a copy on the stream; either side may be on the host.
  void copy(void* to, const void* from, size_t bytes);
  // Blocks until the stream has done all that was queued.
  void synchronize();

 private:
  // The GPU's primary context, current to this thread.
  class Context {
   public:
    Context(const cuda::Driver& driver, cuda::DeviceId device);
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context();

   private:
    const cuda::Driver& driver_;
    const cuda::DeviceId device_;
  };

  void check(cuda::Error error, const std::string& what) const;

  const cuda::Driver& driver_;
  const cuda::DeviceId device_;
  const Context context_;
  Id id_{};
  std::string model_;
  cuda::Stream stream_ = nullptr;
};

}  // namespace tutti
