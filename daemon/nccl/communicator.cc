#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/nccl/library.h"
#include "daemon/nccl/nccl.h"

namespace tutti::nccl {
namespace {

// Between two looks at what NCCL does by itself: while a call is in progress, and while work is
// under way that a peer's end would never let end.
constexpr std::chrono::microseconds kLook{50};
constexpr std::chrono::microseconds kRareLook{2'000};  // When it takes long.
constexpr Millis kLookForErrors{100};

std::optional<int> type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return kFloat32;
    case Dtype::f64:
      return kFloat64;
    case Dtype::f16:
      return kFloat16;
    case Dtype::bf16:
      return kBfloat16;
    case Dtype::i8:
      return kInt8;
    case Dtype::u8:
      return kUint8;
    case Dtype::i32:
      return kInt32;
    case Dtype::u32:
      return kUint32;
    case Dtype::i64:
      return kInt64;
    case Dtype::u64:
      return kUint64;
    case Dtype::i16:
    case Dtype::u16:
    case Dtype::boolean:
      break;
  }
  return std::nullopt;
}

// NCCL's minimum and maximum pass NaNs over, which ours do not.
std::optional<int> op_of(Op op, Dtype dtype) {
  switch (op) {
    case Op::sum:
    case Op::mean:
    case Op::premul_sum:
      return kSum;
    case Op::prod:
      return kProd;
    case Op::min:
      if (!is_floating(dtype)) return kMin;
      break;
    case Op::max:
      if (!is_floating(dtype)) return kMax;
      break;
    case Op::band:
    case Op::bor:
    case Op::bxor:
      break;
  }
  return std::nullopt;
}

}  // namespace

bool supports(Collective collective, Dtype dtype, Op op) {
  if (collective == Collective::broadcast) return true;  // Of bytes.
  if (collective != Collective::all_reduce && collective != Collective::reduce) return false;
  return type_of(dtype) && op_of(op, dtype);
}

// What the communicator's thread works on. The thread owns it as well, and may outlive the
// Communicator. Functions are called on that thread, but for those that say otherwise.
class Communicator::Thread {
 public:
  using Task = std::function<void()>;

  explicit Thread(const CommunicatorParts& parts)
      : loop_(parts.loop), name_(parts.library), running_(parts.running) {}

  // ---- Any thread ----

  void add(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_over_) {
        tasks_.push_back(std::move(task));
        changed_.notify_all();
        return;
      }
    }
    task();  // The thread has ended; the task fails.
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }
  // No answer is posted any more.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  bool is_ended() const { return is_ended_; }
  bool is_aborting() const { return is_aborting_; }
  std::atomic<int> under_way = 0;

  // ---- The thread ----

  void run();
  void post(Task answer);
  Result<int> load();
  Result<UniqueId> make_id() const;
  Status begin(const UniqueId& id, const Place& place, std::function<void(Status)> on_failed);
  Status launch(const Work& work);
  void finish();

 private:
  std::optional<Task> next();
  bool is_aborted();
  Status await(Return returned, const char* what);
  Return call(const Work& work) const;
  void look_for_errors();
  void end();

  Loop& loop_;
  const std::string name_;
  const std::shared_ptr<std::atomic<int>> running_;
  const Library* library_ = nullptr;
  std::optional<cuda::Current> current_;  // The GPU's context, on this thread.
  Comm comm_ = nullptr;
  std::function<void(Status)> on_failed_;
  bool has_failed_ = false;
  std::atomic<bool> is_aborting_ = false;
  std::atomic<bool> is_ended_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_aborted_ = false;
  bool is_closed_ = false;
  bool is_over_ = false;  // No task is done any more.
};

void Communicator::Thread::run() {
  while (std::optional<Task> task = next()) {
    (*task)();
    look_for_errors();
  }
  end();
}

