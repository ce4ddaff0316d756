// Trainers with memory on GPUs, of the driver that their workers load as well: the fake one, or
// that of TUTTI_TEST_CUDA_DRIVER.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "daemon/control/admin_client.h"
#include "daemon/cuda/cuda.h"
#include "tests/process/board_fixture.h"
#include "tests/support/cuda_driver.h"

namespace tutti::testing {

// Set for as long as it lives, and inherited by the processes of a mesh that starts then.
struct Variable {
  Variable(const char* given, const std::string& value) : name(given) {
    setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name); }
  const char* const name;
};

// GPUs that do not reach each other.
struct NoPeers {
  const Variable refused{"FAKE_CUDA_NO_PEERS", "1"};
};

inline constexpr size_t kCount = 1000;
inline constexpr std::array kStrategies = {"centralized", "tree:2", "ring", "ring,centralized"};

// The driver as a program of CUDA uses it, in the context of one GPU. Where there are fewer GPUs,
// counting starts again.
class CudaProgram {
 public:
  explicit CudaProgram(int gpu) {
    const auto loaded = cuda::load_driver(driver_under_test());
    check(loaded.ok(), loaded.status().to_string());
    driver_ = *loaded;
    gpu_ = gpu % std::max(gpus_of(*driver_), 1);
    cuda::Context context = nullptr;
    expect(driver_->device_primary_ctx_retain(&context, gpu_));
    expect(driver_->ctx_push_current(context));
  }

  const cuda::Driver& driver() const { return *driver_; }

  void* allocate(size_t bytes) const {
    cuda::Pointer made = 0;
    expect(driver_->mem_alloc(&made, bytes));
    return at(made);
  }
  void free(void* memory) const { expect(driver_->mem_free(address(memory))); }

  // As torch's expandable segments: chunks one behind the other.
  void* allocate_chunks(int chunks, bool exportable = true) const {
    constexpr size_t kChunk = size_t{2} << 20;
    cuda::Pointer base = 0;
    const auto count = static_cast<size_t>(chunks);
    expect(driver_->mem_address_reserve(&base, kChunk * count, 0, 0, 0));
    for (size_t i = 0; i < count; ++i) {
      cuda::AllocationProperties how{};
      how.type = cuda::kAllocationPinned;
      how.handle_types = exportable ? cuda::kHandleDescriptor : 0;
      how.location = {cuda::kLocationDevice, gpu_};
      cuda::Allocation chunk = 0;
      expect(driver_->mem_create(&chunk, kChunk, &how, 0));
      expect(driver_->mem_map(base + i * kChunk, kChunk, 0, chunk, 0));
      expect(driver_->mem_release(chunk));
    }
    const cuda::Access access{{cuda::kLocationDevice, gpu_}, cuda::kAccessReadWrite};
    expect(driver_->mem_set_access(base, kChunk * count, &access, 1));
    return at(base);
  }

  cuda::Stream stream() const {
    cuda::Stream made = nullptr;
    expect(driver_->stream_create(&made, cuda::kStreamNonBlocking));
    return made;
  }
  void synchronize(cuda::Stream stream) const { expect(driver_->stream_synchronize(stream)); }

  template <class T>
  void write(void* to, const std::vector<T>& values, cuda::Stream stream = nullptr) const {
    expect(driver_->memcpy_async(address(to), address(values.data()), values.size() * sizeof(T),
                                 stream));
    synchronize(stream);
  }
  template <class T>
  std::vector<T> read(const void* from, size_t count, cuda::Stream stream = nullptr) const {
    std::vector<T> values(count);
    expect(driver_->memcpy_async(address(values.data()), address(from), count * sizeof(T), stream));
    synchronize(stream);
    return values;
  }
  // Lets the stream wait until *word, in memory of pinned(), is 1.
  void hold(cuda::Stream stream, const uint64_t* word) const {
    expect(driver_->stream_wait_value(stream, address(word), 1, cuda::kWaitGreaterOrEqual));
  }
  uint64_t* pinned() const {
    void* memory = nullptr;
    expect(driver_->mem_host_alloc(&memory, 4096, cuda::kHostPortable));
    std::memset(memory, 0, 4096);
    return static_cast<uint64_t*>(memory);
  }

  void expect(cuda::Error error) const {
    check(error == cuda::kSuccess, cuda::status_of(*driver_, error, "CUDA").to_string());
  }
  static cuda::Pointer address(const void* memory) {
    return reinterpret_cast<cuda::Pointer>(memory);
  }
  static void* at(cuda::Pointer address) { return reinterpret_cast<void*>(address); }

