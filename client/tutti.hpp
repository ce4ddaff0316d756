// Tutti for C++20: a thin skin over tutti.h. Handles that free themselves, spans, and failures as
// tutti::Error.
//
//   tutti::Group group = tutti::Group::join();  // All from TUTTI_* in the environment.
//   std::vector<float> x(1024, 1.0f);
//   group.all_reduce(std::span(x), tutti::mean);
//   tutti::Work work = group.all_reduce_async(std::span(x), tutti::sum);
//   work.wait();
#pragma once

#include <tutti.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

inline constexpr tutti_op sum = TUTTI_SUM;
inline constexpr tutti_op mean = TUTTI_MEAN;
inline constexpr tutti_op min = TUTTI_MIN;
inline constexpr tutti_op max = TUTTI_MAX;
inline constexpr tutti_op prod = TUTTI_PROD;

// Why a call failed, and who is to blame (rank -1 and host "": nobody in particular).
class Error : public std::runtime_error {
 public:
  explicit Error(const tutti_error& error)
      : std::runtime_error(std::string(tutti_code_name(error.code)) + ": " + error.message),
        code(error.code),
        rank(error.rank),
        host(error.host) {}

  // Throws the last failure of this thread unless `code` is OK.
  static void check(tutti_code code) {
    if (code != TUTTI_OK) throw Error(*tutti_last_error());
  }

  tutti_code code;
  int rank;
  std::string host;
};

// What has a dtype of its own; for others, such as 16-bit floats, use the C functions on get().
template <class T>
concept Element = std::is_same_v<T, float> || std::is_same_v<T, double> ||
    std::is_same_v<T, bool> || std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t> ||
    std::is_same_v<T, int16_t> || std::is_same_v<T, uint16_t> || std::is_same_v<T, int32_t> ||
    std::is_same_v<T, uint32_t> || std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>;

template <Element T>
constexpr tutti_dtype dtype_of() {
  if (std::is_same_v<T, float>) return TUTTI_F32;
  if (std::is_same_v<T, double>) return TUTTI_F64;
  if (std::is_same_v<T, bool>) return TUTTI_BOOL;
  constexpr bool is_signed = std::is_signed_v<T>;
  if (sizeof(T) == 1) return is_signed ? TUTTI_I8 : TUTTI_U8;
  if (sizeof(T) == 2) return is_signed ? TUTTI_I16 : TUTTI_U16;
  if (sizeof(T) == 4) return is_signed ? TUTTI_I32 : TUTTI_U32;
  return is_signed ? TUTTI_I64 : TUTTI_U64;
}

// How to join; what is left empty or -1 comes from TUTTI_* in the environment.
struct JoinOptions {
  std::string socket;
  std::string job;
  std::string token;
  int rank = -1;
  int world_size = -1;
  std::chrono::milliseconds timeout{-1};
};

// How to run one operation; empty or 0: the job's default.
struct Options {
  std::string strategy;
  std::chrono::milliseconds timeout{0};
};

// An operation under way. Its buffers must live, and be left alone, until it was waited for.
class Work {
 public:
  explicit Work(tutti_work* work) : work_(work) {}

  // Throws what the operation failed with.
  void wait() { Error::check(tutti_work_wait(work_.get(), -1)); }
  // False: still under way after `timeout`.
  bool wait_for(std::chrono::milliseconds timeout) {
    const tutti_code code = tutti_work_wait(work_.get(), static_cast<int32_t>(timeout.count()));
    if (code == TUTTI_DEADLINE_EXCEEDED && !done()) return false;
    Error::check(code);
    return true;
  }
  bool done() { return tutti_work_done(work_.get()) != 0; }

 private:
  struct Free {
    void operator()(tutti_work* work) const { tutti_work_free(work); }
  };
  std::unique_ptr<tutti_work, Free> work_;
};

