// Operations on GPUs give the same bits as on the host, strategy by strategy, and wait for the
// ranks' streams; those are released whatever happens. Over the fake driver, and a GPU where there
// is one.
#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <optional>
#include <random>

#include "daemon/base/loop.h"
#include "daemon/board/board.h"
#include "daemon/engine/engine.h"
#include "tests/device/fixture.h"
#include "tests/support/await.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

constexpr uint64_t kDeviceSliceBytes = 64 * 1024;

struct Job {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 1000;
  int root = 0;
  Strategies strategies = {{StrategyKind::centralized}, {StrategyKind::tree, 2}};
  std::vector<std::vector<int>> hosts = {{0, 1, 2, 3}};
  bool in_place = false;
  uint64_t listed = 0;  // Values of each tensor of a list; 0: one tensor.
};

int ranks_of(const Job& job) {
  size_t ranks = 0;
  for (const auto& host : job.hosts) ranks += host.size();
  return static_cast<int>(ranks);
}

SideBytes sides_of(const Job& job, int rank) {
  return *side_bytes(job.collective, job.dtype, job.count, static_cast<uint32_t>(job.root),
                     {static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks_of(job))});
}

// Small numbers, so that no type overflows to a NaN, whose bits may differ.
Bytes input_of(const Job& job, int rank) {
  const size_t count = sides_of(job, rank).in / size_of(job.dtype);
  Bytes bytes(count * size_of(job.dtype));
  std::mt19937 random(static_cast<unsigned>(rank) * 7919 + 1);
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<int>(random() % 4000) - 2000;
    const float real = static_cast<float>(value) / 7;
    std::byte* to = bytes.data() + i * size_of(job.dtype);
    if (job.dtype == Dtype::f32) std::memcpy(to, &real, 4);
    if (job.dtype == Dtype::i32) std::memcpy(to, &value, 4);
    const double wide = real;
    if (job.dtype == Dtype::f64) std::memcpy(to, &wide, 8);
    if (job.dtype == Dtype::bf16) std::memcpy(to, reinterpret_cast<const char*>(&real) + 2, 2);
    if (job.dtype == Dtype::boolean) *to = static_cast<std::byte>(value % 3 == 0);
  }
  return bytes;
}

// "": none.
std::string difference(const Bytes& expected, const Bytes& found) {
  if (expected.size() != found.size()) return std::to_string(found.size()) + " bytes";
  std::string first;
  size_t count = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == found[i]) continue;
    if (count++ == 0)
      first = "byte " + std::to_string(i) + " is " + std::to_string(static_cast<int>(found[i])) +
              " instead of " + std::to_string(static_cast<int>(expected[i]));
  }
  return count == 0 ? "" : first + ", and " + std::to_string(count - 1) + " more differ";
}

// Hosts with an engine each on one loop. Where `gpus` are given, tensors are in their memory.
class Cluster {
 public:
  Cluster(const Job& job, const cuda::Driver* driver) : job_(job), device_(make_host_device()) {
    for (size_t host = 0; host < job.hosts.size(); ++host) {
      senders_.push_back(std::make_unique<LoopSender>(*this, static_cast<int>(host)));
      if (driver != nullptr) sets_.push_back(open_gpus(*driver));
      engines_.push_back(
          make_engine(*device_, {}, [this](auto task) { loop_.post(std::move(task)); }));
    }
    if (driver != nullptr) words_ = *sets_[0]->take_pinned(4096);
    if (driver != nullptr) std::memset(words_.data, 0, 4096);
    for (int rank = 0; rank < ranks_of(job); ++rank) place(rank);
  }

  // Starts the operation, or another one like it, on every host.
  void start(uint64_t number = 0) {
    for (size_t host = 0; host < job_.hosts.size(); ++host) {
      Operation operation = operation_of(static_cast<int>(host), number);
      engines_[host]->start(std::move(operation));
    }
  }

  void arrive(int rank, uint64_t number = 0) { word(rank, 0, number).store(2); }
  void take_back(int rank) { word(rank, 0).store(0); }
  bool is_released(int rank) { return word(rank, 1).load() != 0; }
  bool is_passed(int rank) { return word(rank, 2).load() == 2; }
  void cancel() {
    for (const auto& engine : engines_) engine->cancel({1, 0, 0}, deadline_exceeded("too late"));
  }
  Engine& engine(int host) { return *engines_[static_cast<size_t>(host)]; }

