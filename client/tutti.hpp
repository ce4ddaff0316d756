// Tutti for C++20, header-only over tutti.h: handles that free themselves, spans, and failures as
// tutti::Error. Every call has the contract of the C function of the same name; what that returns
// as a code other than TUTTI_OK is thrown. Classes can be moved, not copied.
//
//   tutti::Group group = tutti::Group::join();  // Everything from TUTTI_* in the environment.
//   std::vector<float> x(1024, 1.0f);
//   group.all_reduce(std::span(x), tutti::mean);
//   tutti::Work work = group.all_reduce_async(std::span(x), tutti::sum);
//   work.wait();
#pragma once

#include <tutti.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti {

// The reductions. mean and premul_sum are of floating-point elements only, band, bor and bxor of
// integers and bools.
inline constexpr tutti_op sum = TUTTI_SUM;
inline constexpr tutti_op mean = TUTTI_MEAN;
inline constexpr tutti_op min = TUTTI_MIN;
inline constexpr tutti_op max = TUTTI_MAX;
inline constexpr tutti_op prod = TUTTI_PROD;
inline constexpr tutti_op band = TUTTI_BAND;
inline constexpr tutti_op bor = TUTTI_BOR;
inline constexpr tutti_op bxor = TUTTI_BXOR;
inline constexpr tutti_op premul_sum = TUTTI_PREMUL_SUM;  // By Options::factor.

// Thrown by every call that fails. what() is the name of the code and the message.
class Error : public std::runtime_error {
 public:
  explicit Error(const tutti_error& error)
      : std::runtime_error(std::string(tutti_code_name(error.code)) + ": " + error.message),
        code(error.code),
        rank(error.rank),
        host(error.host) {}

  // Throws the last failure of this thread unless `code` is TUTTI_OK: for calls of C functions.
  static void check(tutti_code code) {
    if (code != TUTTI_OK) throw Error(*tutti_last_error());
  }

  tutti_code code;
  int rank;          // The rank to blame; -1: none, or a worker or host is.
  std::string host;  // The name of the host to blame; "": none.
};

// The element types that have a dtype. For others, such as 16-bit floats, pass Group::get() to the
// C functions.
template <class T>
concept Element = std::is_same_v<T, float> || std::is_same_v<T, double> ||
    std::is_same_v<T, bool> || std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t> ||
    std::is_same_v<T, int16_t> || std::is_same_v<T, uint16_t> || std::is_same_v<T, int32_t> ||
    std::is_same_v<T, uint32_t> || std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>;

// The dtype of an element type.
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

// What to join. A field that is left empty or -1 is taken from the environment.
struct JoinOptions {
  std::string socket;   // Path of the agent's socket; else TUTTI_SOCKET, or /run/tutti/tuttid.sock.
  std::string job;      // Name of the job; else TUTTI_JOB, or the launcher's.
  std::string token;    // The job's token; else TUTTI_TOKEN, or none.
  int rank = -1;        // This rank, from 0; else TUTTI_RANK, or the launcher's: see tutti_join().
  int world_size = -1;  // Number of ranks of the job; else TUTTI_WORLD_SIZE, or the launcher's.
  // How long to wait for the other ranks, and the default timeout of operations; else TUTTI_TIMEOUT
  // in seconds, or 30 s.
  std::chrono::milliseconds timeout{-1};
  // Whether reductions are reproducible where the call does not say; else TUTTI_REPRODUCIBLE.
  std::optional<bool> reproducible = std::nullopt;
  // Whether results are verified where the call does not say; else TUTTI_VERIFY.
  std::optional<bool> verify = std::nullopt;
};

// How to run one operation.
struct Options {
  // "ring", "tree:K", "centralized", "auto" or "LOCAL,GLOBAL", the same on all ranks. Empty: the
  // job's strategy.
  std::string strategy;
  std::chrono::milliseconds timeout{0};  // From the call; 0: the timeout of the join.
  double factor = 1;          // What premul_sum multiplies this rank's input by; see tutti_options.
  bool buffers_stay = false;  // Until the operation has ended; faster if large: see tutti_options.
  // A stream of a GPU, or nullptr for the default one: the operation, on GPU memory, goes with it.
  // See on_stream of tutti_options.
  std::optional<void*> stream = std::nullopt;
  // Whether the bits are a function of the ranks' values alone; else as the join says. See
  // reproducible of tutti_options.
  std::optional<bool> reproducible = std::nullopt;
  // Whether the ranks compare the checksums of their results; else as the join says. See verify of
  // tutti_options.
  std::optional<bool> verify = std::nullopt;
};

