// How long it takes to tell somebody and hear back: the smallest operation of a lone rank on the
// board, and barely, between two threads, by what waiting is made of.
#include <benchmark/benchmark.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "client/tutti.h"
#include "tests/support/fake_job.h"

namespace tutti {
namespace {

// Each waits for the other's turn: odd numbers are the answers.
struct Spin {
  static constexpr const char* kName = "spin";
  std::atomic<uint32_t> turn = 0;
  void tell(uint32_t value) { turn.store(value, std::memory_order_release); }
  void wait(uint32_t value) const {
    while (turn.load(std::memory_order_acquire) != value) continue;
  }
};

struct Yield {
  static constexpr const char* kName = "yield";
  std::atomic<uint32_t> turn = 0;
  void tell(uint32_t value) { turn.store(value, std::memory_order_release); }
  void wait(uint32_t value) const {
    while (turn.load(std::memory_order_acquire) != value) sched_yield();
  }
};

struct Futex {
  static constexpr const char* kName = "futex";
  std::atomic<uint32_t> turn = 0;
  void tell(uint32_t value) {
    turn.store(value);
    syscall(SYS_futex, &turn, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  void wait(uint32_t value) {
    for (uint32_t seen = turn; seen != value; seen = turn)
      syscall(SYS_futex, &turn, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
};

struct Eventfd {
  static constexpr const char* kName = "eventfd";
  int there = eventfd(0, EFD_CLOEXEC);
  int back = eventfd(0, EFD_CLOEXEC);
  ~Eventfd() {
    close(there);
    close(back);
  }
  void tell(uint32_t value) const {
    const uint64_t one = 1;
    require(write(value % 2 == 0 ? back : there, &one, sizeof one) == sizeof one, "an eventfd");
  }
  void wait(uint32_t value) const {
    uint64_t count = 0;
    require(read(value % 2 == 0 ? back : there, &count, sizeof count) == sizeof count,
            "an eventfd");
  }
};

template <class Bell>
void bare(benchmark::State& state) {
  Bell bell;
  std::atomic<bool> ends = false;
  std::thread other([&] {
    for (uint32_t turn = 1;; turn += 2) {
      bell.wait(turn);
      if (ends) return;
      bell.tell(turn + 1);
    }
  });
  uint32_t turn = 0;
  for (auto _ : state) {
    bell.tell(++turn);
    bell.wait(++turn);
  }
  ends = true;
  bell.tell(++turn);
  other.join();
}
BENCHMARK(bare<Spin>)->Name("round_trip/spin")->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(bare<Yield>)->Name("round_trip/yield")->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(bare<Futex>)->Name("round_trip/futex")->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK(bare<Eventfd>)->Name("round_trip/eventfd")->UseRealTime()->MeasureProcessCPUTime();

// The smallest operation there is, of a job of one rank, through the client library: no worker
// takes part.
void session(benchmark::State& state) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("micro_" + std::to_string(getpid()) + ".sock");
  const FakeJob job(path, 1);
  tutti_join_options options = tutti_join_defaults();
  options.socket = path.c_str();
  options.job = "micro";
  options.rank = 0;
  options.world_size = 1;
  tutti_group* group = nullptr;
  require(tutti_join(&options, &group) == TUTTI_OK, tutti_last_error()->message);
  for (auto _ : state)
    require(tutti_barrier(group, nullptr, nullptr) == TUTTI_OK, tutti_last_error()->message);
  tutti_group_free(group);
}
BENCHMARK(session)->Name("round_trip/session")->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace tutti