// None: it was aborted.
std::optional<Communicator::Thread::Task> Communicator::Thread::next() {
  std::unique_lock lock(mutex_);
  const auto wakes = [this] { return is_aborted_ || !tasks_.empty(); };
  if (under_way == 0)
    changed_.wait(lock, [&] { return wakes() || under_way != 0; });
  else
    changed_.wait_for(lock, kLookForErrors, wakes);
  if (is_aborted_) return std::nullopt;
  if (tasks_.empty()) return [] {};
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

bool Communicator::Thread::is_aborted() {
  const std::lock_guard lock(mutex_);
  return is_aborted_;
}

void Communicator::Thread::post(Task answer) {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) loop_.post(std::move(answer));
}

Result<int> Communicator::Thread::load() {
  const Result<const Library*> loaded = load_library(name_);
  if (!loaded.ok()) return loaded.status();
  library_ = *loaded;
  return library_->version;
}

Result<UniqueId> Communicator::Thread::make_id() const {
  Id id{};
  if (library_ == nullptr) return aborted("the communicator has ended");
  const Return returned = library_->get_unique_id(&id);
  if (returned != kSuccess) return status_of(*library_, returned, "no id was made");
  UniqueId made{};
  std::memcpy(made.data(), id.bytes, made.size());
  return made;
}

Status Communicator::Thread::begin(const UniqueId& id, const Place& place,
                                   std::function<void(Status)> on_failed) {
  if (library_ == nullptr || has_failed_) return aborted("the communicator has ended");
  current_.emplace(*place.driver, place.context);
  Id taken{};
  std::memcpy(taken.bytes, id.data(), id.size());
  Config config;
  config.blocking = 0;
  const Return returned =
      library_->comm_init_rank_config(&comm_, place.hosts, taken, place.self, &config);
  on_failed_ = std::move(on_failed);
  Status made = await(returned, "no communicator was made");
  has_failed_ = !made.ok();
  return made;
}

// A call that does not block goes on by itself; nothing may follow it before its end.
Status Communicator::Thread::await(Return returned, const char* what) {
  for (auto pause = kLook; returned == kInProgress && comm_ != nullptr;) {
    if (is_aborted()) return aborted("the communicator has ended");
    Return state = kSuccess;
    const Return asked = library_->comm_get_async_error(comm_, &state);
    returned = asked == kSuccess ? state : asked;
    if (returned != kInProgress) break;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [this] { return is_aborted_; });
    pause = std::min(kRareLook, pause + pause / 8);
  }
  return status_of(*library_, returned, what);
}

Return Communicator::Thread::call(const Work& work) const {
  const bool copies = work.collective == Collective::broadcast;
  const int type = copies ? kUint8 : type_of(work.dtype).value_or(kUint8);
  const int op = op_of(work.op, work.dtype).value_or(kSum);
  if (copies)
    return library_->broadcast(work.from, work.to, work.count * size_of(work.dtype), type,
                               work.root, comm_, work.stream);
  if (work.collective == Collective::reduce)
    return library_->reduce(work.from, work.to, work.count, type, op, work.root, comm_,
                            work.stream);
  return library_->all_reduce(work.from, work.to, work.count, type, op, comm_, work.stream);
}

Status Communicator::Thread::launch(const Work& work) {
  if (comm_ == nullptr || has_failed_) return unavailable("there is no communicator");
  Status queued = await(call(work), "work was not queued");
  has_failed_ = !queued.ok();
  return queued;
}

// Before the memory of what is sent to peers goes with the communicator.
void Communicator::Thread::finish() {
  const bool works = comm_ != nullptr && !has_failed_;
  if (works && await(library_->comm_finalize(comm_), "it does not end").ok())
    library_->comm_destroy(std::exchange(comm_, nullptr));
  abort();
}

void Communicator::Thread::look_for_errors() {
  if (comm_ == nullptr || has_failed_) return;
  Return state = kSuccess;
  const Return asked = library_->comm_get_async_error(comm_, &state);
  const Return found = asked == kSuccess ? state : asked;
  if (found == kSuccess || found == kInProgress) return;
  has_failed_ = true;
  const Status failed = status_of(*library_, found, "the communicator has failed");
  post([tell = on_failed_, failed] { tell(failed); });
}

