// The floor of an all-reduce within a host: processes that fold N tensors in one mapping, in place,
// each read once and each written once, cut among so many of them (--threads), with a barrier
// before and after. With --staged the tensors are private, and go through the mapping in blocks.
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <new>
#include <thread>

#include "tests/bench/drivers/race.h"

namespace tutti::race {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBlock = 2048;             // Elements summed at a time: in the first cache.
constexpr size_t kStageElements = 1 << 16;  // 256 KiB of each rank's at a time.
constexpr int kSpins = 2'000;
constexpr int kLine = 16;  // Elements in a cache line.

// In the mapping: all arrive, then all go on.
class Barrier {
 public:
  explicit Barrier(uint32_t ranks)
      : ranks_(ranks), spins_(std::thread::hardware_concurrency() >= ranks ? kSpins : 0) {}

  void arrive() {
    const uint32_t turn = turn_.load();
    if (arrived_.fetch_add(1) + 1 == ranks_) {
      arrived_.store(0);
      turn_.fetch_add(1);
      syscall(SYS_futex, &turn_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
      return;
    }
    for (int i = 0; i < spins_ && turn_.load() == turn; ++i) __builtin_ia32_pause();
    while (turn_.load() == turn) syscall(SYS_futex, &turn_, FUTEX_WAIT, turn, nullptr, nullptr, 0);
  }

 private:
  uint32_t ranks_;
  int spins_;
  alignas(64) std::atomic<uint32_t> arrived_ = 0;
  alignas(64) std::atomic<uint32_t> turn_ = 0;
};

// Every tensor's [begin, end) becomes the sum of all tensors'.
void fold(const std::vector<float*>& tensors, size_t begin, size_t end) {
  alignas(64) float sum[kBlock];
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t count = std::min(kBlock, end - at);
    const float* first = tensors[0] + at;
    const float* second = tensors[1] + at;
    for (size_t i = 0; i < count; ++i) sum[i] = first[i] + second[i];
    for (size_t t = 2; t < tensors.size(); ++t)
      for (size_t i = 0; i < count; ++i) sum[i] += tensors[t][at + i];
    for (float* tensor : tensors) std::memcpy(tensor + at, sum, count * sizeof(float));
  }
}

class Floor : public Contestant {
 public:
  Floor(const Arguments& arguments, size_t bytes_max)
      : ranks_(std::stoul(arguments.get("ranks"))),
        folders_(std::stoul(arguments.get("threads", arguments.get("ranks")))),
        staged_(arguments.has("staged")),
        room_(3 * kPage + (staged_ ? 2 * kStageElements * sizeof(float) : 2 * bytes_max)) {
    void* memory = mmap(nullptr, kPage + ranks_ * room_, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory to share");
    base_ = static_cast<char*>(memory);
    barrier_ = new (memory) Barrier(static_cast<uint32_t>(ranks_));
  }

  void become(int rank) { rank_ = rank; }
  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(ranks_); }

  float* allocate(size_t bytes) override {
    if (staged_) return Contestant::allocate(bytes);
    const size_t offset = used_;
    used_ += (bytes + kPage - 1) / kPage * kPage;
    return at(static_cast<size_t>(rank_), offset);
  }

  bool offers(Collective collective) const override { return collective == Collective::all_reduce; }
  void run(Collective, float*, float* out, size_t count) override {
    return staged_ ? run_staged(out, count) : run_in_place(out, count);
  }

 private:
  float* at(size_t rank, size_t offset) const {
    return reinterpret_cast<float*>(base_ + kPage + rank * room_ + offset);
  }

  // The part of the work of this process; whole cache lines.
  void fold_part(const std::vector<float*>& tensors, size_t count) const {
    const auto me = static_cast<size_t>(rank_);
    const size_t part = (count / folders_ / kLine + 1) * kLine;
    if (me < folders_) fold(tensors, std::min(me * part, count), std::min((me + 1) * part, count));
  }

  void run_in_place(float* data, size_t count) {
    const auto* mine = reinterpret_cast<char*>(at(static_cast<size_t>(rank_), 0));
    const auto offset = static_cast<size_t>(reinterpret_cast<char*>(data) - mine);
    barrier_->arrive();
    fold_part(tensors_at(offset), count);
    barrier_->arrive();
  }

  // Two blocks a rank, in turn: one barrier less between them.
  void run_staged(float* data, size_t count) {
    size_t turn = 0;
    for (size_t begin = 0; begin < count; begin += kStageElements, turn ^= 1) {
      const size_t block = std::min(kStageElements, count - begin);
      const size_t offset = turn * kStageElements * sizeof(float);
      float* stage = at(static_cast<size_t>(rank_), offset);
      std::memcpy(stage, data + begin, block * sizeof(float));
      barrier_->arrive();
      fold_part(tensors_at(offset), block);
      barrier_->arrive();
      std::memcpy(data + begin, stage, block * sizeof(float));
    }
  }

  std::vector<float*> tensors_at(size_t offset) const {
    std::vector<float*> tensors(ranks_);
    for (size_t r = 0; r < ranks_; ++r) tensors[r] = at(r, offset);
    return tensors;
  }

  size_t ranks_;
  size_t folders_;
  bool staged_;
  size_t room_;
  size_t used_ = 0;
  int rank_ = 0;
  char* base_ = nullptr;
  Barrier* barrier_ = nullptr;
};

}  // namespace
}  // namespace tutti::race

int main(int argc, char** argv) {
  const tutti::race::Arguments arguments(argc, argv);
  const tutti::race::Options options = arguments.options();
  tutti::race::Floor floor(arguments, options.bytes_max());
  for (int rank = 1; rank < floor.world_size(); ++rank)
    if (fork() == 0) {
      floor.become(rank);
      return run_race(floor, options);
    }
  int failures = run_race(floor, options);
  for (int status = 0; wait(&status) > 0;) failures += status != 0;
  return failures > 0 ? 1 : 0;
}
