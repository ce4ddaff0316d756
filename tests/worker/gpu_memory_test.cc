// What a worker takes of the memory that trainers offer, and how long it keeps it, over the fake
// driver.
#include "daemon/worker/gpu_memory.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/support/cuda_driver.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSegmentBytes = uint64_t{4} << 20;

// What threads have posted to the test's own, whenever it likes.
class Posted {
 public:
  void post(GpuMemory::Task task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void run_next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !tasks_.empty(); });
    const GpuMemory::Task next = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    next();
  }
  // Not what they post.
  void run_all() {
    for (size_t left = size(); left > 0; --left) run_next();
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return tasks_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GpuMemory::Task> tasks_;
};

class GpuMemoryTest : public testing::Test {
 protected:
  // For the segment.
  OfferedMemory words(uint64_t offset, uint64_t bytes, int gpu = 0) {
    return piece(OfferKind::words, 1'000'000, offset, bytes, gpu);
  }
  OfferedMemory staging(uint64_t number, uint64_t offset, uint64_t bytes) {
    return piece(OfferKind::staging, number, offset, bytes, 0);
  }
  static OfferedMemory forgotten(uint64_t number) {
    OfferedMemory offer;
    offer.kind = OfferKind::forget;
    offer.number = number;
    return offer;
  }

  // The answer to an offer, once there is one.
  using Answered = std::shared_ptr<std::optional<Status>>;
  Answered offer(const std::shared_ptr<OfferedByTrainer>& by, OfferedMemory offered) {
    auto answered = std::make_shared<std::optional<Status>>();
    memory->take(by, std::move(offered), [answered](const Status& taken) {
      EXPECT_FALSE(answered->has_value()) << "it is answered once";
      *answered = taken;
    });
    return answered;
  }
  Status take(OfferedMemory offered) {
    const Answered answered = offer(trainer, std::move(offered));
    while (!answered->has_value()) posted.run_next();
    return **answered;
  }
  void expect_taken(OfferedMemory offer) { EXPECT_EQ(take(std::move(offer)).to_string(), "OK"); }
  void expect_refused(OfferedMemory offer, Code code, const std::string& says) {
    const Status status = take(std::move(offer));
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
  }
  // As a rank does.
  void forget_until_it_is(uint64_t number) {
    Status forgot = failed_precondition("");
    while (forgot.code() == Code::failed_precondition) {
      std::this_thread::yield();
      forgot = take(forgotten(number));
    }
    EXPECT_EQ(forgot.to_string(), "OK");
  }

  // A call whose input and output are a whole piece of memory. `bytes` 0: it has no elements.
  Call call(uint64_t number, uint64_t bytes) {
    Call made;
    made.signature.collective = Collective::all_reduce;
    made.device.emplace();
    made.device->asked.done_offset = sizeof(uint64_t);
    made.device->asked.in.memory = made.device->asked.out.memory = number;
    made.device->in_bytes = made.device->out_bytes = bytes;
    return made;
  }

  Settings settings = [] {
    Settings made;
    made.cuda_driver = TUTTI_FAKE_CUDA;
    made.gpu_staging_bytes = 4 * kPage;
    return made;
  }();
  const std::shared_ptr<GpuFault> fault = std::make_shared<GpuFault>();
  Posted posted;
  std::optional<GpuMemory> memory{std::in_place, settings, fault,
                                  [this](GpuMemory::Task task) { posted.post(std::move(task)); }};
  bool segment_is_unmapped = false;
  std::shared_ptr<OfferedByTrainer> trainer = std::make_shared<OfferedByTrainer>();
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte[], Free> segment{
      static_cast<std::byte*>(std::aligned_alloc(kPage, kSegmentBytes))};

