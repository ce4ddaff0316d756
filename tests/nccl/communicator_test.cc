// Communicators over the fake NCCL and the fake driver: what they compute, the order of streams,
// and how they fail and end without ever keeping the loop waiting.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "daemon/nccl/library.h"
#include "daemon/nccl/nccl.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti::nccl {
namespace {

constexpr Millis kPatience{60'000};
constexpr int kGpus = 2;

// One host of a communicator: its GPU, a stream, and a tensor there.
class Host {
 public:
  Host(const cuda::Driver& driver, int index, size_t bytes) : driver_(driver), bytes_(bytes) {
    EXPECT_EQ(driver.device_primary_ctx_retain(&context_, index % kGpus), cuda::kSuccess);
    const cuda::Current current(driver, context_);
    EXPECT_EQ(driver.stream_create(&stream_, cuda::kStreamNonBlocking), cuda::kSuccess);
    EXPECT_EQ(driver.mem_alloc(&memory_, bytes), cuda::kSuccess);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() {
    const cuda::Current current(driver_, context_);
    driver_.stream_destroy(stream_);
    driver_.mem_free(memory_);
  }

  cuda::Context context() const { return context_; }
  cuda::Stream stream() const { return stream_; }
  std::byte* memory() const { return reinterpret_cast<std::byte*>(memory_); }
  template <class T>
  void write(const std::vector<T>& values) {
    const cuda::Current current(driver_, context_);
    ASSERT_LE(values.size() * sizeof(T), bytes_);
    driver_.memcpy_async(memory_, reinterpret_cast<cuda::Pointer>(values.data()),
                         values.size() * sizeof(T), stream_);
    driver_.stream_synchronize(stream_);
  }
  template <class T>
  std::vector<T> read(size_t count) {
    std::vector<T> values(count);
    const cuda::Current current(driver_, context_);
    driver_.memcpy_async(reinterpret_cast<cuda::Pointer>(values.data()), memory_, count * sizeof(T),
                         stream_);
    driver_.stream_synchronize(stream_);
    return values;
  }
  // The stream waits until the word is 1.
  uint64_t* hold() {
    const cuda::Current current(driver_, context_);
    void* word = nullptr;
    driver_.mem_host_alloc(&word, sizeof(uint64_t), cuda::kHostPortable);
    std::memset(word, 0, sizeof(uint64_t));
    driver_.stream_wait_value(stream_, reinterpret_cast<cuda::Pointer>(word), 1,
                              cuda::kWaitGreaterOrEqual);
    return static_cast<uint64_t*>(word);
  }
  bool is_idle() {
    const cuda::Current current(driver_, context_);
    return driver_.stream_query(stream_) == cuda::kSuccess;
  }

 private:
  const cuda::Driver& driver_;
  const size_t bytes_;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  cuda::Pointer memory_ = 0;
};

class CommunicatorTest : public ::testing::Test {
 protected:
  ~CommunicatorTest() override {
    hosts_.clear();
    communicators_.clear();
    await([this] { return *parts_.running == expected_to_hang_; });
  }

  void set_fault(const std::string& line) const {
    std::ofstream(directory_ / "faults", std::ios::app) << line << std::endl;
  }
  void await(const std::function<bool()>& done) { tutti::await(loop_, done); }
  Result<int> load(Communicator& communicator) {
    std::optional<Result<int>> version;
    communicator.load([&](Result<int> loaded) { version = std::move(loaded); });
    await([&] { return version.has_value(); });
    return *version;
  }
  Result<UniqueId> make_id(Communicator& communicator) {
    std::optional<Result<UniqueId>> id;
    communicator.make_id([&](Result<UniqueId> made) { id = std::move(made); });
    await([&] { return id.has_value(); });
    return *id;
  }

  // Communicators of that many hosts, each loaded.
  void add_hosts(int count, size_t bytes = 1 << 20) {
    for (int host = 0; host < count; ++host) {
      hosts_.push_back(std::make_unique<Host>(driver_, host, bytes));
      communicators_.push_back(std::make_unique<Communicator>(parts_));
      ASSERT_TRUE(load(*communicators_.back()).ok());
    }
  }
  // Begins on every host; the answer of each, in order.
  std::vector<Status> begin() {
    const UniqueId id = *make_id(*communicators_.front());
    std::vector<std::optional<Status>> answers(hosts_.size());
    for (size_t host = 0; host < hosts_.size(); ++host)
      communicators_[host]->begin(
          id,
          {&driver_, hosts_[host]->context(), static_cast<int>(hosts_.size()),
           static_cast<int>(host)},
          [&answers, host](const Status& status) { answers[host] = status; },
          [this](const Status& status) { failures_.push_back(status); });
    await([&] {
      return std::ranges::all_of(answers, [](const auto& answer) { return answer.has_value(); });
    });
    std::vector<Status> all;
    for (const auto& answer : answers) all.push_back(*answer);
    return all;
  }
  void make(int count, size_t bytes = 1 << 20) {
    add_hosts(count, bytes);
    for (const Status& made : begin()) ASSERT_EQ(made, Status());
  }
  Status launch(size_t host, Work work) {
    work.from = work.to = hosts_[host]->memory();
    work.stream = hosts_[host]->stream();
    std::optional<Status> queued;
    communicators_[host]->launch(work, [&](const Status& status) { queued = status; });
    await([&] { return queued.has_value(); });
    return *queued;
  }
  void launch_all(const Work& work) {
    for (size_t host = 0; host < hosts_.size(); ++host) ASSERT_EQ(launch(host, work), Status());
  }
  void expect_nothing_runs() {
    await([this] {
      return std::ranges::all_of(communicators_,
                                 [](const auto& communicator) { return communicator->is_ended(); });
    });
  }

  const TemporaryDirectory directory_;
  const Variable faults_{"FAKE_NCCL_FAULTS", directory_ / "faults"};
  const cuda::Driver& driver_ = **cuda::load_driver(TUTTI_FAKE_CUDA);
  Loop loop_;
  std::string hung_;
  int expected_to_hang_ = 0;
  CommunicatorParts parts_{.loop = loop_,
                           .library = TUTTI_FAKE_NCCL,
                           .timeout = kPatience,
                           .on_hang = [this](const std::string& what) { hung_ = what; }};
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<Status> failures_;
};

// ---- The library ----

TEST_F(CommunicatorTest, ALibraryThatIsNotThereIsNamed) {
  parts_.library = "libno-such-nccl.so.2";
  Communicator communicator(parts_);
  const Result<int> version = load(communicator);
  EXPECT_EQ(version.status().code(), Code::unavailable);
  EXPECT_NE(version.status().message().find("libno-such-nccl.so.2"), std::string::npos);
}

TEST_F(CommunicatorTest, AnotherLibraryLacksItsFunctions) {
  parts_.library = TUTTI_FAKE_CUDA;
  Communicator communicator(parts_);
  EXPECT_NE(load(communicator).status().message().find("lacks ncclGetVersion"), std::string::npos);
}

// By another name, since each is loaded once a process.
TEST_F(CommunicatorTest, AnOldLibraryIsRefusedByItsVersion) {
  const std::filesystem::path other = directory_ / "libnccl.so.2";
  std::filesystem::create_symlink(TUTTI_FAKE_NCCL, other);
  const Variable old("FAKE_NCCL_VERSION", "21705");
  parts_.library = other;
  Communicator communicator(parts_);
  const Result<int> version = load(communicator);
  EXPECT_NE(version.status().message().find("is NCCL 2.17.5; install NCCL 2.18"),
            std::string::npos);
}

TEST_F(CommunicatorTest, VersionsReadAsPeopleWriteThem) {
  EXPECT_EQ(version_text(22304), "2.23.4");
  EXPECT_EQ(version_text(21800), "2.18.0");
  EXPECT_EQ(version_text(2804), "2.8.4");
  add_hosts(1);
  EXPECT_EQ(*load(*communicators_[0]), 22304);
}

TEST_F(CommunicatorTest, WhatItDoesIsATable) {
  EXPECT_TRUE(supports(Collective::all_reduce, Dtype::f32, Op::sum));
  EXPECT_TRUE(supports(Collective::all_reduce, Dtype::bf16, Op::mean));
  EXPECT_TRUE(supports(Collective::all_reduce, Dtype::f32, Op::premul_sum));
  EXPECT_TRUE(supports(Collective::reduce, Dtype::i32, Op::max));
  EXPECT_TRUE(supports(Collective::broadcast, Dtype::boolean, Op::sum));
  EXPECT_FALSE(supports(Collective::all_reduce, Dtype::f32, Op::max));  // It passes NaNs over.
  EXPECT_FALSE(supports(Collective::all_reduce, Dtype::i16, Op::sum));
  EXPECT_FALSE(supports(Collective::all_reduce, Dtype::boolean, Op::sum));
  EXPECT_FALSE(supports(Collective::all_reduce, Dtype::u8, Op::band));
  EXPECT_FALSE(supports(Collective::all_gather, Dtype::f32, Op::sum));
  EXPECT_FALSE(supports(Collective::barrier, Dtype::f32, Op::sum));
}

// ---- Values ----

TEST_F(CommunicatorTest, AllReduceOfThreeHosts) {
  constexpr size_t kCount = 200'000;  // More than what the fake moves at once.
  make(3);
  for (size_t host = 0; host < 3; ++host)
    hosts_[host]->write(std::vector<float>(kCount, static_cast<float>(host + 1)));
  launch_all({.count = kCount});
  for (const auto& host : hosts_)
    EXPECT_EQ(host->read<float>(kCount), std::vector<float>(kCount, 6));
}

TEST_F(CommunicatorTest, EachTypeIsNcclsOwn) {
  make(2);
  const auto expect = [this](Dtype dtype, Op op, auto one, auto other, auto result) {
    using T = decltype(one);
    hosts_[0]->write(std::vector<T>(10, one));
    hosts_[1]->write(std::vector<T>(10, other));
    launch_all({.dtype = dtype, .op = op, .count = 10});
    for (const auto& host : hosts_)
      EXPECT_EQ(host->template read<T>(10), std::vector<T>(10, result)) << name_of(dtype);
  };
  expect(Dtype::f64, Op::sum, 1.5, 2.25, 3.75);
  expect(Dtype::f16, Op::sum, uint16_t{0x3c00}, uint16_t{0x4000}, uint16_t{0x4200});
  expect(Dtype::bf16, Op::mean, uint16_t{0x3f80}, uint16_t{0x4000}, uint16_t{0x4040});
  expect(Dtype::i8, Op::min, int8_t{-5}, int8_t{3}, int8_t{-5});
  expect(Dtype::u8, Op::max, uint8_t{200}, uint8_t{3}, uint8_t{200});
  expect(Dtype::i32, Op::prod, -3, 7, -21);
  expect(Dtype::u32, Op::max, 4'000'000'000u, 3u, 4'000'000'000u);
  expect(Dtype::i64, Op::sum, int64_t{-1}, int64_t{1} << 40, (int64_t{1} << 40) - 1);
  expect(Dtype::u64, Op::sum, uint64_t{1}, uint64_t{1} << 63, (uint64_t{1} << 63) + 1);
}

TEST_F(CommunicatorTest, ReduceToARootAndBroadcastFromIt) {
  make(3);
  for (size_t host = 0; host < 3; ++host)
    hosts_[host]->write(std::vector<int>(100, static_cast<int>(host) + 1));
  launch_all({.collective = Collective::reduce, .dtype = Dtype::i32, .root = 2, .count = 100});
  EXPECT_EQ(hosts_[2]->read<int>(100), std::vector<int>(100, 6));
  EXPECT_EQ(hosts_[0]->read<int>(100), std::vector<int>(100, 1));
  launch_all({.collective = Collective::broadcast, .dtype = Dtype::i16, .root = 2, .count = 200});
  for (const auto& host : hosts_) EXPECT_EQ(host->read<int>(100), std::vector<int>(100, 6));
}

TEST_F(CommunicatorTest, WorkRunsInTheOrderOfItsStream) {
  make(2);
  hosts_[1]->write(std::vector<int>(10, 5));
  uint64_t* held = hosts_[0]->hold();
  launch_all({.dtype = Dtype::i32, .count = 10});
  EXPECT_FALSE(hosts_[0]->is_idle());
  EXPECT_FALSE(hosts_[1]->is_idle());
  std::atomic_ref(*held).store(1);
  EXPECT_EQ(hosts_[0]->read<int>(10), hosts_[1]->read<int>(10));
}

// ---- Failures ----

TEST_F(CommunicatorTest, AnIdThatIsNotMadeIsReportedWithTheReason) {
  set_fault("no_id");
  add_hosts(1);
  EXPECT_EQ(make_id(*communicators_[0]).status().message(),
            "no id was made: unhandled system error (NCCL)");
}

TEST_F(CommunicatorTest, AHostThatIsNotMadeIsReportedWithTheReasonAndTheOthersAreLate) {
  parts_.timeout = Millis(500);
  set_fault("init_fails 1");
  add_hosts(2);
  const std::vector<Status> made = begin();
  EXPECT_EQ(made[1].message(), "no communicator was made: unhandled system error (NCCL)");
  EXPECT_EQ(made[0].code(), Code::deadline_exceeded);
  EXPECT_NE(made[0].message().find("nccl_timeout_ms"), std::string::npos);
  communicators_[1]->abort();
  expect_nothing_runs();
}

TEST_F(CommunicatorTest, WorkThatIsRefusedIsReportedWithTheReason) {
  make(2);
  set_fault("launch_fails 0");
  EXPECT_EQ(launch(0, {.count = 10}).message(), "work was not queued: internal error (NCCL)");
}

TEST_F(CommunicatorTest, AnErrorWhileWorkIsUnderWayIsReported) {
  make(2);
  ASSERT_TRUE(launch(0, {.count = 10}).ok());
  set_fault("remote_error 0");
  await([this] { return !failures_.empty(); });
  EXPECT_NE(failures_[0].message().find("remote process exited"), std::string::npos);
  EXPECT_EQ(failures_[0].code(), Code::aborted);  // Not this host's.
  communicators_[0]->abort();
  communicators_[1]->abort();
  expect_nothing_runs();
  EXPECT_EQ(failures_.size(), 1);
}

// ---- The end ----

TEST_F(CommunicatorTest, AnAbortLetsWorkThatWaitsForAPeerEnd) {
  make(2);
  ASSERT_TRUE(launch(0, {.count = 10}).ok());
  EXPECT_FALSE(hosts_[0]->is_idle());
  communicators_[0]->abort();
  await([this] { return communicators_[0]->is_ended() && hosts_[0]->is_idle(); });
}

TEST_F(CommunicatorTest, ASlowAbortKeepsNobodyWaiting) {
  make(1);
  set_fault("abort_is_slow");
  const TimePoint before = Clock::now();
  communicators_[0]->abort();
  EXPECT_FALSE(communicators_[0]->is_ended());
  EXPECT_LT(Clock::now() - before, std::chrono::milliseconds(2'500)) << "it takes three seconds";
  expect_nothing_runs();
  EXPECT_EQ(hung_, "");
}

TEST_F(CommunicatorTest, AnAbortThatDoesNotReturnIsReported) {
  parts_.timeout = Millis(300);
  make(1);
  set_fault("abort_hangs");
  expected_to_hang_ = 1;
  communicators_[0]->abort();
  await([this] { return !hung_.empty(); });
  EXPECT_EQ(hung_, "NCCL did not end a communicator within 300 ms (nccl_timeout_ms of tuttid)");
}

TEST_F(CommunicatorTest, ACallThatDoesNotReturnIsLateAndThenTold) {
  parts_.timeout = Millis(300);
  set_fault("init_blocks");
  expected_to_hang_ = 1;
  add_hosts(1);
  EXPECT_EQ(begin()[0].code(), Code::deadline_exceeded);
  communicators_.clear();
  await([this] { return !hung_.empty(); });
}

TEST_F(CommunicatorTest, OneThatIsDestroyedEndsAfterItsWork) {
  make(2);
  hosts_[1]->write(std::vector<int>(10, 5));
  uint64_t* held = hosts_[0]->hold();
  launch_all({.dtype = Dtype::i32, .op = Op::max, .count = 10});
  communicators_.clear();
  std::atomic_ref(*held).store(1);
  await([this] { return *parts_.running == 0; });
  EXPECT_EQ(hosts_[0]->read<int>(10), std::vector<int>(10, 5));
  EXPECT_EQ(hung_, "");
}

TEST_F(CommunicatorTest, OneThatDoesNotEndByItselfIsAborted) {
  parts_.timeout = Millis(300);
  make(1);
  set_fault("finalize_hangs");
  communicators_[0]->finish();
  EXPECT_FALSE(communicators_[0]->is_ended());
  expect_nothing_runs();
  EXPECT_EQ(hung_, "");
}

TEST_F(CommunicatorTest, NothingIsReportedOnceItIsDestroyed) {
  add_hosts(1);
  bool told = false;
  communicators_[0]->make_id([&](const Result<UniqueId>&) { told = true; });
  communicators_.clear();
  await([this] { return *parts_.running == 0; });
  loop_.run_once(Clock::now());
  EXPECT_FALSE(told);
}

TEST_F(CommunicatorTest, WorkAfterTheEndIsRefused) {
  make(1);
  communicators_[0]->abort();
  expect_nothing_runs();
  Work work{.count = 1};
  bool told = false;
  communicators_[0]->launch(work, [&](const Status& status) { told = !status.ok(); });
  await([&] { return told; });
}

}  // namespace
}  // namespace tutti::nccl