  // Runs the loop until all hosts have ended; the status of the first.
  Status await_end() {
    await_ends(1);
    return ended_.empty() ? internal_error("has not ended") : ended_.front();
  }
  void await_ends(size_t operations) {
    tutti::await(loop_, [&] { return ended_.size() == operations * job_.hosts.size(); });
  }
  // Handles what there is now.
  void turn() { loop_.run_once(Clock::now()); }
  bool has_ended() const { return !ended_.empty(); }

  Bytes output(int rank) {
    const RankMemory& memory = memory_[static_cast<size_t>(rank)];
    Bytes read(sides_of(job_, rank).out);
    if (sets_.empty()) {
      std::memcpy(read.data(), memory.out, read.size());
      return read;
    }
    Gpu& gpu = sets_[0]->gpu(memory.gpu);
    const std::unique_ptr<Stream> stream = *gpu.make_stream();
    EXPECT_TRUE(gpu.copy(*stream, read.data(), memory.out, read.size()).ok());
    EXPECT_TRUE(gpu.wait(*stream).ok());
    return read;
  }

 private:
  struct RankMemory {
    int gpu = -1;
    std::unique_ptr<Buffer> in_buffer, out_buffer;
    std::byte* in = nullptr;
    std::byte* out = nullptr;
  };

  struct LoopSender final : FrameSender {
    LoopSender(Cluster& its_cluster, int its_host) : cluster(its_cluster), host(its_host) {}
    Status send(const OpId&, int to, Outgoing frame) override {
      const auto bytes =
          std::make_shared<std::vector<std::byte>>(frame.bytes.begin(), frame.bytes.end());
      frame.header.payload_bytes = bytes->size();
      cluster.loop_.post([this, to, bytes, header = frame.header, free = frame.released] {
        Frame arrived{header, {{}, bytes}};
        if (!bytes->empty()) arrived.payload.fragments = {*bytes};
        EXPECT_TRUE(cluster.engine(to).on_frame(std::move(arrived)).ok());
        free();
      });
      return {};
    }
    Cluster& cluster;
    const int host;
  };

  static std::unique_ptr<GpuSet> open_gpus(const cuda::Driver& driver) {
    auto set = std::make_unique<GpuSet>(driver);
    const auto names = list_gpus(driver);
    for (const GpuName& name : *names) EXPECT_TRUE(set->open(name.uuid).ok());
    return set;
  }

  std::atomic<uint64_t>& word(int rank, int which, uint64_t number = 0) {
    const auto place = static_cast<int>(number) * ranks_of(job_) + rank;
    return reinterpret_cast<std::atomic<uint64_t>*>(words_.data)[place * 3 + which];
  }

  // Ranks take the GPUs in turn.
  void place(int rank) {
    RankMemory& memory = memory_.emplace_back();
    const SideBytes sides = sides_of(job_, rank);
    const Bytes input = input_of(job_, rank);
    Device* device = device_.get();
    if (!sets_.empty()) {
      memory.gpu = rank % static_cast<int>(sets_[0]->size());
      device = &sets_[0]->gpu(memory.gpu);
    }
    const bool one = job_.in_place || job_.collective == Collective::broadcast;
    const std::unique_ptr<Stream> stream = *device->make_stream();
    if (sides.in != 0 || one) {
      memory.in_buffer = *device->allocate(std::max(sides.in, sides.out));
      memory.in = memory.in_buffer->data();
      EXPECT_TRUE(device->copy(*stream, memory.in, input.data(), input.size()).ok());
    }
    if (one) {
      memory.out = memory.in;
    } else if (sides.out != 0) {
      memory.out_buffer = *device->allocate(sides.out);
      memory.out = memory.out_buffer->data();
    }
    EXPECT_TRUE(device->wait(*stream).ok());
    if (sides.in == 0) memory.in = nullptr;
    if (sides.out == 0) memory.out = nullptr;
  }

