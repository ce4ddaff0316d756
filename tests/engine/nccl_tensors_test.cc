// Operations whose hosts exchange values by NCCL, over the fake driver and the fake NCCL: values,
// the order of streams and of operations, and what happens to those that end before their time.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "daemon/base/loop.h"
#include "daemon/engine/engine.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

constexpr uint64_t kByLinks = 1;  // Agreements.
constexpr uint64_t kByNccl = 2;
using Layout = std::vector<std::vector<int>>;

struct NcclJob {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 1000;
  int root = 0;
  int stream = 0;                     // Of each rank; its operations have outputs of their own.
  std::vector<double> factors = {};   // By rank, of premul_sum.
  std::vector<uint64_t> listed = {};  // Values of each tensor of a list; empty: one tensor.
};

constexpr size_t kOutputBytes = 1024;  // Of a stream, where there are several.
// The list's tensors lie with gaps between them.
constexpr uint64_t kGapBytes = 64;

// Hosts with an engine each on one loop, all of whose ranks have an input and an output on GPU 0.
class NcclCluster {
 public:
  explicit NcclCluster(Layout hosts, uint64_t bytes = 1 << 16)
      : hosts_(std::move(hosts)), driver_(**cuda::load_driver(TUTTI_FAKE_CUDA)), bytes_(bytes) {
    for (size_t host = 0; host < hosts_.size(); ++host) add_host(static_cast<int>(host));
    for (const auto& ranks : hosts_) ranks_ += static_cast<int>(ranks.size());
    words_ = *sets_[0]->take_pinned(4096);
    std::memset(words_.data, 0, 4096);
    for (int rank = 0; rank < 2 * ranks_; ++rank) memory_.push_back(*gpu().allocate(bytes));
    make_communicators();
  }

  int ranks() const { return ranks_; }
  Engine& engine(int host) { return *engines_[static_cast<size_t>(host)]; }
  NcclLink& link(int host) { return *links_[static_cast<size_t>(host)]; }

  template <class T>
  void write(int rank, const std::vector<T>& values) {
    copy(input(rank), values.data(), values.size() * sizeof(T));
    std::vector<std::byte> nothing(bytes_);
    copy(output(rank), nothing.data(), nothing.size());
  }
  template <class T>
  std::vector<T> read(int rank, size_t count, size_t stream = 0) {
    std::vector<T> values(count);
    copy(values.data(), output(rank, stream), count * sizeof(T));
    return values;
  }

  void start(int host, uint64_t seq, const NcclJob& job, bool by_nccl = true) {
    engine(host).start(operation_of(host, seq, job, by_nccl));
  }
  void start(uint64_t seq, const NcclJob& job) {
    for (size_t host = 0; host < hosts_.size(); ++host) start(static_cast<int>(host), seq, job);
  }
  void arrive(int rank, uint64_t seq, int stream = 0) {
    word(rank, 0, stream).store(value_of(seq));
  }
  bool has_arrived(int rank, uint64_t seq) { return word(rank, 0).load() >= value_of(seq); }
  void arrive_all(uint64_t seq) {
    for (int rank = 0; rank < ranks_; ++rank) arrive(rank, seq);
  }
  bool is_released(int rank, uint64_t seq) { return word(rank, 1).load() >= value_of(seq); }

  void await(const std::function<bool()>& done) { tutti::await(loop_, done); }
  // The status with which the host's operation ended.
  Status await_end(int host, uint64_t seq) {
    await([&] {
      engine(host).settle();  // As a worker does from time to time.
      return ended_.contains({host, seq});
    });
    return ended_[{host, seq}];
  }
  void await_all(uint64_t seq) {
    for (size_t host = 0; host < hosts_.size(); ++host)
      EXPECT_EQ(await_end(static_cast<int>(host), seq).to_string(), "OK");
  }
  bool has_ended(int host, uint64_t seq) const { return ended_.contains({host, seq}); }
  void run(uint64_t seq, const NcclJob& job) {
    start(seq, job);
    arrive_all(seq);
    await_all(seq);
  }
  void turn() { loop_.run_once(Clock::now()); }
  void turn_for(Millis span) {
    bool is_over = false;
    loop_.at(Clock::now() + span, [&] { is_over = true; });
    await([&] { return is_over; });
  }
  void abort(int host) {
    engine(host).abort(1, unavailable("over"));
    link(host).communicator.abort();
  }
  // Whether no GPU works for the engine any more once it is gone.
  bool end_engine(int host) {
    engines_[static_cast<size_t>(host)].reset();
    return sets_[static_cast<size_t>(host)]->close();
  }
  const std::vector<Status>& failures() const { return failures_; }