class Group {
 public:
  static Group join(const JoinOptions& options = {}) {
    tutti_join_options given = tutti_join_defaults();
    given.socket = text(options.socket);
    given.job = text(options.job);
    given.token = text(options.token);
    given.rank = options.rank;
    given.world_size = options.world_size;
    given.timeout_ms = static_cast<int32_t>(options.timeout.count());
    tutti_group* group = nullptr;
    Error::check(tutti_join(&given, &group));
    return Group(group);
  }

  int rank() const { return tutti_rank(get()); }
  int world_size() const { return tutti_world_size(get()); }
  uint32_t epoch() const { return tutti_epoch(get()); }
  // By rank of this group.
  std::vector<std::string> hosts() const {
    std::vector<std::string> names;
    for (int r = 0; r < world_size(); ++r) names.emplace_back(tutti_host_of(get(), r));
    return names;
  }

  // Every member calls this with the same ranks of the job.
  Group subgroup(std::span<const uint32_t> ranks) {
    tutti_group* made = nullptr;
    Error::check(tutti_subgroup(get(), ranks.data(), ranks.size(), &made));
    return Group(made);
  }
  void leave() { Error::check(tutti_leave(get())); }

  // Memory shared with the daemon: never copied. It must not outlive the group's last handle.
  template <Element T>
  std::span<T> alloc(size_t count) {
    void* memory = tutti_alloc(get(), count * sizeof(T));
    if (memory == nullptr) throw Error(*tutti_last_error());
    return {static_cast<T*>(memory), count};
  }
  template <Element T>
  void free(std::span<T> memory) {
    tutti_free(get(), memory.data());
  }

  // The verbs block until the operation is done; what ends in _async gives its Work. In place, or
  // from `in` to `out` of the same size.
  template <Element T>
  void all_reduce(std::span<T> x, tutti_op op = sum, const Options& options = {}) {
    run(all_reduce_call(std::span<const T>(x), x, op), options);
  }
  template <Element T>
  void all_reduce(std::span<const T> in, std::span<T> out, tutti_op op = sum,
                  const Options& options = {}) {
    run(all_reduce_call(in, out, op), options);
  }
  template <Element T>
  Work all_reduce_async(std::span<T> x, tutti_op op = sum, const Options& options = {}) {
    return start(all_reduce_call(std::span<const T>(x), x, op), options);
  }
  template <Element T>
  Work all_reduce_async(std::span<const T> in, std::span<T> out, tutti_op op = sum,
                        const Options& options = {}) {
    return start(all_reduce_call(in, out, op), options);
  }

  // Many tensors at once, in place; all ranks list the same sizes in the same order. Small ones
  // travel together: see tutti_all_reduce_many().
  template <Element T>
  void all_reduce_many(const std::vector<std::span<T>>& xs, tutti_op op = sum,
                       const Options& options = {}) {
    run(all_reduce_many_call(xs, xs, op), options);
  }
  template <Element T>
  Work all_reduce_many_async(const std::vector<std::span<T>>& xs, tutti_op op = sum,
                             const Options& options = {}) {
    return start(all_reduce_many_call(xs, xs, op), options);
  }
  template <Element T>
  Work all_reduce_many_async(const std::vector<std::span<const T>>& ins,
                             const std::vector<std::span<T>>& outs, tutti_op op = sum,
                             const Options& options = {}) {
    return start(all_reduce_many_call(ins, outs, op), options);
  }

  // Only the root's `x` becomes the result; the others' stay as they are.
  template <Element T>
  void reduce(std::span<T> x, int root, tutti_op op = sum, const Options& options = {}) {
    run(
        [&](const tutti_options* o, tutti_work** work) {
          return tutti_reduce(get(), x.data(), x.data(), x.size(), dtype_of<T>(), op, root, o,
                              work);
        },
        options);
  }

