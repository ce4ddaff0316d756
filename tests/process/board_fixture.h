// For tests of operations on boards: tensors in every kind of memory, checked by value, and
// counters that all processes of a test share.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <deque>
#include <fstream>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "proto/types.h"
#include "tests/support/test_mesh.h"
#include "tests/support/values.h"

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

// A tensor in shared or ordinary memory.
class Tensor {
 public:
  Tensor(Group& group, size_t bytes, bool shared)
      : group_(group), shared_(shared), own_(shared ? 0 : bytes) {
    data_ = shared ? static_cast<std::byte*>(tutti_alloc(group.get(), bytes)) : own_.data();
    check(data_ != nullptr || bytes == 0, "memory");
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (shared_) tutti_free(group_.get(), data_);
  }
  std::byte* data() const { return data_; }

 private:
  Group& group_;
  const bool shared_;
  Bytes own_;
  std::byte* data_ = nullptr;
};

enum class Memory { ordinary, shared, by_rank, by_side };
inline constexpr Memory kMemories[] = {Memory::ordinary, Memory::shared, Memory::by_rank,
                                       Memory::by_side};
// `passing`: asynchronous, with buffers that stay. by_rank: even ranks are asynchronous, the others
// block. by_three: ranks in turn pass, block and are asynchronous.
enum class Way { blocking, async, passing, by_rank, by_three };

struct Task {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  size_t count = 0;
  Memory memory = Memory::ordinary;
  Way way = Way::blocking;
  bool in_place = true;
  std::string strategy;
};

inline std::string describe(const Task& task) {
  return std::string(name_of(task.collective)) + " of " + std::to_string(task.count) + " " +
         std::string(name_of(task.dtype)) + " " + std::string(name_of(task.op)) + ", memory " +
         std::to_string(static_cast<int>(task.memory)) + ", way " +
         std::to_string(static_cast<int>(task.way)) + (task.in_place ? ", in place" : "");
}

// One rank's part in a task: begin() starts the operation, end() waits for it and checks the
// result.
class Part {
 public:
  Part(Group& group, const Task& task)
      : group_(group),
        task_(possible(task)),
        world_(group.world_size()),
        rank_(group.rank()),
        root_(world_ - 1),
        in_(group, bytes(std::max(in_elements(), task_.in_place ? out_elements() : 0)),
            is_shared(false)),
        out_(group, bytes(task_.in_place ? 0 : out_elements()), is_shared(true)) {
    for (size_t i = 0; i < in_elements(); ++i) put_at(in_side(), i, mine(i));
  }

  void begin() {
    const Way way = own_way();
    const bool async = way != Way::blocking;
    tutti_work* work = nullptr;
    tutti_options options = tutti_defaults();
    options.buffers_stay = way == Way::passing ? 1 : 0;
    if (!task_.strategy.empty()) options.strategy = task_.strategy.c_str();
    options.factor = factor();
    Error::check(call(options, async ? &work : nullptr));
    if (work != nullptr) work_.emplace(work);
  }
  void end() {
    if (work_) work_->wait();
    for (size_t i = 0; i < out_elements(); ++i) {
      const double want = held(task_.dtype, wanted(i));
      const double got = get_at(out_side(), i);
      if (got == want) continue;
      check(false, describe(task_) + ": element " + std::to_string(i) + " is " +
                       std::to_string(got) + ", not " + std::to_string(want));
    }
    if (!one_buffer())
      for (size_t i = 0; i < in_elements(); ++i)
        check(get_at(in_side(), i) == held(task_.dtype, mine(i)),
              describe(task_) + ": the input changed");
  }
  void run() {
    begin();
    end();
  }

