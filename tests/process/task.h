// Operations of every kind, checked by value: a task is one of them, a sweep those of all
// combinations.
#pragma once

#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/call.h"
#include "tests/support/test_mesh.h"

namespace tutti::testing {

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
inline constexpr Way kWays[] = {Way::blocking, Way::async, Way::passing, Way::by_rank,
                                Way::by_three};

struct Task {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  size_t count = 0;
  Memory memory = Memory::ordinary;
  Way way = Way::blocking;
  bool in_place = true;
  std::string strategy;
  Counts counts;               // Instead of `count`: of each rank, or each pair.
  size_t first = 0;            // Of what a rank contributes: other values for other tensors.
  bool first_is_root = false;  // Else the last rank is.
};

inline std::string describe(const Task& task) {
  return std::string(name_of(task.collective)) + " of " +
         (task.counts.empty() ? std::to_string(task.count)
                              : ::testing::PrintToString(task.counts)) +
         " " + std::string(name_of(task.dtype)) + " " + std::string(name_of(task.op)) +
         ", memory " + std::to_string(static_cast<int>(task.memory)) + ", way " +
         std::to_string(static_cast<int>(task.way)) + (task.in_place ? ", in place " : " ") +
         task.strategy;
}

// Where the sides of a task lie: here where it says.
struct OnHost {
  static Tensor make(Group& group, size_t bytes, bool shared) { return {group, bytes, shared}; }
  static void write(std::byte* to, const Bytes& from) { std::ranges::copy(from, to); }
  static Bytes read(const std::byte* from, size_t bytes) { return {from, from + bytes}; }
  static void choose(tutti_options& /*options*/) {}
};

// One rank's part in a task: begin() starts the operation, end() waits for it and checks the
// result.
template <class Place>
class PartAt {
 public:
  PartAt(Group& group, const Task& task, const Place& place = {})
      : group_(group),
        place_(place),
        task_(possible(task)),
        rank_(group.rank()),
        reference_{task.collective,
                   group.world_size(),
                   task.op,
                   task.count,
                   task.first_is_root ? 0 : group.world_size() - 1,
                   task.counts,
                   task.first},
        in_(place.make(group,
                       bytes(std::max(reference_.inputs(rank_),
                                      task_.in_place ? reference_.outputs(rank_) : 0)),
                       is_shared(false))),
        out_(place.make(group, bytes(task_.in_place ? 0 : reference_.outputs(rank_)),
                        is_shared(true))),
        given_(inputs_of(reference_, task.dtype, rank_, factor())) {
    fill();
  }

  // What was there before is no result.
  void fill() {
    if (!one_buffer())
      place_.write(out_side(), Bytes(bytes(reference_.outputs(rank_)), std::byte{0x5a}));
    place_.write(in_side(), given_);
  }
  void begin() {
    run([this](const tutti_options& options, tutti_work** work) { return call(options, work); });
  }
  // Begins an operation of which this is a part.
  template <class Call>
  void run(const Call& call) {
    const Way way = own_way();
    tutti_work* work = nullptr;
    tutti_options options = tutti_defaults();
    options.buffers_stay = way == Way::passing ? 1 : 0;
    if (!task_.strategy.empty()) options.strategy = task_.strategy.c_str();
    options.factor = factor();
    place_.choose(options);
    Error::check(call(options, way == Way::blocking ? nullptr : &work));
    if (work != nullptr) work_.emplace(work);
  }
  void end() {
    if (work_) work_->wait();
    check_result();
  }
  void check_result() {
    const size_t results = reference_.outputs(rank_);
    const Bytes got = place_.read(out_side(), bytes(results));
    for (size_t i = 0; i < results; ++i) {
      const double want = held(task_.dtype, reference_.output(rank_, i));
      if (get(got, task_.dtype, i) == want) continue;
      check(false, describe(task_) + ": element " + std::to_string(i) + " is " +
                       std::to_string(get(got, task_.dtype, i)) + ", not " + std::to_string(want));
    }
    if (!one_buffer() || results == 0)
      check(place_.read(in_side(), given_.size()) == given_,
            describe(task_) + ": the input changed");
  }