 private:
  OfferedMemory piece(OfferKind kind, uint64_t number, uint64_t offset, uint64_t bytes, int gpu) {
    OfferedMemory offer;
    offer.kind = kind;
    offer.number = number;
    offer.offset = offset;
    offer.bytes = bytes;
    const cuda::Driver& driver = **cuda::load_driver(TUTTI_FAKE_CUDA);
    const cuda::Uuid uuid = (*list_gpus(driver))[static_cast<size_t>(gpu)].uuid;
    std::memcpy(offer.gpu.data(), uuid.bytes, sizeof(uuid.bytes));
    offer.pinned = segment.get() + offset;
    offer.keeps = std::shared_ptr<const void>(&segment_is_unmapped,
                                              [this](const void*) { segment_is_unmapped = true; });
    return offer;
  }
};

// They are pinned: a rank could have its whole segment pinned as such.
TEST_F(GpuMemoryTest, WordsAreLimited) {
  expect_refused(words(0, (1 << 20) + kPage), Code::invalid_argument,
                 "a rank offers at most 1048576 bytes for words, not 1052672");
  expect_taken(words(0, 1 << 20));
  expect_refused(words(2 << 20, kPage), Code::invalid_argument, "words once");
}

TEST_F(GpuMemoryTest, PiecesOfTheSegmentDoNotOverlap) {
  const std::string says = "overlaps what the rank has offered";
  expect_taken(words(4 * kPage, 2 * kPage));
  expect_refused(staging(1, 5 * kPage, kPage), Code::invalid_argument, says);
  expect_refused(staging(1, 3 * kPage, 4 * kPage), Code::invalid_argument, says);
  expect_taken(staging(1, 6 * kPage, 2 * kPage));
  expect_refused(staging(2, 7 * kPage, kPage), Code::invalid_argument,
                 "(4096 bytes at offset 28672 of the segment) " + says);
  expect_taken(staging(2, 3 * kPage, kPage));
}

// While lanes work, nothing is unpinned: its name, its place and its share of the limit stay.
TEST_F(GpuMemoryTest, StagingIsForgottenOnceItIsUnpinned) {
  expect_taken(words(0, kPage));
  expect_taken(staging(1, kPage, 3 * kPage));
  std::unique_ptr<GpuSet::Lane> lane = *memory->gpus()->take_lane(0);
  for (int i = 0; i < 2; ++i)
    expect_refused(forgotten(1), Code::failed_precondition, "is being unpinned; ask again");
  Call late = call(1, kPage);
  EXPECT_EQ(memory->resolve(*trainer, late).to_string(),
            "INVALID_ARGUMENT: the input is in memory that was not offered");
  EXPECT_EQ(trainer->staging_bytes(), 3 * kPage);
  expect_refused(staging(2, kPage, kPage), Code::invalid_argument, "overlaps");
  expect_refused(staging(2, 8 * kPage, 2 * kPage), Code::resource_exhausted, "gpu_staging_bytes");
  memory->gpus()->give_back(std::move(lane));
  forget_until_it_is(1);
  EXPECT_EQ(trainer->staging_bytes(), 0u);
  expect_taken(staging(1, kPage, 4 * kPage));
  EXPECT_EQ(trainer->staging_bytes(), 4 * kPage);
}

TEST_F(GpuMemoryTest, OperationsKeepStaging) {
  expect_taken(words(0, kPage));
  expect_taken(staging(1, kPage, kPage));
  {
    Call running = call(1, kPage);
    EXPECT_EQ(memory->resolve(*trainer, running).to_string(), "OK");
    expect_refused(forgotten(1), Code::failed_precondition, "operations use this memory");
    Call next = call(1, kPage);
    EXPECT_EQ(memory->resolve(*trainer, next).to_string(), "OK");
  }
  forget_until_it_is(1);
}