 private:
  struct LoopSender final : FrameSender {
    LoopSender(NcclCluster& its_cluster, int its_host) : cluster(its_cluster), host(its_host) {}
    Status send(const OpId&, int to, Outgoing frame) override {
      const bool by_nccl = frame.header.agreement == kByNccl;
      EXPECT_TRUE(frame.bytes.empty() || !by_nccl);
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
    NcclCluster& cluster;
    const int host;
  };

  void add_host(int host) {
    senders_.push_back(std::make_unique<LoopSender>(*this, host));
    sets_.push_back(std::make_unique<GpuSet>(driver_));
    EXPECT_TRUE(sets_.back()->open(list_gpus(driver_)->front().uuid).ok());
    engines_.push_back(
        make_engine(*device_, {}, [this](auto task) { loop_.post(std::move(task)); }));
    links_.push_back(std::make_shared<NcclLink>(
        nccl::CommunicatorParts{.loop = loop_, .library = TUTTI_FAKE_NCCL, .on_hang = nullptr}));
    links_.back()->gpu = 0;
    links_.back()->on_refused =
        links_.back()->on_failed = [this](const Status& status) { failures_.push_back(status); };
  }
  void make_communicators() {
    size_t made = 0;
    std::optional<nccl::UniqueId> id;
    for (const auto& link : links_)
      link->communicator.load([&](const Result<int>& version) { made += version.ok(); });
    await([&] { return made == links_.size(); });
    links_[0]->communicator.make_id([&](const Result<nccl::UniqueId>& given) { id = *given; });
    await([&] { return id.has_value(); });
    for (size_t host = 0; host < links_.size(); ++host)
      links_[host]->communicator.begin(
          *id, {&driver_, gpu().context(), static_cast<int>(links_.size()), static_cast<int>(host)},
          [&](const Status& status) { made += status.ok(); },
          [this](const Status& status) { failures_.push_back(status); });
    await([&] { return made == 2 * links_.size(); });
  }

  Gpu& gpu() { return sets_[0]->gpu(0); }
  std::byte* input(int rank) { return memory_[static_cast<size_t>(rank)]->data(); }
  std::byte* output(int rank, size_t stream = 0) {
    return memory_[static_cast<size_t>(ranks_ + rank)]->data() + stream * kOutputBytes;
  }
  void copy(void* to, const void* from, size_t bytes) {
    const std::unique_ptr<Stream> stream = *gpu().make_stream();
    EXPECT_TRUE(gpu().copy(*stream, to, from, bytes).ok());
    EXPECT_TRUE(gpu().wait(*stream).ok());
  }
  static uint64_t value_of(uint64_t seq) { return 2 * (seq + 1); }
  std::atomic<uint64_t>& word(int rank, int which, int stream = 0) {
    return reinterpret_cast<std::atomic<uint64_t>*>(words_.data)[(rank + 10 * stream) * 3 + which];
  }