// An operation under way. Its buffers must stay valid, and must not be accessed, until wait()
// returns: other operations on what it writes are refused. May outlive its group. The destructor
// does not wait: see tutti_work_free().
class Work {
 public:
  // Takes ownership of a C handle.
  explicit Work(tutti_work* work) : work_(work) {}

  // Blocks until the operation has ended and copies its result to the outputs. Throws if it failed.
  void wait() { Error::check(tutti_work_wait(work_.get(), -1)); }
  // Like wait(), for at most `timeout`. Returns false if the operation is still under way then.
  bool wait_for(std::chrono::milliseconds timeout) {
    tutti_code code = tutti_work_wait(work_.get(), static_cast<int32_t>(timeout.count()));
    if (code == TUTTI_DEADLINE_EXCEEDED) {
      if (!done()) return false;
      code = tutti_work_wait(work_.get(), 0);  // It may have ended since the wait ran out.
    }
    Error::check(code);
    return true;
  }
  // Whether the operation has ended, so that wait() would not block.
  bool done() { return tutti_work_done(work_.get()) != 0; }
  // Calls `done` once, on a thread of the library, when wait() would no longer block: see
  // tutti_work_notify(). It must not throw.
  void notify(std::function<void()> done) {
    auto call = std::make_unique<std::function<void()>>(std::move(done));
    Error::check(tutti_work_notify(work_.get(), run_once, call.get()));
    static_cast<void>(call.release());
  }
  // The rank whose message was received, after wait(); -1: it is no receive.
  int source() { return tutti_work_source(work_.get()); }
  // A descriptor that is readable once wait() would no longer block. It belongs to the work.
  int fd() {
    const int fd = tutti_work_fd(work_.get());
    if (fd < 0) throw Error(*tutti_last_error());
    return fd;
  }

 private:
  static void run_once(void* call) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(call));
    (*owned)();
  }
  struct Free {
    void operator()(tutti_work* work) const { tutti_work_free(work); }
  };
  std::unique_ptr<tutti_work, Free> work_;
};

// A group of ranks: those of the whole job, or of a sub-group. May be used by several threads at
// once. The destructor leaves the group if leave() was not called.
class Group {
 public:
  // Joins a job and waits until all its ranks have joined.
  static Group join(const JoinOptions& options = {}) {
    tutti_join_options given = tutti_join_defaults();
    given.socket = text(options.socket);
    given.job = text(options.job);
    given.token = text(options.token);
    given.rank = options.rank;
    given.world_size = options.world_size;
    given.timeout_ms = static_cast<int32_t>(options.timeout.count());
    given.reproducible = choice(options.reproducible);
    given.verify = choice(options.verify);
    tutti_group* group = nullptr;
    Error::check(tutti_join(&given, &group));
    return Group(group);
  }

  // This rank in the group, from 0.
  int rank() const { return tutti_rank(get()); }
  // The number of ranks in the group.
  int world_size() const { return tutti_world_size(get()); }
  // The launcher that gave rank or world size: "TUTTI_*", "torchrun", "Open MPI", "PMI", "Slurm",
  // or "".
  std::string launcher() const { return tutti_launcher(get()); }
  // The epoch of the job: higher each time the ranks join again.
  uint32_t epoch() const { return tutti_epoch(get()); }
  // The names of the hosts on which the ranks run, by rank in this group.
  std::vector<std::string> hosts() const {
    std::vector<std::string> names;
    for (int r = 0; r < world_size(); ++r) names.emplace_back(tutti_host_of(get(), r));
    return names;
  }

  // Makes a group of some ranks of the job, in this order. Only its members call this, all with the
  // same list and on the group of the whole job.
  Group subgroup(std::span<const uint32_t> ranks) {
    tutti_group* made = nullptr;
    Error::check(tutti_subgroup(get(), ranks.data(), ranks.size(), &made));
    return Group(made);
  }
  // Leaves on purpose: the other ranks learn of it, and operations under way end CANCELLED.
  void leave() { Error::check(tutti_leave(get())); }

