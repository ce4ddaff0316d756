// What a worker takes of the memory that trainers offer, and how long it keeps it, over the fake
// driver.
#include "daemon/worker/gpu_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/support/cuda_driver.h"

namespace tutti {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kSegmentBytes = uint64_t{4} << 20;

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

  Status take(OfferedMemory offer) { return memory.take(trainer, std::move(offer)); }
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
  GpuMemory memory{settings, fault};
  bool segment_is_unmapped = false;
  OfferedByTrainer trainer;
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
  std::unique_ptr<GpuSet::Lane> lane = *memory.gpus()->take_lane(0);
  for (int i = 0; i < 2; ++i)
    expect_refused(forgotten(1), Code::failed_precondition, "is being unpinned; ask again");
  Call late = call(1, kPage);
  EXPECT_EQ(memory.resolve(trainer, late).to_string(),
            "INVALID_ARGUMENT: the input is in memory that was not offered");
  EXPECT_EQ(trainer.staging_bytes(), 3 * kPage);
  expect_refused(staging(2, kPage, kPage), Code::invalid_argument, "overlaps");
  expect_refused(staging(2, 8 * kPage, 2 * kPage), Code::resource_exhausted, "gpu_staging_bytes");
  memory.gpus()->give_back(std::move(lane));
  forget_until_it_is(1);
  EXPECT_EQ(trainer.staging_bytes(), 0u);
  expect_taken(staging(1, kPage, 4 * kPage));
  EXPECT_EQ(trainer.staging_bytes(), 4 * kPage);
}

TEST_F(GpuMemoryTest, OperationsKeepStaging) {
  expect_taken(words(0, kPage));
  expect_taken(staging(1, kPage, kPage));
  {
    Call running = call(1, kPage);
    EXPECT_EQ(memory.resolve(trainer, running).to_string(), "OK");
    expect_refused(forgotten(1), Code::failed_precondition, "operations use this memory");
    Call next = call(1, kPage);
    EXPECT_EQ(memory.resolve(trainer, next).to_string(), "OK");
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
  EXPECT_EQ(memory.resolve(trainer, odd).to_string(),
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
  OfferedByTrainer other;
  EXPECT_EQ(memory.take(other, words(0, kPage, 0)).to_string(), "OK");
  expect_taken(words(kPage, kPage, 1));
  Call empty = call(0, 0);
  EXPECT_EQ(memory.resolve(trainer, empty).to_string(), "OK");
  EXPECT_EQ(empty.device->gpu, 1);
}

// Streams may look at words for as long as the process lives.
TEST_F(GpuMemoryTest, AfterAFaultTheSegmentStaysMapped) {
  expect_taken(words(0, kPage));
  {
    Call running = call(0, 0);
    EXPECT_EQ(memory.take_words(trainer, running).to_string(), "OK");
    EXPECT_EQ(memory.resolve(trainer, running).to_string(), "OK");
    fault->set("GPU 0 failed");
    trainer = {};
  }
  EXPECT_FALSE(memory.close());
  EXPECT_FALSE(segment_is_unmapped);
  static_cast<void>(segment.release());
}

}  // namespace
}  // namespace tutti