 private:
  const cuda::Driver* driver_ = nullptr;
  int gpu_ = 0;
};

// Memory that is freed with it.
class GpuMemory {
 public:
  GpuMemory(const CudaProgram& cuda, size_t bytes)
      : cuda_(cuda), data_(static_cast<std::byte*>(cuda.allocate(bytes))) {}
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() { cuda_.free(data_); }
  std::byte* data() const { return data_; }

 private:
  const CudaProgram& cuda_;
  std::byte* data_;
};

// A group of the C ABI, for calls with streams.
class CGroup {
 public:
  explicit CGroup(const RankContext& context, int timeout_ms = 60'000) {
    tutti_join_options options = tutti_join_defaults();
    options.socket = context.socket.c_str();
    options.job = context.job.c_str();
    options.rank = context.rank;
    options.world_size = context.world_size;
    options.timeout_ms = timeout_ms;
    expect(tutti_join(&options, &group_));
  }
  CGroup(const CGroup&) = delete;
  CGroup& operator=(const CGroup&) = delete;
  ~CGroup() { tutti_group_free(group_); }
  tutti_group* get() const { return group_; }

  static void expect(tutti_code code) {
    check(code == TUTTI_OK,
          std::string(tutti_code_name(code)) + ": " + tutti_last_error()->message);
  }

 private:
  tutti_group* group_ = nullptr;
};

// Joins a job whose worker has just died: the agent may hand the rank to it once more.
inline std::unique_ptr<CGroup> join_again(const RankContext& context) {
  for (int attempt = 1;; ++attempt) {
    try {
      return std::make_unique<CGroup>(context);
    } catch (const std::exception& error) {
      const bool is_over = std::string(error.what()).find("join again") == std::string::npos;
      if (is_over || attempt == 100) throw;
    }
  }
}

// The worker of a host, from the mesh's status; -1: there is none, or more than one.
inline pid_t worker_of(const TestMesh& mesh, int host) {
  const auto status = admin_status(mesh.host(host).address, true, 5'000);
  if (!status.ok() || status->agents(0).workers_size() != 1) return -1;
  return static_cast<pid_t>(status->agents(0).workers(0).pid());
}

inline tutti_options on_stream(cuda::Stream stream) {
  tutti_options options = tutti_defaults();
  options.on_stream = 1;
  options.stream = stream;
  return options;
}

inline std::vector<float> ramp(size_t count, float base) {
  std::vector<float> tensor(count);
  for (size_t i = 0; i < count; ++i) tensor[i] = base + static_cast<float>(i % 100);
  return tensor;
}

// The sum over all ranks of ramp(count, rank).
inline std::vector<float> sum_of_ramps(size_t count, int ranks) {
  std::vector<float> sum(count);
  for (size_t i = 0; i < count; ++i)
    sum[i] = static_cast<float>(ranks * (ranks - 1) / 2) +
             static_cast<float>(ranks) * static_cast<float>(i % 100);
  return sum;
}

inline void all_reduce(CGroup& group, const void* in, void* out, size_t count,
                       const tutti_options* options = nullptr, tutti_work** work = nullptr) {
  CGroup::expect(
      tutti_all_reduce(group.get(), in, out, count, TUTTI_F32, TUTTI_SUM, options, work));
}

inline void check_refused(tutti_code code, tutti_code expected, const std::string& part) {
  const std::string message = tutti_last_error()->message;
  check(code == expected, std::string(tutti_code_name(code)) + ": " + message);
  check(message.find(part) != std::string::npos, "'" + message + "' does not say '" + part + "'");
}

// On one host with several ranks a GPU and several GPUs, and on two hosts.
class GpuMesh : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  std::string run(const Trainer::Body& body) { return mesh_.run("job", GetParam(), body); }
  std::vector<Trainer> start(const Trainer::Body& body) {
    return mesh_.start("job", GetParam(), body);
  }
  int ranks() const {
    int all = 0;
    for (const int here : GetParam()) all += here;
    return all;
  }

  SharedCounters arrived_;
  // Before the mesh starts: its workers load this driver.
  const int set_ = setenv("TUTTI_CUDA_DRIVER", driver_under_test().c_str(), 1);
  TestMesh mesh_{static_cast<int>(GetParam().size())};
};

}  // namespace tutti::testing