  Operation operation_of(int host, uint64_t number) {
    Operation operation;
    operation.id = {1, 0, number};
    operation.execution =
        make_execution_plan({job_.collective, job_.root, job_.strategies, job_.hosts}, host);
    operation.dtype = job_.dtype;
    operation.op = job_.op;
    operation.count = job_.count;
    operation.slice_bytes = kDeviceSliceBytes;
    operation.sender = senders_[static_cast<size_t>(host)].get();
    operation.gpus = sets_.empty() ? nullptr : sets_[static_cast<size_t>(host)].get();
    for (const int rank : job_.hosts[static_cast<size_t>(host)]) {
      const RankMemory& memory = memory_[static_cast<size_t>(rank)];
      RankBuffers buffers{rank, memory.in, memory.out};
      buffers.gpu = memory.gpu;
      if (!sets_.empty()) {
        buffers.words = {&word(rank, 0, number), &word(rank, 1, number), &word(rank, 2, number), 2};
        operation.memory.emplace_back(nullptr,
                                      [words = buffers.words](const void*) { words.pass(); });
      }
      if (job_.listed != 0) buffers.listed = list_of(buffers);
      operation.local.push_back(buffers);
    }
    operation.done = [this](const Status& status) { ended_.push_back(status); };
    return operation;
  }

  // Tensors that lie one behind the other.
  std::shared_ptr<const std::vector<ListedSides>> list_of(const RankBuffers& buffers) const {
    std::vector<ListedSides> sides;
    const uint64_t size = size_of(job_.dtype);
    for (uint64_t at = 0; at < job_.count; at += job_.listed)
      sides.push_back({at * size, std::min(job_.listed, job_.count - at) * size,
                       buffers.in + at * size, buffers.out + at * size});
    return std::make_shared<const std::vector<ListedSides>>(std::move(sides));
  }

  const Job job_;
  Loop loop_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<GpuSet>> sets_;  // By host; each opens the same GPUs.
  GpuSet::Pinned words_;
  std::vector<RankMemory> memory_;
  std::vector<Status> ended_;
  std::vector<std::unique_ptr<LoopSender>> senders_;
  std::vector<std::unique_ptr<Engine>> engines_;  // Destroyed first.
};

class DeviceTensorsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto loaded = cuda::load_driver(driver_library(GetParam()));
    if (!loaded.ok()) GTEST_SKIP() << "no CUDA device here: " << loaded.status().to_string();
    driver = *loaded;
  }

  void expect_same_bits(const Job& job) {
    Cluster on_host(job, nullptr);
    on_host.start();
    ASSERT_EQ(on_host.await_end().to_string(), "OK");
    Cluster on_gpus(job, driver);
    on_gpus.start();
    for (int rank = 0; rank < ranks_of(job); ++rank) on_gpus.arrive(rank);
    ASSERT_EQ(on_gpus.await_end().to_string(), "OK");
    for (int rank = 0; rank < ranks_of(job); ++rank) {
      EXPECT_EQ(difference(on_host.output(rank), on_gpus.output(rank)), "") << "rank " << rank;
      EXPECT_TRUE(on_gpus.is_released(rank));
      EXPECT_TRUE(on_gpus.is_passed(rank));
    }
  }

  const cuda::Driver* driver = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Gpus, DeviceTensorsTest, testing::Values("cuda", "fake"), device_name);

const std::vector<Strategy> kStrategies = {
    {StrategyKind::centralized}, {StrategyKind::tree, 2}, {StrategyKind::ring}};