  std::byte* in_side() const {
    const bool at_root = task_.collective == Collective::gather && rank_ == reference_.root;
    const bool within = task_.in_place && (at_root || task_.collective == Collective::all_gather);
    return in_.data() + (within ? own_block() : 0);
  }
  std::byte* out_side() const {
    if (!task_.in_place && task_.collective == Collective::broadcast)
      return rank_ == reference_.root ? in_.data() : out_.data();
    if (!task_.in_place) return out_.data();
    const bool at_root = task_.collective == Collective::scatter && rank_ == reference_.root;
    const bool within = at_root || task_.collective == Collective::reduce_scatter;
    return in_.data() + (within ? own_block() : 0);
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
  // A power of two, each rank's own, that the input is divided by: results are those of a sum.
  double factor() const {
    if (task_.op != Op::premul_sum) return 1;
    return std::ldexp(1, rank_ % 2 == 1 ? rank_ : -1 - rank_);
  }
  size_t bytes(size_t elements) const { return elements * size_of(task_.dtype); }
  size_t own_block() const { return bytes(reference_.before(rank_)); }
  bool is_shared(bool output) const {
    if (task_.memory == Memory::by_rank) return rank_ % 2 == 1;
    if (task_.memory == Memory::by_side) return output;
    return task_.memory == Memory::shared;
  }
  bool one_buffer() const { return task_.in_place || task_.collective == Collective::broadcast; }

  tutti_code call(const tutti_options& options, tutti_work** work) {
    return testing::call(group_.get(), reference_, task_.dtype, in_side(), out_side(), &options,
                         work);
  }

  using Side = decltype(std::declval<const Place&>().make(std::declval<Group&>(), 0, false));

  Group& group_;
  const Place place_;
  const Task task_;
  const int rank_;
  const Reference reference_;
  Side in_;
  Side out_;
  const Bytes given_;
  std::optional<Work> work_;
};
using Part = PartAt<OnHost>;

template <class Place = OnHost>
void run_task(Group& group, const Task& task, const Place& place = {}) {
  PartAt<Place> part(group, task, place);
  part.begin();
  part.end();
}

// An all_reduce of tensors with these counts at once. Where sides differ in memory and are one,
// every second tensor is shared.
template <class Place = OnHost>
void run_list(Group& group, const Task& task, const Counts& counts, const Place& place = {}) {
  std::deque<PartAt<Place>> parts;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  for (const size_t count : counts) {
    Task each = task;
    each.count = count;
    each.first = parts.size();
    if (task.memory == Memory::by_side && task.in_place)
      each.memory = parts.size() % 2 == 1 ? Memory::shared : Memory::ordinary;
    parts.emplace_back(group, each, place);
    ins.push_back(parts.back().in_side());
    outs.push_back(parts.back().out_side());
  }
  parts.front().run([&](const tutti_options& options, tutti_work** work) {
    return tutti_all_reduce_many(group.get(), ins.data(), outs.data(), counts.data(), counts.size(),
                                 static_cast<tutti_dtype>(task.dtype),
                                 static_cast<tutti_op>(task.op), &options, work);
  });
  for (PartAt<Place>& part : parts) part.end();
}

// The tasks of all combinations: of each collective with each count; of each list of counts at
// once; and of uneven blocks with counts up to each of these.
struct Sweep {
  std::vector<Collective> collectives = {Collective::all_reduce};
  Counts counts = {};
  std::vector<Counts> lists = {};
  Counts uneven = {};
  std::vector<Dtype> dtypes = {Dtype::f32};
  std::vector<Op> ops = {Op::sum};
  std::vector<Memory> memories = {Memory::ordinary};
  std::vector<Way> ways = {Way::blocking};
  std::vector<bool> in_place = {true};
  std::vector<std::string> strategies = {""};
  bool first_is_root = false;
};

template <class Place>
void run_shapes(Group& group, const Sweep& sweep, Task task, const Place& place) {
  for (const Collective collective : sweep.collectives)
    for (const size_t count : sweep.counts) {
      task.collective = collective;
      task.count = count;
      run_task(group, task, place);
    }
  task.collective = Collective::all_reduce;
  for (const Counts& list : sweep.lists) run_list(group, task, list, place);
  for (const size_t most : sweep.uneven)
    for (const Reference& uneven : uneven_cases(group.world_size(), most)) {
      task.collective = uneven.collective;
      task.counts = uneven.counts;
      run_task(group, task, place);
    }
}

template <class Place = OnHost>
void run_sweep(Group& group, const Sweep& sweep, const Place& place = {}) {
  for (const Dtype dtype : sweep.dtypes)
    for (const Op op : sweep.ops)
      for (const Memory memory : sweep.memories)
        for (const Way way : sweep.ways)
          for (const bool in_place : sweep.in_place)
            for (const std::string& strategy : sweep.strategies)
              if (applies_to(op, dtype))
                run_shapes(group, sweep,
                           {.dtype = dtype,
                            .op = op,
                            .memory = memory,
                            .way = way,
                            .in_place = in_place,
                            .strategy = strategy,
                            .first_is_root = sweep.first_is_root},
                           place);
}

}  // namespace tutti::testing