  Operation operation_of(int host, uint64_t seq, const NcclJob& job, bool by_nccl) {
    Operation operation;
    operation.id = {1, 0, seq};
    operation.execution = make_execution_plan(
        {job.collective, job.root, {{StrategyKind::centralized}, {StrategyKind::ring}}, hosts_},
        host);
    operation.dtype = job.dtype;
    operation.op = job.op;
    operation.count = job.count;
    operation.slice_bytes = 1 << 16;
    operation.agreement = by_nccl ? kByNccl : kByLinks;
    operation.sender = senders_[static_cast<size_t>(host)].get();
    operation.gpus = sets_[static_cast<size_t>(host)].get();
    if (by_nccl) operation.nccl = links_[static_cast<size_t>(host)];
    for (const int rank : hosts_[static_cast<size_t>(host)]) {
      RankBuffers buffers{rank, input(rank), output(rank, static_cast<size_t>(job.stream))};
      if (job.collective == Collective::broadcast) buffers.out = input(rank);
      buffers.gpu = 0;
      if (!job.factors.empty()) buffers.factor = job.factors[static_cast<size_t>(rank)];
      if (!job.listed.empty()) buffers.listed = list_of(job, buffers);
      buffers.words = {&word(rank, 0, job.stream), &word(rank, 1, job.stream),
                       &word(rank, 2, job.stream), value_of(seq)};
      operation.memory.emplace_back(nullptr,
                                    [words = buffers.words](const void*) { words.pass(); });
      operation.local.push_back(buffers);
    }
    operation.mismatch = [this, seq](int) {  // As the leader does.
      loop_.post([this, seq] {
        for (const auto& engine : engines_)
          engine->cancel({1, 0, seq}, failed_precondition("they disagree"));
      });
    };
    operation.done = [this, host, seq](const Status& status) { ended_[{host, seq}] = status; };
    return operation;
  }

  static std::shared_ptr<const std::vector<ListedSides>> list_of(const NcclJob& job,
                                                                 const RankBuffers& buffers) {
    std::vector<ListedSides> sides;
    uint64_t begin = 0;
    for (const uint64_t values : job.listed) {
      const uint64_t bytes = values * size_of(job.dtype);
      const uint64_t at = begin + sides.size() * kGapBytes;
      sides.push_back({begin, bytes, buffers.in + at, buffers.out + at});
      begin += bytes;
    }
    return std::make_shared<const std::vector<ListedSides>>(std::move(sides));
  }