// Tasks that were not done are reported as failed.
void Communicator::Thread::end() {
  has_failed_ = true;
  is_aborting_ = true;
  if (comm_ != nullptr) library_->comm_abort(std::exchange(comm_, nullptr));
  is_ended_ = true;
  for (;;) {
    std::unique_lock lock(mutex_);
    is_over_ = tasks_.empty();
    if (is_over_) break;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
  current_.reset();
  --*running_;
}

// ---- The loop's thread ----

Communicator::Communicator(const CommunicatorParts& parts)
    : parts_(parts), thread_(std::make_shared<Thread>(parts)) {
  ++*parts.running;
  std::thread([thread = thread_] { thread->run(); }).detach();
}

Communicator::~Communicator() {
  lifetime_.end();
  finish();
  thread_->close();
}

void Communicator::load(std::function<void(Result<int>)> then) {
  thread_->add([thread = thread_, then = lifetime_.guard(std::move(then))] {
    thread->post([then, version = thread->load()] { then(version); });
  });
}

void Communicator::make_id(std::function<void(Result<UniqueId>)> then) {
  thread_->add([thread = thread_, then = lifetime_.guard(std::move(then))] {
    thread->post([then, id = thread->make_id()] { then(id); });
  });
}

void Communicator::begin(const UniqueId& id, const Place& place, std::function<void(Status)> then,
                         std::function<void(Status)> on_failed) {
  const auto once = std::make_shared<std::function<void(Status)>>(lifetime_.guard(std::move(then)));
  const auto answer = [once](const Status& status) {
    if (const auto tell = std::exchange(*once, nullptr)) tell(status);
  };
  thread_->add(
      [thread = thread_, id, place, answer, on_failed = lifetime_.guard(std::move(on_failed))] {
        thread->post([answer, made = thread->begin(id, place, on_failed)] { answer(made); });
      });
  const Status late =
      deadline_exceeded("NCCL made no communicator within " +
                        std::to_string(parts_.timeout.count()) + " ms (nccl_timeout_ms of tuttid)");
  parts_.loop.at(Clock::now() + parts_.timeout, [once, answer, late, thread = thread_] {
    if (*once != nullptr) thread->abort();
    answer(late);
  });
}

void Communicator::launch(const Work& work, std::function<void(Status)> launched) {
  ++thread_->under_way;
  thread_->add([thread = thread_, work, launched = lifetime_.guard(std::move(launched))] {
    thread->post([launched, queued = thread->launch(work)] { launched(queued); });
  });
}

void Communicator::settled() { --thread_->under_way; }

void Communicator::finish() {
  if (is_aborted_ || std::exchange(is_finishing_, true)) return;
  thread_->add([thread = thread_] { thread->finish(); });
  parts_.loop.at(Clock::now() + parts_.timeout, [thread = thread_] { thread->abort(); });
  watch_end(parts_, thread_, 2 * parts_.timeout);
}

void Communicator::abort() {
  if (std::exchange(is_aborted_, true)) return;
  thread_->abort();
  watch_end(parts_, thread_, parts_.timeout);
}

// Outlives the communicator.
void Communicator::watch_end(const CommunicatorParts& parts, const std::shared_ptr<Thread>& thread,
                             Millis within) {
  parts.loop.at(Clock::now() + within, [parts, thread] {
    if (thread->is_ended() || !parts.on_hang) return;
    parts.on_hang("NCCL did not end a communicator within " +
                  std::to_string(parts.timeout.count()) + " ms (nccl_timeout_ms of tuttid)");
  });
}

bool Communicator::is_ended() const { return thread_->is_ended(); }
bool Communicator::is_aborting() const { return thread_->is_aborting(); }

}  // namespace tutti::nccl
