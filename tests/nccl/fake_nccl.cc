// An NCCL for the fake driver: a library with the names of libnccl.so.2 whose ranks are processes,
// or threads, of this machine. As NCCL's, communicators that do not block are made, and queue work,
// by a thread of their own; work runs in the order of its stream and waits for all ranks there.
//
// FAKE_NCCL_VERSION in the environment is the version (22304). With FAKE_NCCL_LOG, rank 0 writes
// a line to that file for each collective. FAKE_NCCL_FAULTS: see fake_faults.h.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "daemon/kernel/kernel.h"
#include "daemon/nccl/library.h"
#include "tests/nccl/fake_faults.h"
#include "tests/nccl/fake_meeting.h"

// The fake driver, which this library links.
namespace cu = tutti::cuda;
// NOLINTBEGIN(readability-identifier-naming): its names.
extern "C" {
cu::Error cuDevicePrimaryCtxRetain(cu::Context*, cu::DeviceId);
cu::Error cuCtxPushCurrent_v2(cu::Context);
cu::Error cuCtxPopCurrent_v2(cu::Context*);
cu::Error cuStreamCreate(cu::Stream*, unsigned);
cu::Error cuStreamDestroy_v2(cu::Stream);
cu::Error cuStreamSynchronize(cu::Stream);
cu::Error cuLaunchHostFunc(cu::Stream, void (*)(void*), void*);
cu::Error cuMemcpyAsync(cu::Pointer, cu::Pointer, size_t, cu::Stream);
}
// NOLINTEND(readability-identifier-naming)

namespace tutti::fake {
namespace {

using nccl::Return;

// A context that is current: work of a stream comes from a thread of the driver.
class SomeContext {
 public:
  SomeContext() {
    cu::Context context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxPushCurrent_v2(context);
  }
  ~SomeContext() {
    cu::Context popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
  }
  SomeContext(const SomeContext&) = delete;
  SomeContext& operator=(const SomeContext&) = delete;
};

cu::Pointer address(const void* memory) { return reinterpret_cast<cu::Pointer>(memory); }

// Copies at once, from and to any memory.
bool copy_now(void* to, const void* from, size_t bytes) {
  const SomeContext current;
  cuda::Stream stream = nullptr;
  bool done = cuStreamCreate(&stream, cuda::kStreamNonBlocking) == cuda::kSuccess;
  done = done && cuMemcpyAsync(address(to), address(from), bytes, stream) == cuda::kSuccess;
  done = done && cuStreamSynchronize(stream) == cuda::kSuccess;
  cuStreamDestroy_v2(stream);
  return done;
}

std::optional<Dtype> dtype_of(int type) {
  constexpr Dtype kAll[] = {Dtype::i8,  Dtype::u8,  Dtype::i32, Dtype::u32, Dtype::i64,
                            Dtype::u64, Dtype::f16, Dtype::f32, Dtype::f64, Dtype::bf16};
  if (type < 0 || type >= static_cast<int>(std::size(kAll))) return std::nullopt;
  return kAll[type];
}

std::optional<Op> op_of(int op) {
  constexpr Op kAll[] = {Op::sum, Op::prod, Op::max, Op::min};
  if (op < 0 || op >= static_cast<int>(std::size(kAll))) return std::nullopt;
  return kAll[op];
}

struct Collective {
  const char* name;
  const void* from;
  void* to;
  size_t count;
  Dtype dtype;
  std::optional<Op> op;  // None: the root's values are everybody's.
  int root;              // -1: all ranks get the result.
};

// One part of the tensor, of all ranks. False: aborted.
bool run_part(Meeting& meeting, const Collective& work, size_t first, size_t count) {
  const size_t element = size_of(work.dtype);
  const auto* from = static_cast<const std::byte*>(work.from) + first * element;
  auto* to = static_cast<std::byte*>(work.to) + first * element;
  const bool gives = work.op || meeting.rank() == work.root;
  if (gives && !copy_now(meeting.part(meeting.rank()), from, count * element)) return false;
  if (!meeting.meet()) return false;
  std::vector<std::byte> result(count * element);
  if (work.op) {
    std::vector<Operand> sources;
    for (int rank = 0; rank < meeting.ranks(); ++rank)
      sources.push_back({meeting.part(rank), work.dtype});
    const Target target{result.data(), work.dtype};
    choose_kernel()({.targets = &target,
                     .target_count = 1,
                     .sources = sources.data(),
                     .source_count = static_cast<uint32_t>(sources.size()),
                     .count = count,
                     .op = *work.op,
                     .divisor = 1,
                     .past_cache = false});
  } else {
    std::memcpy(result.data(), meeting.part(work.root), result.size());
  }
  const bool takes = !work.op || work.root < 0 || meeting.rank() == work.root;
  if (takes && !copy_now(to, result.data(), result.size())) return false;
  return meeting.meet();
}

void run(Meeting& meeting, const Collective& work) {
  const size_t most = kPartBytes / size_of(work.dtype);
  for (size_t first = 0; first < work.count; first += most)
    if (!run_part(meeting, work, first, std::min(most, work.count - first))) return;
}

void write_log(const Meeting& meeting, const Collective& work) {
  const char* path = std::getenv("FAKE_NCCL_LOG");
  if (path == nullptr || meeting.rank() != 0) return;
  std::ofstream(path, std::ios::app)
      << work.name << ' ' << name_of(work.dtype) << ' ' << work.count << std::endl;
}

}  // namespace
}  // namespace tutti::fake