  const Layout hosts_;
  const cuda::Driver& driver_;
  const uint64_t bytes_;
  int ranks_ = 0;
  Loop loop_;
  std::unique_ptr<Device> device_ = make_host_device();
  std::vector<std::unique_ptr<GpuSet>> sets_;  // By host; all on one GPU.
  GpuSet::Pinned words_;
  std::vector<std::unique_ptr<Buffer>> memory_;
  std::map<std::pair<int, uint64_t>, Status> ended_;
  std::vector<Status> failures_;
  std::vector<std::unique_ptr<LoopSender>> senders_;
  std::vector<std::shared_ptr<NcclLink>> links_;
  std::vector<std::unique_ptr<Engine>> engines_;  // Destroyed first.
};

const Layout kNcclLayouts[] = {{{0}, {1}}, {{0, 1, 2}, {3}}, {{0, 1}, {2, 3}, {4}}};

template <class T>
void expect_all(NcclCluster& cluster, uint64_t seq, const NcclJob& job, T result) {
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    cluster.write(rank, std::vector<T>(job.count, static_cast<T>(rank + 1)));
  cluster.run(seq, job);
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    EXPECT_EQ(cluster.read<T>(rank, job.count), std::vector<T>(job.count, result));
}

TEST(NcclTensors, AllReduceOfEveryKind) {
  for (const Layout& layout : kNcclLayouts) {
    NcclCluster cluster(layout);
    const int n = cluster.ranks();
    const int sum = n * (n + 1) / 2;
    int factorial = 1;
    for (int i = 2; i <= n; ++i) factorial *= i;
    expect_all<float>(cluster, 0, {}, static_cast<float>(sum));
    expect_all<float>(cluster, 1, {.op = Op::mean}, static_cast<float>(sum) / n);
    expect_all<double>(cluster, 2, {.dtype = Dtype::f64, .op = Op::prod}, factorial);
    expect_all<int>(cluster, 3, {.dtype = Dtype::i32, .op = Op::max}, n);
    expect_all<uint8_t>(cluster, 4, {.dtype = Dtype::u8, .op = Op::min}, 1);
    expect_all<int64_t>(cluster, 5, {.dtype = Dtype::i64, .count = 1}, sum);
  }
}

TEST(NcclTensors, ReduceAndBroadcastOfEveryRoot) {
  for (const Layout& layout : kNcclLayouts) {
    NcclCluster cluster(layout);
    const int n = cluster.ranks();
    uint64_t seq = 0;
    for (int root = 0; root < n; ++root) {
      for (int rank = 0; rank < n; ++rank) cluster.write(rank, std::vector<int>(100, rank + 1));
      cluster.run(seq++, {Collective::reduce, Dtype::i32, Op::sum, 100, root});
      for (int rank = 0; rank < n; ++rank)
        EXPECT_EQ(cluster.read<int>(rank, 100),
                  std::vector<int>(100, rank == root ? n * (n + 1) / 2 : 0));
      cluster.run(seq++, {Collective::broadcast, Dtype::boolean, Op::sum, 400, root});
      cluster.run(seq++, {.dtype = Dtype::i32, .op = Op::max, .count = 100});
      EXPECT_EQ(cluster.read<int>(0, 100), std::vector<int>(100, root + 1));
    }
  }
}

// Halves are rounded once for each host, and by NCCL: 2048 + 1 is 2048 there.
TEST(NcclTensors, HalvesAreNcclsOwn) {
  constexpr uint16_t k2048 = 0x6800;
  constexpr uint16_t kOne = 0x3c00;
  NcclCluster cluster({{0}, {1, 2}});
  cluster.write(0, std::vector<uint16_t>(10, k2048));
  cluster.write(1, std::vector<uint16_t>(10, kOne));
  cluster.write(2, std::vector<uint16_t>(10, kOne));
  cluster.run(0, {.dtype = Dtype::f16, .count = 10});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(cluster.read<uint16_t>(rank, 10), std::vector<uint16_t>(10, k2048 + 1));
}

// The sum of three is no finite 16-bit float.
TEST(NcclTensors, TheMeanOfLargeHalvesIsFinite) {
  constexpr uint16_t k30000 = 0x7753;
  NcclCluster cluster({{0}, {1, 2}});
  for (int rank = 0; rank < 3; ++rank) cluster.write(rank, std::vector<uint16_t>(10, k30000));
  cluster.run(0, {.dtype = Dtype::f16, .op = Op::mean, .count = 10});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(cluster.read<uint16_t>(rank, 10), std::vector<uint16_t>(10, k30000));
}

// Each host multiplies what its ranks give; NCCL sums.
TEST(NcclTensors, EachInputIsMultipliedByItsRanksFactor) {
  NcclCluster cluster({{0}, {1, 2}});
  for (int rank = 0; rank < 3; ++rank) cluster.write(rank, std::vector<float>(100, rank + 1.0F));
  cluster.run(0, {.op = Op::premul_sum, .count = 100, .factors = {0.5, 2, -1}});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(cluster.read<float>(rank, 100), std::vector<float>(100, 0.5F + 4 - 3));
}

// Rank by rank, the values of a list of 3, 1 and 96, with gaps between them that nothing touches.
TEST(NcclTensors, TheTensorsOfAListAreReducedWhereTheyLie) {
  const std::vector<uint64_t> listed = {3, 1, 96};
  constexpr uint64_t kGap = kGapBytes / sizeof(float);
  NcclCluster cluster({{0, 1}, {2}});
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<float> values(100 + 2 * kGap);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * (rank + 1));
    cluster.write(rank, values);
  }
  cluster.run(0, {.count = 100, .listed = listed});
  std::vector<float> expected(100 + 2 * kGap);
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool is_gap = (i >= 3 && i < 3 + kGap) || (i >= 4 + kGap && i < 4 + 2 * kGap);
    if (!is_gap) expected[i] = static_cast<float>(6 * i);
  }
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(cluster.read<float>(rank, expected.size()), expected);
}

// A piece takes 32 MiB.
TEST(NcclTensors, ATensorOfSeveralPieces) {
  constexpr uint64_t kCount = (uint64_t{20} << 20) + 7;
  NcclCluster cluster({{0}, {1}}, kCount * sizeof(float));
  std::vector<float> input(kCount);
  for (size_t i = 0; i < kCount; ++i) input[i] = static_cast<float>(i % 1000);
  for (int rank = 0; rank < 2; ++rank) cluster.write(rank, input);
  cluster.run(0, {.count = kCount});
  for (float& value : input) value *= 2;
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(cluster.read<float>(rank, kCount) == input);
}

