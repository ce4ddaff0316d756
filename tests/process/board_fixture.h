// For tests of operations on boards: counters that all processes of a test share, and operations
// that go on until one fails.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/process/task.h"

namespace tutti::testing {

// Counters that forked processes share. Make them before forking.
class SharedCounters {
 public:
  SharedCounters() {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("no memory");
    words_ = static_cast<std::atomic<int>*>(page);
  }
  std::atomic<int>& operator[](int index) const { return words_[index]; }
  void wait_for(int index, int value) const {
    while (words_[index].load() < value) sched_yield();
  }

 private:
  std::atomic<int>* words_;
};

// Shared with forked trainers.
class Flag {
 public:
  Flag()
      : value_(static_cast<std::atomic<bool>*>(mmap(nullptr, sizeof(std::atomic<bool>),
                                                    PROT_READ | PROT_WRITE,
                                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Flag() { munmap(value_, sizeof *value_); }
  void set() const { *value_ = true; }
  bool is_set() const { return *value_; }

 private:
  std::atomic<bool>* value_;
};

inline std::vector<float> ramp(size_t count, float base) {
  std::vector<float> tensor(count);
  for (size_t i = 0; i < count; ++i) tensor[i] = base + static_cast<float>(i % 100);
  return tensor;
}

inline void check_all(std::span<const float> x, float value) {
  for (const float element : x)
    if (element != value) check(false, std::to_string(element) + ", not " + std::to_string(value));
}

// The sum over ranks r of step + r.
inline float sum_at(int world, int step) {
  return static_cast<float>(world * step + world * (world - 1) / 2);
}

inline void stream(Group& group, int steps, size_t count, bool shared) {
  std::vector<float> own(count);
  const std::span<float> x = shared ? group.alloc<float>(count) : std::span(own);
  for (int step = 0; step < steps; ++step) {
    std::ranges::fill(x, static_cast<float>(step + group.rank()));
    group.all_reduce(x);
    check_all(x, sum_at(group.world_size(), step));
  }
  if (shared) group.free(x);
}

inline std::span<float> tensor(Group& group, std::vector<float>& own, size_t count, bool shared) {
  if (shared) return group.alloc<float>(count);
  own.resize(count);
  return own;
}

// Runs operations until one fails, and returns its error.
inline Error work_until_failure(Group& group, size_t count, bool shared, const Options& options) {
  std::vector<float> own;
  const std::span<float> x = tensor(group, own, count, shared);
  return failure_of([&] {
    for (int step = 0;; ++step) {
      std::ranges::fill(x, static_cast<float>(step % 1000 + group.rank()));
      group.all_reduce(x, sum, options);
      const int world = group.world_size();
      const auto right = static_cast<float>(world * (step % 1000) + world * (world - 1) / 2);
      for (const float value : x) check(value == right, "a right sum");
    }
  });
}

// Sends this process the signal after a while.
inline void signal_myself(int signal, std::chrono::microseconds after) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = signal;
  timer_t timer{};
  check(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "a timer");
  itimerspec when{};
  when.it_value.tv_nsec = 1 + after.count() * 1000;
  check(timer_settime(timer, 0, &when, nullptr) == 0, "the timer's start");
}

// Bytes of shared memory that this process has touched.
inline size_t shared_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (size_t kib = 0; word == "RssShmem:" && status >> kib) return kib * 1024;
  throw std::runtime_error("no RssShmem in /proc/self/status");
}

// A copy of the whole tensor would need as much shared memory as the tensor.
inline void check_nothing_is_copied(const RankContext& context) {
  Group group = context.join();
  check_works(group);
  const size_t before = shared_bytes();
  std::vector<float> x(size_t{4} << 20, 1.0f);
  std::vector<float> y(x.size());
  group.all_reduce(std::span(x));
  group.all_reduce(std::span<const float>(x), std::span(y));
  group.reduce(std::span(x), 0);
  group.broadcast(std::span(x), 0);
  group.all_reduce_many(std::vector{std::span(x), std::span(y)});
  const auto ranks = static_cast<float>(group.world_size());
  check_all(x, ranks * ranks * ranks);
  check(shared_bytes() - before < x.size() * sizeof(float) / 2, "windows alone");
}

inline void check_no_blocks_are_copied(const RankContext& context) {
  Group group = context.join();
  check_works(group);
  const size_t before = shared_bytes();
  const auto ranks = static_cast<size_t>(group.world_size());
  std::vector<float> whole(ranks << 22, 1.0f);
  std::vector<float> block(whole.size() / ranks), other(whole.size());
  group.reduce_scatter(std::span<const float>(whole), std::span(block));
  group.all_gather(std::span<const float>(block), std::span(whole));
  check_all(whole, static_cast<float>(ranks));
  group.all_to_all(std::span<const float>(whole), std::span(other));
  check_all(other, static_cast<float>(ranks));
  check(shared_bytes() - before < whole.size() * sizeof(float) / 2, "windows alone");
}

}  // namespace tutti::testing