namespace tutti::nccl {

// A communicator. What it does by itself, a thread does that ends when it is aborted.
struct CommTag {
  int ranks = 0;
  int rank = 0;
  std::string path;
  std::shared_ptr<fake::Meeting> meeting;
  std::atomic<Return> state = kInProgress;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool ends = false;
  std::shared_ptr<std::mutex> running = std::make_shared<std::mutex>();  // Held by work.
  std::thread thread;

  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  void run_tasks() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ends || !tasks.empty(); });
      if (ends) return;
      const std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  void begin() {
    if (fake::has_fault("init_hangs", rank)) return;
    if (fake::has_fault("init_fails", rank) || meeting == nullptr) {
      state = kSystemError;
      return;
    }
    if (meeting->meet()) state = kSuccess;
  }
  Return launch(const fake::Collective& work, cuda::Stream stream) {
    if (state != kSuccess) return kInvalidArgument;
    if (fake::has_fault("launch_fails", rank)) return kInternalError;
    state = kInProgress;
    add([this, work, stream] { queue(work, stream); });
    return kInProgress;
  }
  // And frees it, once its work has ended.
  void end() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
      changed.notify_all();
    }
    thread.join();
    const auto last = running;
    const std::lock_guard until_it_ends(*last);
    delete this;
  }
  void queue(const fake::Collective& work, cuda::Stream stream) {
    struct Queued {
      std::shared_ptr<fake::Meeting> meeting;
      std::shared_ptr<std::mutex> running;
      fake::Collective work;
    };
    const auto run_and_delete = [](void* argument) {
      const std::unique_ptr<Queued> queued(static_cast<Queued*>(argument));
      const std::lock_guard lock(*queued->running);
      if (!queued->meeting->is_aborted()) fake::run(*queued->meeting, queued->work);
    };
    fake::write_log(*meeting, work);
    auto queued = std::make_unique<Queued>(meeting, running, work);
    const fake::SomeContext current;
    const bool done = cuLaunchHostFunc(stream, run_and_delete, queued.get()) == cuda::kSuccess;
    if (done) static_cast<void>(queued.release());
    state = done ? kSuccess : kUnhandledCudaError;
  }
};

}  // namespace tutti::nccl

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSlowAbort{3};