  template <Element T>
  void broadcast(std::span<T> x, int root, const Options& options = {}) {
    run(
        [&](const tutti_options* o, tutti_work** work) {
          return tutti_broadcast(get(), x.data(), x.size(), dtype_of<T>(), root, o, work);
        },
        options);
  }

  // `out` holds world_size times as many elements as `in`.
  template <Element T>
  void all_gather(std::span<const T> in, std::span<T> out, const Options& options = {}) {
    same(in.size() * static_cast<size_t>(world_size()), out.size(), "all_gather");
    run(
        [&](const tutti_options* o, tutti_work** work) {
          return tutti_all_gather(get(), in.data(), out.data(), in.size(), dtype_of<T>(), o, work);
        },
        options);
  }

  // `in` holds world_size times as many elements as `out`.
  template <Element T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, tutti_op op = sum,
                      const Options& options = {}) {
    same(in.size(), out.size() * static_cast<size_t>(world_size()), "reduce_scatter");
    run(
        [&](const tutti_options* o, tutti_work** work) {
          return tutti_reduce_scatter(get(), in.data(), out.data(), out.size(), dtype_of<T>(), op,
                                      o, work);
        },
        options);
  }

  void barrier(const Options& options = {}) {
    run([&](const tutti_options* o, tutti_work** work) { return tutti_barrier(get(), o, work); },
        options);
  }

  // The C handle, for what this skin does not offer.
  tutti_group* get() const { return group_.get(); }

 private:
  explicit Group(tutti_group* group) : group_(group) {}

  static const char* text(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

  static void same(size_t in, size_t out, const char* verb) {
    if (in == out) return;
    const std::string message = std::string(verb) + ": the sizes of in and out do not fit";
    throw Error(tutti_error{TUTTI_INVALID_ARGUMENT, -1, "", message.c_str()});
  }

  // What a verb calls with the options and the place of its work.
  template <Element T>
  auto all_reduce_call(std::span<const T> in, std::span<T> out, tutti_op op) const {
    same(in.size(), out.size(), "all_reduce");
    return [=, group = get()](const tutti_options* o, tutti_work** work) {
      return tutti_all_reduce(group, in.data(), out.data(), in.size(), dtype_of<T>(), op, o, work);
    };
  }

  template <Element T, class In>
  auto all_reduce_many_call(const std::vector<std::span<In>>& ins,
                            const std::vector<std::span<T>>& outs, tutti_op op) const {
    same(ins.size(), outs.size(), "all_reduce_many");
    std::vector<const void*> from;
    std::vector<void*> to;
    std::vector<size_t> counts;
    for (size_t i = 0; i < ins.size(); ++i) {
      same(ins[i].size(), outs[i].size(), "all_reduce_many");
      from.push_back(ins[i].data());
      to.push_back(outs[i].data());
      counts.push_back(ins[i].size());
    }
    return [=, group = get(), from = std::move(from), to = std::move(to),
            counts = std::move(counts)](const tutti_options* o, tutti_work** work) {
      return tutti_all_reduce_many(group, from.data(), to.data(), counts.data(), counts.size(),
                                   dtype_of<T>(), op, o, work);
    };
  }

  static tutti_options given(const Options& options) {
    tutti_options given = tutti_defaults();
    given.strategy = text(options.strategy);
    given.timeout_ms = static_cast<int32_t>(options.timeout.count());
    return given;
  }

  // Without a work of its own: the library may then pass ordinary memory block by block.
  template <class Call>
  static void run(const Call& call, const Options& options) {
    const tutti_options o = given(options);
    Error::check(call(&o, nullptr));
  }

  template <class Call>
  static Work start(const Call& call, const Options& options) {
    const tutti_options o = given(options);
    tutti_work* work = nullptr;
    Error::check(call(&o, &work));
    return Work(work);
  }

  struct Free {
    void operator()(tutti_group* group) const { tutti_group_free(group); }
  };
  std::unique_ptr<tutti_group, Free> group_;
};

}  // namespace tutti