 private:
  Way own_way() const {
    if (task_.way == Way::by_rank) return rank_ % 2 == 0 ? Way::async : Way::blocking;
    constexpr Way kThree[] = {Way::passing, Way::blocking, Way::async};
    return task_.way == Way::by_three ? kThree[rank_ % 3] : task_.way;
  }
  // An all_to_all is never in place.
  static Task possible(Task task) {
    task.in_place &= task.collective != Collective::all_to_all;
    return task;
  }
  // A power of two that the input is divided by, so that results are those of a sum.
  double factor() const {
    if (task_.op != Op::premul_sum) return 1;
    return rank_ % 2 == 1 ? 2 : 0.25;
  }
  double mine(size_t i) const { return contribution(task_.op, rank_, i) / factor(); }
  size_t bytes(size_t elements) const { return elements * size_of(task_.dtype); }
  bool is_shared(bool output) const {
    if (task_.memory == Memory::by_rank) return rank_ % 2 == 1;
    if (task_.memory == Memory::by_side) return output;
    return task_.memory == Memory::shared;
  }
  size_t in_elements() const {
    if (task_.collective == Collective::barrier) return 0;
    const bool from_root =
        task_.collective == Collective::broadcast || task_.collective == Collective::scatter;
    if (from_root && rank_ != root_) return 0;
    const bool all = has_input_blocks(task_.collective);
    return task_.count * static_cast<size_t>(all ? world_ : 1);
  }
  size_t out_elements() const {
    if (task_.collective == Collective::barrier) return 0;
    const bool to_root =
        task_.collective == Collective::reduce || task_.collective == Collective::gather;
    if (to_root && rank_ != root_) return 0;
    const bool all = has_output_blocks(task_.collective);
    return task_.count * static_cast<size_t>(all ? world_ : 1);
  }
  bool one_buffer() const { return task_.in_place || task_.collective == Collective::broadcast; }
  std::byte* in_side() const {
    const bool at_root = task_.collective == Collective::gather && rank_ == root_;
    const bool within = task_.in_place && (at_root || task_.collective == Collective::all_gather);
    return in_.data() + (within ? bytes(task_.count) * static_cast<size_t>(rank_) : 0);
  }
  std::byte* out_side() const {
    if (!task_.in_place && task_.collective == Collective::broadcast)
      return rank_ == root_ ? in_.data() : out_.data();
    if (!task_.in_place) return out_.data();
    const bool at_root = task_.collective == Collective::scatter && rank_ == root_;
    const bool within = at_root || task_.collective == Collective::reduce_scatter;
    return in_.data() + (within ? bytes(task_.count) * static_cast<size_t>(rank_) : 0);
  }
  void put_at(std::byte* side, size_t i, double value) {
    element_.resize(size_of(task_.dtype));
    put(element_, task_.dtype, 0, value);
    std::memcpy(side + bytes(i), element_.data(), element_.size());
  }
  double get_at(const std::byte* side, size_t i) {
    element_.assign(side + bytes(i), side + bytes(i + 1));
    return get(element_, task_.dtype, 0);
  }

  tutti_code call(const tutti_options& options, tutti_work** work) {
    const auto dtype = static_cast<tutti_dtype>(task_.dtype);
    const auto op = static_cast<tutti_op>(task_.op);
    switch (task_.collective) {
      case Collective::all_reduce:
        return tutti_all_reduce(group_.get(), in_side(), out_side(), task_.count, dtype, op,
                                &options, work);
      case Collective::reduce:
        return tutti_reduce(group_.get(), in_side(), out_side(), task_.count, dtype, op, root_,
                            &options, work);
      case Collective::broadcast:
        return tutti_broadcast(group_.get(), out_side(), task_.count, dtype, root_, &options, work);
      case Collective::all_gather:
        return tutti_all_gather(group_.get(), in_side(), out_side(), task_.count, dtype, &options,
                                work);
      case Collective::reduce_scatter:
        return tutti_reduce_scatter(group_.get(), in_side(), out_side(), task_.count, dtype, op,
                                    &options, work);
      case Collective::gather:
        return tutti_gather(group_.get(), in_side(), out_side(), task_.count, dtype, root_,
                            &options, work);
      case Collective::scatter:
        return tutti_scatter(group_.get(), in_side(), out_side(), task_.count, dtype, root_,
                             &options, work);
      case Collective::all_to_all:
        return tutti_all_to_all(group_.get(), in_side(), out_side(), task_.count, dtype, &options,
                                work);
      case Collective::barrier:
        return tutti_barrier(group_.get(), &options, work);
    }
    return TUTTI_UNIMPLEMENTED;
  }

  double wanted(size_t i) const {
    const auto rank = static_cast<size_t>(rank_);
    switch (task_.collective) {
      case Collective::broadcast:
        return contribution(task_.op, root_, i);
      case Collective::all_gather:
      case Collective::gather:
        return contribution(task_.op, static_cast<int>(i / task_.count), i % task_.count);
      case Collective::scatter:
        return contribution(task_.op, root_, rank * task_.count + i);
      case Collective::all_to_all:
        return contribution(task_.op, static_cast<int>(i / task_.count),
                            rank * task_.count + i % task_.count);
      case Collective::reduce_scatter:
        return expected(task_.op, world_, rank * task_.count + i);
      default:
        return expected(task_.op, world_, i);
    }
  }

  Group& group_;
  const Task task_;
  const int world_;
  const int rank_;
  const int root_;
  Tensor in_;
  Tensor out_;
  Bytes element_;
  std::optional<Work> work_;
};

inline void run_task(Group& group, const Task& task) { Part(group, task).run(); }

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

}  // namespace tutti::testing
