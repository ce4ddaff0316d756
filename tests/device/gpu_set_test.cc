// What operations use of the GPUs that a process has opened: lanes, which are cancelled and used
// again, and memory, which is freed without holding up the caller.
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "tests/device/fixture.h"

namespace tutti {
namespace {

// Counts the calls of the driver that queue work or wait for it, and those that free.
class CountedDriver {
 public:
  explicit CountedDriver(const cuda::Driver& given) {
    calls = streams = frees = 0;
    if (given.init == original.init) return;  // A thread that frees may use it still.
    original = driver = given;
    driver.stream_create = [](auto made, auto flags) {
      return ++streams, original.stream_create(made, flags);
    };
    driver.stream_synchronize = [](auto stream) {
      return ++calls, original.stream_synchronize(stream);
    };
    driver.stream_write_value = [](auto stream, auto address, auto value, auto flags) {
      return ++calls, original.stream_write_value(stream, address, value, flags);
    };
    driver.memcpy_async = [](auto to, auto from, auto bytes, auto stream) {
      return ++calls, original.memcpy_async(to, from, bytes, stream);
    };
    count_frees();
  }

  static void await_frees(int count) {
    for (int seen = frees; seen < count; seen = frees) frees.wait(seen);
  }

  static inline std::atomic<int> calls;
  static inline std::atomic<int> streams;
  static inline std::atomic<int> frees;  // That have returned.
  static inline cuda::Driver driver;

 private:
  static cuda::Error freed(cuda::Error error) {
    ++frees;
    frees.notify_all();
    return error;
  }
  void count_frees() {
    driver.mem_free = [](auto at) { return freed(original.mem_free(at)); };
    driver.mem_free_host = [](auto at) { return freed(original.mem_free_host(at)); };
    driver.mem_host_unregister = [](auto at) { return freed(original.mem_host_unregister(at)); };
    driver.stream_destroy = [](auto stream) { return freed(original.stream_destroy(stream)); };
    driver.event_destroy = [](auto event) { return freed(original.event_destroy(event)); };
    driver.module_unload = [](auto module) { return freed(original.module_unload(module)); };
    driver.device_primary_ctx_release = [](auto device) {
      return freed(original.device_primary_ctx_release(device));
    };
  }

  static inline cuda::Driver original = {};
};

class GpuSetTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto loaded = cuda::load_driver(driver_library(GetParam()));
    if (!loaded.ok()) GTEST_SKIP() << "no CUDA device here: " << loaded.status().to_string();
    counted.emplace(**loaded);
    set.emplace(counted->driver, fault);
    gpu = *set->open(list_gpus(counted->driver)->front().uuid);
    words = *set->take_pinned(4096);
    std::memset(words.data, 0, words.bytes);
  }

  std::atomic<uint64_t>& word() { return *reinterpret_cast<std::atomic<uint64_t>*>(words.data); }
  // Where work of lanes writes: pinned memory, so that it can be read at once.
  float& result() { return *reinterpret_cast<float*>(words.data + 64); }

  // Queues: wait until the word is `value`, then store result = 1 + 2.
  void queue_sum(GpuSet::Lane& lane, uint64_t value) {
    auto* numbers = reinterpret_cast<float*>(words.data + 128);
    numbers[0] = 1;
    numbers[1] = 2;
    const Target target{&result(), Dtype::f32};
    const Operand sources[] = {{&numbers[0], Dtype::f32}, {&numbers[1], Dtype::f32}};
    ASSERT_TRUE(device().wait(*lane.stream, &word(), value).ok());
    ASSERT_TRUE(device().reduce(*lane.stream, {&target, 1}, sources, {.count = 1}).ok());
  }
  void finish(const GpuSet::Lane& lane) { EXPECT_TRUE(device().wait(*lane.stream).ok()); }
  Gpu& device() { return set->gpu(gpu); }

  // Lets a stream that is no lane's wait until let_go().
  void hold() {
    gate = *device().allocate_pinned(4096);
    std::memset(gate->data(), 0, 4096);
    held = *device().make_stream();
    ASSERT_TRUE(device().wait(*held, gate->data(), 1).ok());
  }
  void let_go() { reinterpret_cast<std::atomic<uint64_t>*>(gate->data())->store(1); }
  std::unique_ptr<Buffer> memory() { return *device().allocate(1000); }

  std::optional<CountedDriver> counted;
  const std::shared_ptr<GpuFault> fault = std::make_shared<GpuFault>();
  std::optional<GpuSet> set;
  int gpu = 0;
  GpuSet::Pinned words;
  std::unique_ptr<Buffer> gate;
  std::unique_ptr<Stream> held;
};

INSTANTIATE_TEST_SUITE_P(Gpus, GpuSetTest, testing::Values("cuda", "fake"), device_name);

// The driver might not answer before the GPU has done what it does now.
TEST_P(GpuSetTest, CancellingALaneAsksNothingOfTheDriver) {
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
  queue_sum(*lane, 1);
  const int calls = CountedDriver::calls;
  set->cancel(*lane);
  EXPECT_EQ(CountedDriver::calls, calls);
  word() = 1;
  finish(*lane);
  EXPECT_EQ(result(), 0);
  set->give_back(std::move(lane));
}

TEST_P(GpuSetTest, ALaneThatWasCancelledIsUsedAgain) {
  const int streams = CountedDriver::streams;
  for (uint64_t round = 1; round <= 20; ++round) {
    std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
    result() = 0;
    queue_sum(*lane, round);
    if (round % 2 == 1) set->cancel(*lane);
    word() = round;
    finish(*lane);
    EXPECT_EQ(result(), round % 2 == 1 ? 0 : 3);
    set->give_back(std::move(lane));
  }
  EXPECT_EQ(CountedDriver::streams, streams);
}