TEST(NcclTensors, NothingBeginsBeforeTheStreamsHaveArrived) {
  NcclCluster cluster({{0, 1}, {2}});
  for (int rank = 0; rank < 3; ++rank) cluster.write(rank, std::vector<float>(10, 1));
  cluster.start(0, {.count = 10});
  for (const int rank : {0, 2}) cluster.arrive(rank, 0);
  cluster.await([&] { return cluster.engine(0).blocker({1, 0, 0}).what == "the input of rank 1"; });
  EXPECT_EQ(cluster.engine(0).blocker({1, 0, 0}).rank, 1);
  EXPECT_FALSE(cluster.is_released(0, 0));
  EXPECT_FALSE(cluster.is_released(2, 0));
  cluster.arrive(1, 0);
  cluster.await_all(0);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(cluster.is_released(rank, 0));
}

// Hosts start in one order; streams arrive in another one on each host.
TEST(NcclTensors, ManyOperationsLaunchInTheOrderOfTheirNumbers) {
  constexpr uint64_t kOps = 20;
  NcclCluster cluster({{0}, {1}, {2}});
  for (int rank = 0; rank < 3; ++rank) cluster.write(rank, std::vector<int>(100, rank));
  for (const int host : {2, 0, 1})
    for (uint64_t seq = 0; seq < kOps; ++seq)
      cluster.start(host, seq, {.dtype = Dtype::i32, .count = 100});
  for (uint64_t seq = 0; seq < kOps; ++seq)
    for (int rank = 0; rank < 3; ++rank) cluster.arrive(rank, seq);
  for (uint64_t seq = 0; seq < kOps; ++seq) cluster.await_all(seq);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(cluster.read<int>(rank, 100), std::vector<int>(100, 3));
}

// The streams of one host reach the second operation before the first.
TEST(NcclTensors, WorkOfSeveralStreamsIsDoneInTheSameOrderEverywhere) {
  NcclCluster cluster(Layout{{0}, {1}});
  const NcclJob sum{.dtype = Dtype::i32, .count = 100};
  const NcclJob most{.dtype = Dtype::i32, .op = Op::max, .count = 100, .stream = 1};
  for (int round = 0; round < 10; ++round) {
    const uint64_t seq = 2 * static_cast<uint64_t>(round);
    for (int rank = 0; rank < 2; ++rank) cluster.write(rank, std::vector<int>(100, rank + 5));
    cluster.start(seq, sum);
    cluster.start(seq + 1, most);
    cluster.arrive(0, seq + 1, 1);
    cluster.arrive(1, seq);
    for (int i = 0; i < 100; ++i) cluster.turn();
    cluster.arrive(0, seq);
    cluster.arrive(1, seq + 1, 1);
    cluster.await_all(seq);
    cluster.await_all(seq + 1);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(cluster.read<int>(rank, 100), std::vector<int>(100, 11)) << round;
      ASSERT_EQ(cluster.read<int>(rank, 100, 1), std::vector<int>(100, 6)) << round;
    }
  }
}

TEST(NcclTensors, HostsThatDisagreeOnTheLinkAreNotifiedAndNobodyHangs) {
  NcclCluster cluster(Layout{{0}, {1}});
  cluster.start(0, 0, {});
  cluster.start(1, 0, {}, false);
  cluster.arrive_all(0);
  for (int host = 0; host < 2; ++host)
    EXPECT_EQ(cluster.await_end(host, 0).message(), "they disagree");
  EXPECT_TRUE(cluster.is_released(0, 0));
  expect_all<float>(cluster, 1, {}, 3);  // The next one does not wait for it.
}

TEST(NcclTensors, AnOperationThatIsCancelledWritesNothing) {
  NcclCluster cluster(Layout{{0}, {1}});
  for (int rank = 0; rank < 2; ++rank) cluster.write(rank, std::vector<float>(10, 1));
  cluster.start(0, {.count = 10});
  cluster.arrive(0, 0);
  for (int i = 0; i < 20; ++i) cluster.turn();
  for (int host = 0; host < 2; ++host) cluster.abort(host);
  for (int host = 0; host < 2; ++host)
    EXPECT_EQ(cluster.await_end(host, 0).to_string(), "UNAVAILABLE: over");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(cluster.is_released(rank, 0));
    EXPECT_EQ(cluster.read<float>(rank, 10), std::vector<float>(10, 0));
  }
}