  // Allocates `count` elements of memory shared with the daemon, which operations never copy. The
  // contents are undefined. Valid until free(), or until the last Group and Work of the job is
  // gone.
  template <Element T>
  std::span<T> alloc(size_t count) {
    void* memory = tutti_alloc(get(), count * sizeof(T));
    if (memory == nullptr) throw Error(*tutti_last_error());
    return {static_cast<T*>(memory), count};
  }
  // Frees memory from alloc().
  template <Element T>
  void free(std::span<T> memory) {
    tutti_free(get(), memory.data());
  }

  // Reduces `x` over all ranks, in place, or `in` into `out` of the same size. Blocks until done;
  // the _async forms return the operation's Work instead.
  template <Element T>
  void all_reduce(std::span<T> x, tutti_op op = sum, const Options& options = {}) {
    all_reduce(std::span<const T>(x), x, op, options);
  }
  template <Element T>
  void all_reduce(std::span<const T> in, std::span<T> out, tutti_op op = sum,
                  const Options& options = {}) {
    check_sizes(in.size(), out.size(), TUTTI_ALL_REDUCE, "all_reduce");
    run(options, tutti_all_reduce, in.data(), out.data(), in.size(), dtype_of<T>(), op);
  }
  template <Element T>
  Work all_reduce_async(std::span<T> x, tutti_op op = sum, const Options& options = {}) {
    return all_reduce_async(std::span<const T>(x), x, op, options);
  }
  template <Element T>
  Work all_reduce_async(std::span<const T> in, std::span<T> out, tutti_op op = sum,
                        const Options& options = {}) {
    check_sizes(in.size(), out.size(), TUTTI_ALL_REDUCE, "all_reduce");
    return start(options, tutti_all_reduce, in.data(), out.data(), in.size(), dtype_of<T>(), op);
  }

  // Reduces a list of tensors as one operation, in place or into `outs`.
  template <Element T>
  void all_reduce_many(const std::vector<std::span<T>>& xs, tutti_op op = sum,
                       const Options& options = {}) {
    const TensorList list(xs, xs);
    run(options, tutti_all_reduce_many, list.ins.data(), list.outs.data(), list.counts.data(),
        list.counts.size(), dtype_of<T>(), op);
  }
  template <Element T>
  Work all_reduce_many_async(const std::vector<std::span<T>>& xs, tutti_op op = sum,
                             const Options& options = {}) {
    return start_many(TensorList(xs, xs), dtype_of<T>(), op, options);
  }
  template <Element T>
  Work all_reduce_many_async(const std::vector<std::span<const T>>& ins,
                             const std::vector<std::span<T>>& outs, tutti_op op = sum,
                             const Options& options = {}) {
    return start_many(TensorList(ins, outs), dtype_of<T>(), op, options);
  }

  // Reduces `x` over all ranks into the root's `x`. This and all verbs below block.
  template <Element T>
  void reduce(std::span<T> x, int root, tutti_op op = sum, const Options& options = {}) {
    run(options, tutti_reduce, x.data(), x.data(), x.size(), dtype_of<T>(), op, root);
  }

  // Copies the root's `x` to every other rank's.
  template <Element T>
  void broadcast(std::span<T> x, int root, const Options& options = {}) {
    run(options, tutti_broadcast, x.data(), x.size(), dtype_of<T>(), root);
  }

  // Concatenates the inputs of all ranks on every rank.
  template <Element T>
  void all_gather(std::span<const T> in, std::span<T> out, const Options& options = {}) {
    check_sizes(in.size() * static_cast<size_t>(world_size()), out.size(), TUTTI_ALL_GATHER,
                "all_gather");
    run(options, tutti_all_gather, in.data(), out.data(), in.size(), dtype_of<T>());
  }