// To free, the driver waits for all streams: not on this thread, for whose ranks they wait.
// Where a driver waits for a stream to free memory, it lets no other thread queue work meanwhile,
// so a stream of a real one must not be held: there memory is freed when no lane is in use, at
// once.
TEST_P(GpuSetTest, FreeingMemoryHoldsUpNobody) {
  if (!is_fake_under_test() && GetParam() == "cuda") GTEST_SKIP() << "a real driver would hang";
  hold();
  for (int i = 0; i < 3; ++i) set->free_later(memory());
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
  queue_sum(*lane, 1);
  word() = 1;
  finish(*lane);
  EXPECT_EQ(result(), 3);
  set->give_back(std::move(lane));
  EXPECT_TRUE(!is_fake_under_test() || CountedDriver::frees == 0);
  let_go();
  CountedDriver::await_frees(3);
}

TEST_P(GpuSetTest, MemoryIsFreedOnceNoLaneIsInUse) {
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
  std::unique_ptr<GpuSet::Lane> other = *set->take_lane(gpu);
  std::atomic<bool> freed = false;
  set->free_later(std::shared_ptr<const void>(&freed, [&](const void*) { freed = true; }));
  set->free_later(memory());
  set->give_back(std::move(other));
  EXPECT_FALSE(freed);
  EXPECT_EQ(CountedDriver::frees, 0);
  set->give_back(std::move(lane));
  CountedDriver::await_frees(1);
  EXPECT_TRUE(freed);  // In the order in which they were given.
  EXPECT_TRUE(set->close());
}

TEST_P(GpuSetTest, ASetEndsThoughTheDriverWaits) {
  if (!is_fake_under_test()) GTEST_SKIP() << "not every driver waits";
  hold();
  set->free_later(memory());
  EXPECT_FALSE(set->close());
  EXPECT_EQ(CountedDriver::frees, 0);
  let_go();
  // The memory, four streams, two pieces of pinned memory, a module.
  CountedDriver::await_frees(8);
}

// Its stream may go on for ever, and the driver would wait for it.
TEST_P(GpuSetTest, AfterALaneWasAbandonedNothingIsFreed) {
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
  queue_sum(*lane, 1);
  set->free_later(memory());
  bool freed = false;
  set->abandon(std::move(lane), {std::shared_ptr<const void>(&freed, [&](auto) { freed = true; })});
  EXPECT_FALSE(set->close());
  EXPECT_FALSE(freed);
  EXPECT_EQ(CountedDriver::frees, 0);
  word() = 1;
}

// By the driver's documentation it does no more for this process; it might hang or crash.
TEST_P(GpuSetTest, AfterAFaultNothingIsFreed) {
  bool freed = false;
  const auto resource = [&] {
    return std::shared_ptr<const void>(&freed, [&](const void*) { freed = true; });
  };
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
  queue_sum(*lane, 1);
  set->cancel(*lane);
  set->free_later(resource());
  set->free_later(memory());
  fault->set("GPU 0 failed");
  set->give_back(std::move(lane));
  set->free_later(resource());
  EXPECT_FALSE(set->close());
  EXPECT_FALSE(freed);
  EXPECT_EQ(CountedDriver::frees, 0);
  word() = 1;
}

// To open one may take seconds, so it must not need the set's own thread.
TEST_P(GpuSetTest, AGpuIsOpenedOnAnyThread) {
  const std::vector<GpuName> names = *list_gpus(counted->driver);
  if (names.size() < 2) GTEST_SKIP() << "needs two GPUs";
  std::optional<Result<GpuSet::Opened>> opened;
  std::thread other([&] { opened = GpuSet::prepare(counted->driver, names[1].uuid, fault); });
  for (uint64_t round = 1; round <= 20; ++round) {
    std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
    queue_sum(*lane, round);
    word() = round;
    finish(*lane);
    set->give_back(std::move(lane));
  }
  other.join();
  EXPECT_EQ(set->find(cuda::text_of(names[1].uuid)), std::nullopt);
  ASSERT_TRUE(opened->ok()) << opened->status().to_string();
  const Result<int> number = set->add(**std::move(opened));
  if (!number.ok()) GTEST_SKIP() << number.status().to_string();
  EXPECT_EQ(set->find(cuda::text_of(names[1].uuid)), *number);
  EXPECT_EQ(*set->open(names[1].uuid), *number);
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(*number);
  EXPECT_TRUE(set->gpu(*number).wait(*lane->stream).ok());
  set->give_back(std::move(lane));
  EXPECT_TRUE(set->close());
}

// Freeing it, the driver may wait for all streams: not on this thread.
TEST_P(GpuSetTest, AGpuThatReachesNoOtherIsFreedBesideTheCaller) {
  if (!is_fake_under_test()) GTEST_SKIP() << "needs what only the fake driver does";
  const std::vector<GpuName> names = *list_gpus(counted->driver);
  setenv("FAKE_CUDA_NO_PEERS", "1", 1);
  std::unique_ptr<GpuSet::Lane> lane = *set->take_lane(gpu);
  const Result<int> number = set->open(names[1].uuid);
  unsetenv("FAKE_CUDA_NO_PEERS");
  EXPECT_EQ(number.status().code(), Code::unavailable);
  EXPECT_EQ(CountedDriver::frees, 0);
  set->give_back(std::move(lane));
  CountedDriver::await_frees(6);  // Four streams, a page of cancel words and a module.
  EXPECT_TRUE(set->open(names[1].uuid).ok());
}

}  // namespace
}  // namespace tutti