[[noreturn]] void hang() {
  for (;;) pause();
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
#pragma GCC visibility push(default)
extern "C" {

using namespace tutti::nccl;  // NOLINT
using tutti::fake::has_fault;

Return ncclGetVersion(int* version) {
  const char* given = std::getenv("FAKE_NCCL_VERSION");
  return *version = given != nullptr ? std::atoi(given) : 22'304, kSuccess;
}
const char* ncclGetErrorString(Return error) {
  return error == kSuccess              ? "no error"
         : error == kUnhandledCudaError ? "unhandled cuda error"
         : error == kSystemError        ? "unhandled system error"
         : error == kInternalError      ? "internal error"
         : error == kRemoteError        ? "remote process exited or there was a network error"
                                        : "error of the fake NCCL";
}
Return ncclGetUniqueId(Id* id) {
  if (has_fault("no_id")) return kSystemError;
  const std::string path = tutti::fake::Meeting::make();
  if (path.empty() || path.size() >= sizeof(id->bytes)) return kSystemError;
  std::memcpy(id->bytes, path.c_str(), path.size() + 1);
  return kSuccess;
}
Return ncclCommInitRankConfig(Comm* made, int ranks, Id id, int rank, Config* config) {
  cu::Context current = nullptr;
  if (cuCtxPopCurrent_v2(&current) != tutti::cuda::kSuccess) return kUnhandledCudaError;
  cuCtxPushCurrent_v2(current);
  if (config->magic != kConfigMagic || config->blocking != 0) return kInvalidArgument;
  if (has_fault("init_blocks", rank)) hang();
  auto* comm = *made = new CommTag();
  comm->ranks = ranks;
  comm->rank = rank;
  comm->meeting = tutti::fake::Meeting::open(id.bytes, ranks, rank);
  comm->add([comm] { comm->begin(); });
  comm->thread = std::thread([comm] { comm->run_tasks(); });
  return kInProgress;
}
Return ncclCommGetAsyncError(Comm comm, Return* error) {
  *error = comm->state;
  if (*error == kSuccess && has_fault("remote_error", comm->rank)) *error = kRemoteError;
  return kSuccess;
}
Return ncclCommFinalize(Comm comm) {
  comm->state = kInProgress;
  comm->add([comm] {
    if (!has_fault("finalize_hangs", comm->rank)) comm->state = kSuccess;
  });
  return kInProgress;
}
Return ncclCommDestroy(Comm comm) {
  comm->end();
  return kSuccess;
}
Return ncclCommAbort(Comm comm) {
  if (comm->meeting != nullptr) comm->meeting->abort();  // As NCCL does: its flag first.
  if (has_fault("abort_hangs", comm->rank)) hang();
  if (has_fault("abort_is_slow", comm->rank))
    for (const auto begun = Clock::now(); Clock::now() - begun < kSlowAbort;)
      tutti::fake::look_away();
  comm->end();
  return kSuccess;
}
Return ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm comm,
                     cu::Stream stream) {
  const auto dtype = tutti::fake::dtype_of(type);
  const auto reduction = tutti::fake::op_of(op);
  if (!dtype || !reduction) return kInvalidArgument;
  return comm->launch({"all_reduce", from, to, count, *dtype, reduction, -1}, stream);
}
Return ncclReduce(const void* from, void* to, size_t count, int type, int op, int root, Comm comm,
                  cu::Stream stream) {
  const auto dtype = tutti::fake::dtype_of(type);
  const auto reduction = tutti::fake::op_of(op);
  if (!dtype || !reduction || root < 0 || root >= comm->ranks) return kInvalidArgument;
  return comm->launch({"reduce", from, to, count, *dtype, reduction, root}, stream);
}
Return ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Comm comm,
                     cu::Stream stream) {
  const auto dtype = tutti::fake::dtype_of(type);
  if (!dtype || root < 0 || root >= comm->ranks) return kInvalidArgument;
  return comm->launch({"broadcast", from, to, count, *dtype, std::nullopt, root}, stream);
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