// A kernel's fault would end the worker.
TEST_F(GpuMemoryTest, TensorsMustBeAligned) {
  expect_taken(words(0, kPage));
  expect_taken(staging(1, kPage, kPage));
  Call odd = call(1, kPage / 2);
  odd.signature.dtype = Dtype::f32;
  odd.device->asked.in.offset = odd.device->asked.out.offset = 2;
  EXPECT_EQ(memory->resolve(*trainer, odd).to_string(),
            "INVALID_ARGUMENT: the input (2048 bytes at offset 2) is not aligned for f32");
}

// No wait helps what exceeds the limit alone.
TEST_F(GpuMemoryTest, StagingThatIsTooLargeIsReportedFromWhatFindsNoRoom) {
  expect_refused(staging(1, 0, 5 * kPage), Code::out_of_range, "gpu_staging_bytes");
  expect_taken(staging(1, 0, kPage));
  expect_refused(staging(2, kPage, 4 * kPage), Code::resource_exhausted, "gpu_staging_bytes");
}

// Not another one, which its host may not even let it reach.
TEST_F(GpuMemoryTest, ARankWithoutElementsIsOnTheGpuOfItsWords) {
  const auto other = std::make_shared<OfferedByTrainer>();
  const Answered answered = offer(other, words(0, kPage, 0));
  expect_taken(words(kPage, kPage, 1));
  while (!answered->has_value()) posted.run_next();
  EXPECT_EQ((*answered)->to_string(), "OK");
  Call empty = call(0, 0);
  EXPECT_EQ(memory->resolve(*trainer, empty).to_string(), "OK");
  EXPECT_EQ(empty.device->gpu, 1);
}

// Streams may look at words for as long as the process lives.
TEST_F(GpuMemoryTest, AfterAFaultTheSegmentStaysMapped) {
  expect_taken(words(0, kPage));
  {
    Call running = call(0, 0);
    EXPECT_EQ(memory->take_words(*trainer, running).to_string(), "OK");
    EXPECT_EQ(memory->resolve(*trainer, running).to_string(), "OK");
    fault->set("GPU 0 failed");
    trainer.reset();
  }
  EXPECT_FALSE(memory->close());
  EXPECT_FALSE(segment_is_unmapped);
  static_cast<void>(segment.release());
}

// ---- While a GPU is being opened ----

// The loop goes on, and learns once that the GPU is open, however many wait.
TEST_F(GpuMemoryTest, OffersWaitForTheGpu) {
  const auto other = std::make_shared<OfferedByTrainer>();
  const Answered first = offer(trainer, words(0, kPage));
  const Answered second = offer(other, words(kPage, kPage));
  EXPECT_FALSE(first->has_value());
  EXPECT_FALSE(second->has_value());
  EXPECT_EQ(memory->gpus(), nullptr);
  expect_refused(forgotten(7), Code::ok, "");
  posted.run_next();
  ASSERT_TRUE(first->has_value());
  ASSERT_TRUE(second->has_value());
  EXPECT_EQ((*first)->to_string(), "OK");
  EXPECT_EQ((*second)->to_string(), "OK");
  EXPECT_EQ(memory->gpus()->size(), 1u);
  const Answered at_once = offer(trainer, staging(1, 2 * kPage, kPage));
  EXPECT_TRUE(at_once->has_value());
  EXPECT_TRUE(memory->close());
  EXPECT_EQ(posted.size(), 0u);
}

TEST_F(GpuMemoryTest, SeveralGpusAreOpenedAtOnce) {
  const auto other = std::make_shared<OfferedByTrainer>();
  const Answered first = offer(trainer, words(0, kPage, 0));
  const Answered second = offer(other, words(kPage, kPage, 1));
  posted.run_next();
  EXPECT_NE(first->has_value(), second->has_value());
  posted.run_next();
  EXPECT_TRUE(first->has_value() && second->has_value());
  EXPECT_EQ(memory->gpus()->size(), 2u);
}