const std::vector<std::vector<std::vector<int>>> kLayouts = {
    {{0}}, {{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{0, 1, 2}, {3}}};

TEST_P(DeviceTensorsTest, EveryStrategyLayoutAndSizeGivesTheBitsOfTheHost) {
  for (const auto& layout : kLayouts)
    for (const Strategy& strategy : kStrategies)
      for (const uint64_t count : {0, 1, 1000, 40'001})
        for (const Op op : {Op::sum, Op::mean}) {
          SCOPED_TRACE(std::to_string(layout.size()) + " hosts, " + to_string(strategy) + ", " +
                       std::to_string(count));
          expect_same_bits(
              {.op = op, .count = count, .strategies = {strategy, strategy}, .hosts = layout});
        }
}

TEST_P(DeviceTensorsTest, EveryCollectiveGivesTheBitsOfTheHost) {
  for (int collective = 0; collective < static_cast<int>(kCollectives); ++collective) {
    const auto which = static_cast<Collective>(collective);
    if (which == Collective::barrier) continue;
    for (const auto& layout : kLayouts)
      for (const Dtype dtype : {Dtype::bf16, Dtype::i32}) {
        SCOPED_TRACE(std::string(name_of(which)) + ", " + std::to_string(layout.size()) + " hosts");
        const int root = ranks_of({.hosts = layout}) - 1;
        expect_same_bits({.collective = which,
                          .dtype = dtype,
                          .count = 3001,
                          .root = root,
                          .strategies = {{StrategyKind::centralized}, {StrategyKind::ring}},
                          .hosts = layout});
      }
  }
}

TEST_P(DeviceTensorsTest, EveryOperationInPlace) {
  for (const Op op : {Op::sum, Op::min, Op::max, Op::prod})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::boolean})
      for (const auto& layout : kLayouts)
        expect_same_bits(
            {.dtype = dtype, .op = op, .count = 777, .hosts = layout, .in_place = true});
}

// Inner results of a strategy take the memory of one slice, however many there are.
TEST(DeviceTensorsMemory, InnerResultsOfAllSlicesShareTheirMemory) {
  if (!is_fake_under_test()) GTEST_SKIP() << "limits the fake driver's memory";
  const cuda::Driver& driver = **cuda::load_driver(driver_under_test());
  const Variable bytes("FAKE_CUDA_BYTES", "100663296");
  const Job job{.count = 1'000'000,
                .strategies = {{StrategyKind::tree, 2}, {StrategyKind::ring}},
                .hosts = {{0, 1, 2, 3}, {4}}};
  Cluster cluster(job, &driver);
  cluster.start();
  for (int rank = 0; rank < 5; ++rank) cluster.arrive(rank);
  EXPECT_EQ(cluster.await_end().to_string(), "OK");
}

// To wait costs a GPU some microseconds a rank.
TEST_P(DeviceTensorsTest, StreamsThatHaveArrivedAreNotWaitedFor) {
  static std::atomic<int> waits;
  static cuda::Driver original, counted;
  original = counted = *driver;
  counted.stream_wait_value = [](auto stream, auto address, auto value, auto flags) {
    return ++waits, original.stream_wait_value(stream, address, value, flags);
  };
  waits = 0;
  Cluster cluster({}, &counted);
  for (const int rank : {0, 1, 3}) cluster.arrive(rank);
  cluster.start();
  cluster.turn();
  EXPECT_EQ(waits, std::min(gpus_of(*driver), 4));  // A lane of each GPU, for rank 2.
  cluster.arrive(2);
  EXPECT_EQ(cluster.await_end().to_string(), "OK");
}

TEST_P(DeviceTensorsTest, NothingBeginsBeforeAllStreamsHaveArrived) {
  if (!is_fake_under_test() && GetParam() == "cuda")
    GTEST_SKIP() << "opens GPUs again beside a stream that waits: an H100's driver waits, too";
  Cluster cluster({}, driver);
  cluster.start();
  for (const int rank : {0, 1, 3}) cluster.arrive(rank);
  std::vector<std::unique_ptr<Cluster>> others;  // To free their memory waits for all streams.
  for (int i = 0; i < 3; ++i) {                  // They begin later and end meanwhile.
    others.push_back(std::make_unique<Cluster>(Job{.count = 100'000}, driver));
    others.back()->start();
    for (const int rank : {0, 1, 2, 3}) others.back()->arrive(rank);
    EXPECT_EQ(others.back()->await_end().to_string(), "OK");
    cluster.turn();
  }
  EXPECT_FALSE(cluster.has_ended());
  EXPECT_FALSE(cluster.is_released(0));
  EXPECT_FALSE(cluster.is_passed(0));
  EXPECT_EQ(cluster.engine(0).blocker({1, 0, 0}).rank, 2);
  cluster.arrive(2);
  EXPECT_EQ(cluster.await_end().to_string(), "OK");
}

// Ranks whose streams wait for an earlier operation are not to blame for later ones.
TEST_P(DeviceTensorsTest, WhoHoldsUpAnEarlierOperationIsNamedForLaterOnes) {
  Cluster cluster({}, driver);
  cluster.start();
  for (const int rank : {0, 1, 3}) cluster.arrive(rank);
  cluster.start(1);
  cluster.arrive(3, 1);
  cluster.turn();
  EXPECT_EQ(cluster.engine(0).blocker({1, 0, 1}).rank, 2) << "not 0, which waits for rank 2";
  cluster.arrive(2);
  cluster.await_ends(1);
  EXPECT_EQ(cluster.engine(0).blocker({1, 0, 1}).rank, 0);
  for (const int rank : {0, 1, 2}) cluster.arrive(rank, 1);
  cluster.await_ends(2);
}

// A stream takes some 1,000 commands; adding more waits for it, which the loop must not.
TEST_P(DeviceTensorsTest, AListLongerThanAStreamsQueueDoesNotBlockTheLoop) {
  for (const auto& layout : kLayouts) {
    const Job job{.count = 9'000, .hosts = layout, .listed = 3};
    Cluster on_host({.count = 9'000, .hosts = layout}, nullptr);
    on_host.start();
    ASSERT_EQ(on_host.await_end().to_string(), "OK");
    Cluster on_gpus(job, driver);
    on_gpus.start();
    on_gpus.turn();  // No stream has arrived.
    for (int rank = 0; rank < ranks_of(job); ++rank) on_gpus.arrive(rank);
    ASSERT_EQ(on_gpus.await_end().to_string(), "OK");
    for (int rank = 0; rank < ranks_of(job); ++rank)
      EXPECT_EQ(difference(on_host.output(rank), on_gpus.output(rank)), "") << "rank " << rank;
  }
}

TEST_P(DeviceTensorsTest, AnOperationThatIsCancelledReleasesStreamsAndWritesNothing) {
  for (const auto& layout : kLayouts) {
    const Job job{.hosts = layout, .in_place = true};
    Cluster cluster(job, driver);
    cluster.start();
    for (int rank = 1; rank < ranks_of(job); ++rank) cluster.arrive(rank);
    cluster.turn();
    cluster.cancel();
    EXPECT_EQ(cluster.await_end().to_string(), "DEADLINE_EXCEEDED: too late");
    for (int rank = 0; rank < ranks_of(job); ++rank) {
      EXPECT_TRUE(cluster.is_released(rank));
      EXPECT_TRUE(cluster.is_passed(rank));
      EXPECT_EQ(cluster.output(rank), input_of(job, rank));
    }
  }
}

// What streams are given from now on waits until the gate opens.
class GatedDriver {
 public:
  explicit GatedDriver(const cuda::Driver& given) : driver(given) {
    wait_value = given.stream_wait_value;
    host_func = given.launch_host_func;
    gate.emplace(1);
    driver.stream_wait_value = [](auto stream, auto address, auto value, auto flags) {
      host_func(
          stream, [](void*) { gate->wait(); }, nullptr);
      return wait_value(stream, address, value, flags);
    };
  }
  static void open() { gate->count_down(); }

  cuda::Driver driver;

 private:
  static inline decltype(cuda::Driver::stream_wait_value) wait_value;
  static inline decltype(cuda::Driver::launch_host_func) host_func;
  static inline std::optional<std::latch> gate;
};

// A rank that takes back the word by which cancel() lets the lanes go on holds them no longer than
// until the engine is asked to settle.
TEST_P(DeviceTensorsTest, ARankThatTakesItsWordBackHoldsNoLane) {
  GatedDriver gated(*driver);
  Cluster cluster({.hosts = {{0}}}, &gated.driver);
  cluster.start();
  cluster.cancel();
  EXPECT_TRUE(cluster.engine(0).settle());
  cluster.take_back(0);
  GatedDriver::open();
  tutti::await([&] {
    cluster.turn();
    return !cluster.engine(0).settle();
  });
  EXPECT_TRUE(cluster.has_ended());
  EXPECT_EQ(cluster.await_end().to_string(), "DEADLINE_EXCEEDED: too late");
}

// The engine may be destroyed at any time.
TEST_P(DeviceTensorsTest, AnEngineThatEndsMeanwhileReleasesStreams) {
  Cluster cluster({}, driver);
  cluster.start();
  cluster.arrive(1);
}

}  // namespace
}  // namespace tutti
