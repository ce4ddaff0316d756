// What a GPU has beyond the contract of devices: order by words, pinned memory, many chunks.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "daemon/base/fd.h"
#include "tests/device/fixture.h"

namespace tutti {
namespace {

class GpuTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (device == nullptr) return;
    gpu = dynamic_cast<Gpu*>(device.get());
    words = *gpu->allocate_pinned(4096);
    std::memset(words->data(), 0, 4096);
  }

  uint64_t* word(int index) { return reinterpret_cast<uint64_t*>(words->data()) + index; }
  uint64_t load(int index) { return std::atomic_ref(*word(index)).load(); }
  void store(int index, uint64_t value) { std::atomic_ref(*word(index)).store(value); }

  // Queues out = a + b over `count` floats.
  void add(Stream& on, std::byte* out, const std::byte* a, const std::byte* b, size_t count) {
    const Target target{out, Dtype::f32};
    const Operand sources[] = {{a, Dtype::f32}, {b, Dtype::f32}};
    expect_ok(device->reduce(on, {&target, 1}, sources, {.count = count}));
  }

  std::unique_ptr<Buffer> floats(float value, size_t count) {
    const std::vector<float> all(count, value);
    return upload(std::as_bytes(std::span(all)));
  }
  float first(const Buffer& of) {
    float read = 0;
    const Bytes bytes = download(of.data(), sizeof(read));
    std::memcpy(&read, bytes.data(), sizeof(read));
    return read;
  }

  Gpu* gpu = nullptr;
  std::unique_ptr<Buffer> words;
};

INSTANTIATE_TEST_SUITE_P(Gpus, GpuTest, testing::Values("cuda", "fake"), device_name);

TEST_P(GpuTest, AStreamWaitsForAWordAndStoresOne) {
  const auto a = floats(1, 100), b = floats(2, 100), out = floats(0, 100);
  expect_ok(gpu->wait(*stream, word(0), 7));
  add(*stream, out->data(), a->data(), b->data(), 100);
  expect_ok(gpu->store(*stream, word(1), 9));
  const std::unique_ptr<Event> event = *device->record(*stream);
  EXPECT_FALSE(*gpu->is_done(*event));
  EXPECT_EQ(load(1), 0u);
  store(0, 7);
  expect_ok(device->wait(*stream));
  EXPECT_TRUE(*gpu->is_done(*event));
  EXPECT_EQ(load(1), 9u);
  EXPECT_EQ(first(*out), 3);
}

TEST_P(GpuTest, AWordBeyondTheValueReleasesToo) {
  store(0, 8);
  expect_ok(gpu->wait(*stream, word(0), 7));
  expect_ok(device->wait(*stream));
}

TEST_P(GpuTest, WordsMustBePinned) {
  alignas(8) uint64_t ordinary = 0;
  EXPECT_EQ(gpu->wait(*stream, &ordinary, 1).code(), Code::invalid_argument);
  {
    alignas(4096) static std::byte page[4096];
    const auto pinned = gpu->pin(page, sizeof(page));
    expect_ok(pinned.status());
    expect_ok(gpu->store(*stream, page + 8, 5));
    expect_ok(device->wait(*stream));
    EXPECT_EQ(page[8], std::byte{5});
  }
}

TEST_P(GpuTest, AFunctionIsCalledWhenEarlierWorkIsDone) {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t seen = 0;
  expect_ok(gpu->wait(*stream, word(0), 1));
  expect_ok(gpu->store(*stream, word(1), 4));
  expect_ok(gpu->call(*stream, [&] {
    const std::lock_guard lock(mutex);
    seen = load(1);
    changed.notify_all();
  }));
  store(0, 1);
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return seen != 0; }));
  EXPECT_EQ(seen, 4u);
}

// What the worker does when an operation fails while a stream waits for a rank.
TEST_P(GpuTest, CancelledWorkWritesNothing) {
  const auto a = floats(1, 100), b = floats(2, 100), out = floats(5, 100);
  gpu->set_cancel_word(*stream, word(2));
  expect_ok(gpu->wait(*stream, word(0), 1));
  add(*stream, out->data(), a->data(), b->data(), 100);
  store(2, 1);
  store(0, 1);
  expect_ok(device->wait(*stream));
  EXPECT_EQ(first(*out), 5);
  store(2, 0);
  add(*stream, out->data(), b->data(), b->data(), 100);
  expect_ok(device->wait(*stream));
  EXPECT_EQ(first(*out), 4);
  store(2, 1);
  gpu->set_cancel_word(*stream, nullptr);
  add(*stream, out->data(), a->data(), b->data(), 100);
  expect_ok(device->wait(*stream));
  EXPECT_EQ(first(*out), 3);
}

// More than a page of what kernels find has room for, and each place again.
TEST_P(GpuTest, ManyStreamsAreCancelledEachForItself) {
  const auto a = floats(1, 100), b = floats(2, 100), out = floats(5, 100);
  store(2, 1);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 300; ++i) {
      streams.push_back(*gpu->make_stream());
      gpu->set_cancel_word(*streams.back(), word(i % 2 == 0 ? 2 : 3));
      add(*streams.back(), out->data(), i % 2 == 0 ? b->data() : a->data(), b->data(), 100);
      expect_ok(gpu->wait(*streams.back()));
      EXPECT_EQ(first(*out), i == 0 && round == 0 ? 5 : 3) << i;
    }
  }
}