TEST_F(GpuMemoryTest, AFailureIsTheAnswerToAllThatWaitAndTheNextOfferTriesAgain) {
  setenv("FAKE_CUDA_REFUSES", "cuDevicePrimaryCtxRetain", 1);
  const auto other = std::make_shared<OfferedByTrainer>();
  const Answered first = offer(trainer, words(0, kPage));
  const Answered second = offer(other, words(kPage, kPage));
  posted.run_next();
  unsetenv("FAKE_CUDA_REFUSES");
  for (const Answered& answered : {first, second}) {
    ASSERT_TRUE(answered->has_value());
    EXPECT_NE((*answered)->message().find("GPU 0 cannot be opened"), std::string::npos)
        << (*answered)->to_string();
  }
  expect_taken(words(0, kPage));
}

TEST_F(GpuMemoryTest, WithoutADriverOffersAreRefused) {
  settings.cuda_driver = "no-such-driver.so";
  expect_refused(words(0, kPage), Code::unavailable, "the worker needs the driver and the GPUs");
}

// The offer goes with it.
TEST_F(GpuMemoryTest, ATrainerThatEndsMeanwhileIsForgotten) {
  const Answered answered = offer(trainer, words(0, kPage));
  trainer.reset();
  EXPECT_TRUE(segment_is_unmapped);
  posted.run_next();
  EXPECT_FALSE(answered->has_value());
  EXPECT_EQ(memory->gpus()->size(), 1u);
  EXPECT_TRUE(memory->close());
}

// Its context is there; so the process must end, as if the GPU had been open already.
TEST_F(GpuMemoryTest, AGpuThatFailsMeanwhileIsAFault) {
  OfferedMemory offered = words(0, kPage);
  cuda::Uuid uuid{};
  std::memcpy(uuid.bytes, offered.gpu.data(), sizeof(uuid.bytes));
  const Answered answered = offer(trainer, std::move(offered));
  memory->set_failed({{cuda::text_of(uuid), "GPU 0 failed: XID 79"}});
  posted.run_next();
  ASSERT_TRUE(answered->has_value());
  EXPECT_EQ((*answered)->to_string(), "UNAVAILABLE: GPU 0 failed: XID 79");
  EXPECT_TRUE(fault->is_set());
  expect_refused(words(0, kPage), Code::unavailable, "XID 79");
  EXPECT_FALSE(memory->close());
}

TEST_F(GpuMemoryTest, AFaultMeanwhileIsTheAnswer) {
  const Answered answered = offer(trainer, words(0, kPage));
  fault->set("GPU 1 failed");
  posted.run_next();
  ASSERT_TRUE(answered->has_value());
  EXPECT_EQ(**answered, fault->status());
  EXPECT_FALSE(memory->close());
}

// A GPU that is open by then is closed again, though nobody has taken it.
TEST_F(GpuMemoryTest, ClosingWaitsForAGpuThatIsBeingOpened) {
  const Answered answered = offer(trainer, words(0, kPage));
  EXPECT_TRUE(memory->close());
  posted.run_all();
  EXPECT_FALSE(answered->has_value());
  EXPECT_EQ(memory->gpus(), nullptr);
}

TEST_F(GpuMemoryTest, NothingIsTouchedOnceItIsGone) {
  const Answered answered = offer(trainer, words(0, kPage));
  memory.reset();
  posted.run_all();
  EXPECT_FALSE(answered->has_value());
}

// What the driver does then reaches nobody.
TEST_F(GpuMemoryTest, ADriverThatHangsDoesNotHoldUpTheEnd) {
  const Variable slow("FAKE_CUDA_SLOW_CONTEXTS", "6000");
  const Answered answered = offer(trainer, words(0, kPage));
  EXPECT_FALSE(memory->close());
  memory.reset();
  trainer.reset();
  while (fault.use_count() > 1) std::this_thread::yield();  // The thread has one.
  EXPECT_EQ(posted.size(), 0u);
  EXPECT_FALSE(answered->has_value());
}

}  // namespace
}  // namespace tutti
