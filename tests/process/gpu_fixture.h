// Trainers with memory on GPUs, of the driver that their workers load as well: the fake one, or
// that of TUTTI_TEST_CUDA_DRIVER.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "daemon/control/admin_client.h"
#include "daemon/cuda/cuda.h"
#include "tests/process/board_fixture.h"
#include "tests/support/cuda_driver.h"
#include "tests/support/proc_counters.h"

namespace tutti::testing {

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

// Where the sides of a task lie: on a GPU, and, where there is a stream, in its order.
struct OnGpu {
  const CudaProgram* cuda = nullptr;
  cuda::Stream stream = nullptr;

  GpuMemory make(Group& /*group*/, size_t bytes, bool /*shared*/) const {
    return {*cuda, std::max(bytes, size_t{1})};
  }
  void write(std::byte* to, const Bytes& from) const {
    if (!from.empty()) cuda->write(to, from, stream);
  }
  Bytes read(const std::byte* from, size_t bytes) const {
    return bytes == 0 ? Bytes() : cuda->read<std::byte>(from, bytes, stream);
  }
  void choose(tutti_options& options) const {
    options.on_stream = stream == nullptr ? 0 : 1;
    options.stream = stream;
  }
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

// How many descriptors of GPU memory a process holds: its own, and those that it maps.
inline int gpu_descriptors(pid_t process) {
  int found = 0;
  const std::filesystem::path all = "/proc/" + std::to_string(process) + "/fd";
  std::error_code gone;  // A descriptor may be closed meanwhile.
  for (const auto& descriptor : std::filesystem::directory_iterator(all, gone)) {
    const std::string target = std::filesystem::read_symlink(descriptor, gone);
    found += target.starts_with("/memfd:fake-gpu") ? 1 : 0;
  }
  return found;
}

inline tutti_options on_stream(cuda::Stream stream) {
  tutti_options options = tutti_defaults();
  options.on_stream = 1;
  options.stream = stream;
  return options;
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

// Calls an operation whose input and output are equally large on the host; on a GPU; and there in
// place and in the order of a stream. What it does not write stays as it is.
using Call =
    std::function<tutti_code(std::byte* in, std::byte* out, const tutti_options*, tutti_work**)>;
inline void check_same_bits(const std::string& what, const CudaProgram& cuda, Bytes input,
                            tutti_options options, const Call& call) {
  const size_t bytes = input.size();
  const Bytes unwritten(bytes, std::byte{0x5a});
  Bytes apart = unwritten, in_place = input;
  CGroup::expect(call(input.data(), apart.data(), &options, nullptr));
  CGroup::expect(call(in_place.data(), in_place.data(), &options, nullptr));
  const GpuMemory in(cuda, bytes), out(cuda, bytes);
  cuda.write(in.data(), input);
  cuda.write(out.data(), unwritten);
  CGroup::expect(call(in.data(), out.data(), &options, nullptr));
  check(cuda.read<std::byte>(out.data(), bytes) == apart, what);
  check(cuda.read<std::byte>(in.data(), bytes) == input, what + ": the input stays");
  const cuda::Stream stream = cuda.stream();
  options.on_stream = 1;
  options.stream = stream;
  tutti_work* work = nullptr;
  CGroup::expect(call(in.data(), in.data(), &options, &work));
  check(cuda.read<std::byte>(in.data(), bytes, stream) == in_place, what + " in place");
  CGroup::expect(tutti_work_wait(work, -1));
  tutti_work_free(work);
}

inline void check_refused(tutti_code code, tutti_code expected, const std::string& part) {
  const std::string message = tutti_last_error()->message;
  check(code == expected, std::string(tutti_code_name(code)) + ": " + message);
  check(message.find(part) != std::string::npos, "'" + message + "' does not say '" + part + "'");
}

// Values of every collective on GPUs, and of calls that block, do not, or are in a stream's order.
// Others are made on the same memory again. `at_end` runs before a rank leaves.
inline void check_values(
    const RankContext& context, const std::function<void()>& at_end = [] {}) {
  const CudaProgram cuda(context.rank % 2);
  Group group = context.join();
  const OnGpu apart{&cuda}, on_stream{&cuda, cuda.stream()};
  for (const OnGpu& place : {apart, on_stream}) {
    run_sweep(group,
              {.collectives = {kEveryCollective.begin(), kEveryCollective.end()},
               .counts = {3000, 5000},
               .uneven = {100},
               .ops = {Op::sum, Op::max},
               .ways = {Way::blocking, Way::async},
               .in_place = {true, false}},
              place);
    run_sweep(group,
              {.collectives = {Collective::reduce}, .counts = {10'000}, .ops = {Op::premul_sum}},
              place);
    run_sweep(group,
              {.collectives = {Collective::broadcast, Collective::reduce, Collective::gather,
                               Collective::scatter},
               .counts = {5000},
               .first_is_root = true},
              place);
  }
  for (const size_t count : {1, 1000, 300'001, 2'000'000})
    for (const bool in_place : {false, true}) {
      const Way way = count % 2 == 0 ? Way::blocking : Way::async;
      PartAt part(group, {.count = count, .way = way, .in_place = in_place}, apart);
      for (int round = 0; round < 3; ++round) {
        part.fill();
        part.begin();
        part.end();
      }
    }
  at_end();
  group.barrier();  // Nobody leaves before.
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
  const Variable driver_{"TUTTI_CUDA_DRIVER", driver_under_test()};
  TestMesh mesh_{static_cast<int>(GetParam().size())};
};

}  // namespace tutti::testing
