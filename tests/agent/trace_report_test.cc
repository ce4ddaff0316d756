// Replies about flight recorders keep their limit, whatever is written to the memory meanwhile.
#include "daemon/agent/trace_report.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace tutti {
namespace {

constexpr uint32_t kLocalRanks = 8;
constexpr uint64_t kBytesMax = 4 << 10;

// An operation that takes as many bytes of a reply as one can.
void record_long(RecordRing& ring, uint64_t number) {
  const RecordedCall call{0, 1, 1, 1, 0xff, 0xffff};
  const RecordedChoice choice{0xffff, 0xffff, 0xffff, 0};
  const uint64_t index = trace::record_begin(
      ring, {UINT64_MAX - kRecordsKept + number, UINT64_MAX, UINT64_MAX, 1 << 30,
             std::bit_cast<uint64_t>(call), std::bit_cast<uint64_t>(choice)});
  trace::record_end(ring, index, kDurationNsMax, Code::unavailable);
}

// Full rings of kLocalRanks ranks, of which the header reports fewer.
class FullRecorder {
 public:
  explicit FullRecorder(const std::string& job) : memory_(memfd_create("recorder", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(memory_.get(), static_cast<off_t>(recorder_bytes(kLocalRanks))), 0);
    void* at = mmap(nullptr, recorder_bytes(kLocalRanks), PROT_READ | PROT_WRITE, MAP_SHARED,
                    memory_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    bytes_ = static_cast<std::byte*>(at);
    const trace::RecorderView view(bytes_, kLocalRanks);
    view.header() = {kRecorderMagic, kProtocolVersion, 1, 1, kLocalRanks, 0, 0};
    set_groups(1);
    for (uint32_t local_rank = 0; local_rank < kLocalRanks; ++local_rank) {
      view.rank(local_rank).rank = local_rank;
      for (uint64_t number = 0; number < kRecordsKept; ++number)
        record_long(view.rank(local_rank).ring, number);
    }
    kept.pass.set_job(job);
    kept.epoch = 1;
    kept.memory = std::make_shared<const Fd>(std::move(memory_));
  }
  FullRecorder(const FullRecorder&) = delete;
  FullRecorder& operator=(const FullRecorder&) = delete;
  ~FullRecorder() { munmap(bytes_, recorder_bytes(kLocalRanks)); }

  void set_groups(uint32_t count) {
    const trace::RecorderView view(bytes_, kLocalRanks);
    for (uint32_t area = 0; area < count; ++area) {
      view.group(area).number = area;
      view.group(area).local_ranks[0] = 1;
      view.group(area).size = 1;
    }
  }
  void set_local_ranks(uint32_t local_ranks) {
    std::atomic_ref(trace::RecorderView(bytes_, kLocalRanks).header().local_ranks)
        .store(local_ranks);
  }

  KeptRecorder kept;

 private:
  Fd memory_;
  std::byte* bytes_ = nullptr;
};

v1::TraceReply all_of(std::span<const KeptRecorder> recorders) {
  v1::TraceRequest request;
  request.set_bytes_max(kBytesMax);
  return answer_trace(recorders, request, "a");
}

TEST(AgentTraceReport, GroupsCountAsOperationsDo) {
  FullRecorder recorder("demo");
  recorder.set_groups(kAreasMax);
  const v1::TraceReply reply = all_of({&recorder.kept, 1});
  EXPECT_LE(reply.ByteSizeLong(), kBytesMax);
  ASSERT_EQ(reply.hosts_size(), 1);
  EXPECT_EQ(reply.hosts(0).job(), "demo");
  EXPECT_TRUE(reply.hosts(0).cut());
}

TEST(AgentTraceReport, RanksThatAppearWhileItIsReadTakeNoRoomOfOthers) {
  FullRecorder hostile("hostile");
  FullRecorder honest("honest");
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    for (uint32_t turn = 0; !is_over; ++turn)
      hostile.set_local_ranks(turn % 2 == 0 ? 1 : kLocalRanks);
  });
  for (int i = 0; i < 200; ++i) {
    const v1::TraceReply reply = all_of(std::vector{hostile.kept, honest.kept});
    EXPECT_LE(reply.ByteSizeLong(), kBytesMax);
    ASSERT_EQ(reply.hosts_size(), 2);
    ASSERT_EQ(reply.hosts(1).ranks_size(), 1);
    EXPECT_FALSE(reply.hosts(1).ranks(0).operations().empty());
  }
  is_over = true;
  writer.join();
}

}  // namespace
}  // namespace tutti