TEST_P(GpuTest, KernelsReadAndWritePinnedMemory) {
  const auto a = floats(1, 64), out = *gpu->allocate_pinned(256);
  const std::vector<float> twos(64, 2);
  const auto b = *gpu->allocate_pinned(256);
  std::memcpy(b->data(), twos.data(), 256);
  add(*stream, out->data(), a->data(), b->data(), 64);
  expect_ok(device->wait(*stream));
  float read = 0;
  std::memcpy(&read, out->data() + 252, sizeof(read));
  EXPECT_EQ(read, 3);
}

TEST_P(GpuTest, OneThatIsNotThereIsUnavailable) {
  const cuda::Driver& driver = **cuda::load_driver(driver_library(GetParam()));
  const auto gpus = list_gpus(driver);
  expect_ok(gpus.status());
  EXPECT_EQ(make_gpu(driver, static_cast<int>(gpus->size())).status().code(), Code::unavailable);
  EXPECT_EQ(make_gpu(driver, -1).status().code(), Code::unavailable);
  for (const GpuName& gpu : *gpus) EXPECT_GT(gpu.bytes, size_t{1} << 30) << gpu.model;
}

// Memory that another process made of several chunks, as torch's expandable segments are: one
// mapping, in order.
TEST_P(GpuTest, ChunksAreMappedOneBehindTheOther) {
  constexpr size_t kChunk = size_t{2} << 20;
  const cuda::Driver& driver = **cuda::load_driver(driver_library(GetParam()));
  cuda::AllocationProperties how{};
  how.type = cuda::kAllocationPinned;
  how.handle_types = cuda::kHandleDescriptor;
  how.location = {cuda::kLocationDevice, 0};
  MemoryHandle handle{.bytes = 2 * kChunk};
  std::vector<Fd> descriptors;
  for (int i = 0; i < 2; ++i) {
    cuda::Allocation made = 0;
    ASSERT_EQ(driver.mem_create(&made, kChunk, &how, 0), cuda::kSuccess);
    int fd = -1;
    ASSERT_EQ(driver.mem_export_to_shareable_handle(&fd, made, cuda::kHandleDescriptor, 0),
              cuda::kSuccess);
    descriptors.emplace_back(fd);
    handle.chunks.push_back({fd, kChunk});
    driver.mem_release(made);
  }
  const auto whole = device->import_memory(handle);
  expect_ok(whole.status());
  std::swap(handle.chunks[0], handle.chunks[1]);
  const auto swapped = device->import_memory(handle);
  expect_ok(swapped.status());
  const Bytes sent = pattern(2 * kChunk, 3);
  expect_ok(device->copy(*stream, (*whole)->data(), sent.data(), sent.size()));
  expect_ok(device->wait(*stream));
  EXPECT_EQ(download((*swapped)->data(), kChunk), Bytes(sent.begin() + kChunk, sent.end()));
  handle.bytes = 3 * kChunk;
  EXPECT_EQ(device->import_memory(handle).status().code(), Code::invalid_argument);
}

// A rank could say that its memory is larger than it is, and a kernel would leave it.
TEST(FakeGpu, RefusesToImportMoreThanTheMemoryHas) {
  if (!is_fake_under_test()) GTEST_SKIP() << "forks with the driver loaded";
  const cuda::Driver& driver = **cuda::load_driver(driver_under_test());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {  // Exports memory of one granule, and keeps it until it is killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cuda::Context context = nullptr;
    cuda::Pointer memory = 0;
    cuda::IpcHandle handle{};
    driver.device_primary_ctx_retain(&context, 0);
    driver.ctx_push_current(context);
    driver.mem_alloc(&memory, size_t{2} << 20);
    driver.ipc_get_mem_handle(&handle, memory);
    (void)!write(ends[1], &handle, sizeof(handle));
    for (;;) pause();
  }
  std::byte ipc[sizeof(cuda::IpcHandle)];
  ASSERT_EQ(read(ends[0], ipc, sizeof(ipc)), static_cast<ssize_t>(sizeof(ipc)));
  const auto gpu = *make_gpu(driver, 0);
  MemoryHandle handle{.ipc = {ipc, ipc + sizeof(ipc)}, .bytes = size_t{2} << 20};
  EXPECT_EQ(gpu->import_memory(handle).status().to_string(), "OK");
  ++handle.bytes;
  std::shared_ptr<const void> discarded;  // To free it might take long.
  gpu->discard_by([&](auto mapped) { discarded = std::move(mapped); });
  EXPECT_EQ(gpu->import_memory(handle).status().to_string(),
            "INVALID_ARGUMENT: the memory has 2097152 bytes, not 2097153");
  EXPECT_NE(discarded, nullptr);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tutti