// The other host has started it, and is gone before its stream arrives.
TEST(NcclTensors, AnEndWhileNcclWaitsForAPeerReleasesStreams) {
  NcclCluster cluster(Layout{{0}, {1}});
  for (int rank = 0; rank < 2; ++rank) cluster.write(rank, std::vector<float>(10, 1));
  cluster.start(0, {.count = 10});
  cluster.arrive(0, 0);
  cluster.await([&] { return cluster.engine(0).blocker({1, 0, 0}).what == "work of GPUs"; });
  cluster.abort(0);
  EXPECT_EQ(cluster.await_end(0, 0).to_string(), "UNAVAILABLE: over");
  EXPECT_TRUE(cluster.is_released(0, 0));
  EXPECT_EQ(cluster.read<float>(0, 10), std::vector<float>(10, 0));
  cluster.abort(1);
  EXPECT_EQ(cluster.await_end(1, 0).to_string(), "UNAVAILABLE: over");
}

// The stream of rank 2 has not reached it when its host gives it up. If it goes on, for its host or
// of itself, before NCCL's work is aborted, it must not give the others what is no sum.
void give_up_on_one_host(bool arrives_late) {
  NcclCluster cluster(Layout{{0}, {1}, {2}});
  for (int rank = 0; rank < 3; ++rank) cluster.write(rank, std::vector<float>(10, 1));
  cluster.start(0, {.count = 10});
  for (const int rank : {0, 1}) cluster.arrive(rank, 0);
  for (int host = 0; host < 3; ++host)
    cluster.await([&] { return cluster.link(host).last != nullptr; });  // NCCL has its work.
  cluster.engine(2).abort(1, unavailable("over"));
  EXPECT_FALSE(cluster.has_arrived(2, 0));
  if (arrives_late) cluster.arrive(2, 0);
  cluster.turn_for(Millis(200));  // Time enough for a wrong sum.
  cluster.link(2).communicator.abort();
  EXPECT_EQ(cluster.await_end(2, 0).to_string(), "UNAVAILABLE: over");
  EXPECT_TRUE(cluster.is_released(2, 0));
  for (const int host : {0, 1}) {
    EXPECT_FALSE(cluster.has_ended(host, 0));
    cluster.abort(host);
    EXPECT_EQ(cluster.await_end(host, 0).to_string(), "UNAVAILABLE: over");
    EXPECT_EQ(cluster.read<float>(host, 10), std::vector<float>(10, 0));
  }
}

TEST(NcclTensors, AHostThatGivesUpGivesTheOthersNoResult) { give_up_on_one_host(false); }

TEST(NcclTensors, AStreamThatArrivesAfterItsHostGaveUpGivesNoneEither) {
  give_up_on_one_host(true);
}

TEST(NcclTensors, AnEngineThatEndsLeavesNothingBehindAShutGate) {
  NcclCluster cluster(Layout{{0}, {1}});
  cluster.start(0, {.count = 10});
  cluster.arrive(0, 0);
  for (int host = 0; host < 2; ++host)
    cluster.await([&] { return cluster.link(host).last != nullptr; });  // NCCL has its work.
  EXPECT_TRUE(cluster.end_engine(1));
  cluster.abort(0);
  EXPECT_EQ(cluster.await_end(0, 0).to_string(), "UNAVAILABLE: over");
}

TEST(NcclTensors, WorkThatNcclRefusesIsReportedAndEndsWithTheEpoch) {
  const TemporaryDirectory directory;
  const Variable faults("FAKE_NCCL_FAULTS", directory / "faults");
  NcclCluster cluster(Layout{{0}, {1}});
  std::ofstream(directory / "faults") << "launch_fails 0" << std::endl;
  cluster.start(0, {});
  cluster.arrive_all(0);
  cluster.await([&] { return !cluster.failures().empty(); });
  EXPECT_EQ(cluster.failures()[0].message(), "work was not queued: internal error (NCCL)");
  cluster.engine(0).settle();
  EXPECT_FALSE(cluster.has_ended(0, 0));
  for (int host = 0; host < 2; ++host) cluster.abort(host);
  for (int host = 0; host < 2; ++host)
    EXPECT_EQ(cluster.await_end(host, 0).to_string(), "UNAVAILABLE: over");
}

}  // namespace
}  // namespace tutti