  // Reduces `in` over all ranks and gives each rank its part.
  template <Element T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, tutti_op op = sum,
                      const Options& options = {}) {
    check_sizes(in.size(), out.size() * static_cast<size_t>(world_size()), TUTTI_REDUCE_SCATTER,
                "reduce_scatter");
    run(options, tutti_reduce_scatter, in.data(), out.data(), out.size(), dtype_of<T>(), op);
  }

  // Concatenates the inputs of all ranks on the root.
  template <Element T>
  void gather(std::span<const T> in, std::span<T> out, int root, const Options& options = {}) {
    if (rank() == root)
      check_sizes(in.size() * static_cast<size_t>(world_size()), out.size(), TUTTI_GATHER,
                  "gather");
    run(options, tutti_gather, in.data(), out.data(), in.size(), dtype_of<T>(), root);
  }

  // Gives each rank its part of the root's `in`.
  template <Element T>
  void scatter(std::span<const T> in, std::span<T> out, int root, const Options& options = {}) {
    if (rank() == root)
      check_sizes(in.size(), out.size() * static_cast<size_t>(world_size()), TUTTI_SCATTER,
                  "scatter");
    run(options, tutti_scatter, in.data(), out.data(), out.size(), dtype_of<T>(), root);
  }

  // Sends part r of `in` to rank r; part r of `out` is from rank r.
  template <Element T>
  void all_to_all(std::span<const T> in, std::span<T> out, const Options& options = {}) {
    const size_t count = in.size() / static_cast<size_t>(world_size());
    check_sizes(in.size(), out.size(), TUTTI_ALL_TO_ALL, "all_to_all");
    check_sizes(in.size(), count * static_cast<size_t>(world_size()), TUTTI_ALL_TO_ALL,
                "all_to_all");
    run(options, tutti_all_to_all, in.data(), out.data(), count, dtype_of<T>());
  }

  // all_gather with a count for each rank, the same list on all.
  template <Element T>
  void all_gather_v(std::span<const T> in, std::span<T> out, std::span<const size_t> counts,
                    const Options& options = {}) {
    check_counts(counts, out.size(), TUTTI_ALL_GATHER, "all_gather_v");
    check_sizes(in.size(), counts[static_cast<size_t>(rank())], TUTTI_ALL_GATHER, "all_gather_v");
    run(options, tutti_all_gather_v, in.data(), out.data(), counts.data(), dtype_of<T>());
  }

  // reduce_scatter with a count for each rank, the same list on all.
  template <Element T>
  void reduce_scatter_v(std::span<const T> in, std::span<T> out, std::span<const size_t> counts,
                        tutti_op op = sum, const Options& options = {}) {
    check_counts(counts, in.size(), TUTTI_REDUCE_SCATTER, "reduce_scatter_v");
    check_sizes(counts[static_cast<size_t>(rank())], out.size(), TUTTI_REDUCE_SCATTER,
                "reduce_scatter_v");
    run(options, tutti_reduce_scatter_v, in.data(), out.data(), counts.data(), dtype_of<T>(), op);
  }

  // all_to_all with a count for each pair of ranks.
  template <Element T>
  void all_to_all_v(std::span<const T> in, std::span<const size_t> in_counts, std::span<T> out,
                    std::span<const size_t> out_counts, const Options& options = {}) {
    check_counts(in_counts, in.size(), TUTTI_ALL_TO_ALL, "all_to_all_v");
    check_counts(out_counts, out.size(), TUTTI_ALL_TO_ALL, "all_to_all_v");
    run(options, tutti_all_to_all_v, in.data(), in_counts.data(), out.data(), out_counts.data(),
        dtype_of<T>());
  }

  // Sends `x` to rank `destination`.
  template <Element T>
  void send(std::span<const T> x, int destination, uint64_t tag = 0, const Options& options = {}) {
    run(options, tutti_send, x.data(), x.size(), dtype_of<T>(), destination, tag);
  }
  template <Element T>
  Work send_async(std::span<const T> x, int destination, uint64_t tag = 0,
                  const Options& options = {}) {
    return start(options, tutti_send, x.data(), x.size(), dtype_of<T>(), destination, tag);
  }
  // Receives a message of rank `source`, or of any rank if TUTTI_ANY_RANK, and returns the sender's
  // rank; of the _async form Work::source() returns it after wait().
  template <Element T>
  int recv(std::span<T> x, int source, uint64_t tag = 0, const Options& options = {}) {
    Work work = recv_async(x, source, tag, options);
    work.wait();
    return work.source();
  }
  template <Element T>
  Work recv_async(std::span<T> x, int source, uint64_t tag = 0, const Options& options = {}) {
    return start(options, tutti_recv, x.data(), x.size(), dtype_of<T>(), source, tag);
  }

  // Returns once every rank has called it.
  void barrier(const Options& options = {}) { run(options, tutti_barrier); }

  // The C handle, for calls of C functions. Stays owned by the group.
  tutti_group* get() const { return group_.get(); }

 private:
  // The arrays that tutti_all_reduce_many() takes.
  struct TensorList {
    template <class In, class Out>
    TensorList(const std::vector<std::span<In>>& from, const std::vector<std::span<Out>>& to) {
      fits = from.size() == to.size();
      for (size_t i = 0; fits && i < from.size(); ++i) {
        fits = from[i].size() == to[i].size();
        ins.push_back(from[i].data());
        outs.push_back(to[i].data());
        counts.push_back(from[i].size());
      }
    }
    std::vector<const void*> ins;
    std::vector<void*> outs;
    std::vector<size_t> counts;
    bool fits = true;  // Else the list is not whole.
  };

  explicit Group(tutti_group* group) : group_(group) {}

  static int32_t choice(std::optional<bool> given) { return !given ? 0 : *given ? 1 : -1; }
  // Null: none. C's text would end at a NUL.
  static const char* text(const std::string& text) {
    if (text.find('\0') != std::string::npos)
      throw Error(tutti_error{TUTTI_INVALID_ARGUMENT, -1, "",
                              "a text of the options holds a NUL character"});
    return text.empty() ? nullptr : text.c_str();
  }

  void check_counts(std::span<const size_t> counts, size_t elements, tutti_collective collective,
                    const char* verb) const {
    size_t sum = 0;
    for (const size_t count : counts) sum += count;
    const bool is_whole = counts.size() == static_cast<size_t>(world_size());
    check_sizes(is_whole ? sum : elements + 1, elements, collective, verb);
  }
  // A call that is refused here keeps its place in the order: see tutti_refuse().
  void check_sizes(size_t in, size_t out, tutti_collective collective, const char* verb) const {
    if (in == out) return;
    std::string message = verb;  // Not by operator+, about which GCC 12 warns without a reason.
    message += ": the sizes of in and out do not fit";
    Error::check(tutti_refuse(get(), collective, TUTTI_INVALID_ARGUMENT, message.c_str()));
  }

  // Calls a collective of tutti.h with its arguments between the group and the options.
  template <class Function, class... Arguments>
  tutti_code call(const Options& options, tutti_work** work, Function* function,
                  Arguments... arguments) const {
    tutti_options given = tutti_defaults();
    given.strategy = text(options.strategy);
    given.timeout_ms = static_cast<int32_t>(options.timeout.count());
    given.factor = options.factor;
    given.buffers_stay = options.buffers_stay ? 1 : 0;
    given.on_stream = options.stream.has_value() ? 1 : 0;
    given.stream = options.stream.value_or(nullptr);
    given.reproducible = choice(options.reproducible);
    given.verify = choice(options.verify);
    return function(get(), arguments..., &given, work);
  }
  template <class Function, class... Arguments>
  void run(const Options& options, Function* function, Arguments... arguments) const {
    Error::check(call(options, nullptr, function, arguments...));
  }
  template <class Function, class... Arguments>
  Work start(const Options& options, Function* function, Arguments... arguments) const {
    tutti_work* work = nullptr;
    Error::check(call(options, &work, function, arguments...));
    return Work(work);
  }
  Work start_many(const TensorList& list, tutti_dtype dtype, tutti_op op,
                  const Options& options) const {
    check_sizes(list.fits, true, TUTTI_ALL_REDUCE, "all_reduce_many");
    return start(options, tutti_all_reduce_many, list.ins.data(), list.outs.data(),
                 list.counts.data(), list.counts.size(), dtype, op);
  }

  struct Free {
    void operator()(tutti_group* group) const { tutti_group_free(group); }
  };
  std::unique_ptr<tutti_group, Free> group_;
};

}  // namespace tutti
