#include "client/gpu/device_memory.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "daemon/base/program.h"

namespace tutti::client {
namespace {

constexpr Millis kWatchPause{5};
constexpr Millis kFreedPause{1000};  // Between two looks for memory that was freed.
constexpr Millis kMemoryPause{1};    // Between two looks for memory that operations use.
constexpr Millis kLongestPause{50};  // Between two looks for memory for staging, which take more.
constexpr Millis kUnpinTime{200};    // How long leaving waits for the driver to unpin memory.

}  // namespace

std::shared_ptr<DeviceMemory> DeviceMemory::attach(const std::shared_ptr<Connection>& connection) {
  auto made = std::make_unique<DeviceMemory>(*connection);
  std::shared_ptr<DeviceMemory> kept(connection, made.get());
  connection->attach(std::move(made));
  return kept;
}

DeviceMemory::DeviceMemory(Connection& connection)
    : connection_(connection),
      watch_(find_variable("TUTTI_CUDA_DRIVER").value_or(cuda::kDriverLibrary)),
      offers_(connection, watch_),
      words_(connection, watch_, offers_),
      tasks_("tutti-memory"),
      thread_("tutti-stream") {}

DeviceMemory::~DeviceMemory() {
  if (connection_.is_own_process()) close(Clock::now() + kLeaveTime);
}

bool DeviceMemory::is_device(const void* memory) {
  const cuda::Driver* driver = watch_.find();
  if (driver == nullptr || memory == nullptr) return false;
  unsigned type = 0;
  const cuda::Error error =
      driver->pointer_get_attribute(&type, cuda::kPointerMemoryType, address_of(memory));
  if (error != cuda::kSuccess || type != cuda::kMemoryTypeDevice) return false;
  unsigned managed = 0;
  driver->pointer_get_attribute(&managed, cuda::kPointerIsManaged, address_of(memory));
  return managed == 0;
}

bool DeviceMemory::is_captured(cuda::Stream stream) {
  int status = 0;
  return stream != nullptr && driver().stream_is_capturing(stream, &status) == cuda::kSuccess &&
         status != 0;
}

// ---- Memory ----

// The allocations that the tensor lies in, from the first to the last.
Status DeviceMemory::describe(const void* memory, uint64_t bytes, Chunks& chunks) {
  const cuda::Pointer end = address_of(memory) + std::max<uint64_t>(bytes, 1);
  const cuda::Current current(driver(), offers_.context_of(nullptr, memory));
  if (current.error() != cuda::kSuccess)
    return invalid_argument("cannot be used: " +
                            cuda::status_of(driver(), current.error(), "its GPU").message());
  for (cuda::Pointer at = address_of(memory); at < end;) {
    cuda::Pointer base = 0;
    size_t size = 0;
    uint64_t id = 0;
    cuda::Error error = driver().mem_get_address_range(&base, &size, at);
    if (error == cuda::kSuccess)
      error = driver().pointer_get_attribute(&id, cuda::kPointerBufferId, at);
    if (error != cuda::kSuccess)
      return invalid_argument("has " + std::to_string(bytes) +
                              " bytes, but its memory ends after " +
                              std::to_string(at - address_of(memory)) +
                              "; pass a smaller count, or memory that was not freed");
    chunks.bases.push_back(base);
    chunks.sizes.push_back(size);
    chunks.buffer_ids.push_back(id);
    at = base + size;
  }
  return {};
}

bool DeviceMemory::is_current(const Offered& offered) {
  const Chunks& chunks = offered.chunks;
  for (size_t i = 0; i < chunks.bases.size(); ++i) {
    uint64_t id = 0;
    const cuda::Error error =
        driver().pointer_get_attribute(&id, cuda::kPointerBufferId, chunks.bases[i]);
    if (error != cuda::kSuccess || id != chunks.buffer_ids[i]) return false;
  }
  return true;
}

Status DeviceMemory::find(const char* side, const void* memory, uint64_t bytes, TimePoint limit,
                          DeviceSide& found) {
  if (find_known(memory, bytes, found)) return {};
  Chunks chunks;
  if (Status s = describe(memory, bytes, chunks); !s.ok())
    return Status(s.code(), std::string(side) + " " + s.message());
  const Status asked = offers_.ask(limit, [this, chunks] { return offer(chunks), Status(); });
  if (!asked.ok()) return asked;
  if (!find_known(memory, bytes, found)) found = {};
  return {};
}

bool DeviceMemory::find_known(const void* memory, uint64_t bytes, DeviceSide& found) {
  const std::lock_guard lock(memory_mutex_);
  const cuda::Pointer at = address_of(memory);
  auto after = offered_.upper_bound(at);
  while (after != offered_.begin()) {
    const auto known = std::prev(after);
    const bool holds_all = at + bytes <= known->first + known->second.bytes;
    if (holds_all && is_current(known->second)) {
      found = {known->second.number, at - known->first};
      return true;
    }
    if (at >= known->first + known->second.bytes) break;
    forget(known->second.number);  // Freed since, or a part of what follows now.
    after = offered_.erase(known);
  }
  forget_freed();
  return false;
}

// Whatever becomes of the call: the next one finds the memory known. On the thread that asks.
void DeviceMemory::offer(const Chunks& chunks) {
  DeviceSide known;
  Offered offered{.chunks = chunks};
  for (const uint64_t size : chunks.sizes) offered.bytes += size;
  const void* const first = pointer_to(chunks.bases.front());
  if (find_known(first, offered.bytes, known)) return;  // Another call offered it meanwhile.
  const Status answer = offers_.offer(chunks, offered.number);
  if (!answer.ok()) offered.number = 0;
  const std::lock_guard lock(memory_mutex_);
  // There may be room later.
  if (answer.code() != Code::resource_exhausted)
    offered_[chunks.bases.front()] = std::move(offered);
}

std::shared_ptr<StagingPool> DeviceMemory::staging() {
  const std::lock_guard lock(memory_mutex_);
  if (staging_ == nullptr) staging_ = std::make_shared<StagingPool>(connection_, driver(), offers_);
  return staging_;
}

template <class Prepare>
Status DeviceMemory::stage_by(cuda::Stream stream, const void* memory, TimePoint limit,
                              std::shared_ptr<StagedSides>& staged, const Prepare& prepare) {
  const std::shared_ptr<StagingPool> pool = staging();
  const cuda::Context context = offers_.context_of(stream, memory);
  for (Millis pause = kMemoryPause;; pause = std::min(2 * pause, kLongestPause)) {
    uint64_t changes = pool->changes();
    staged = std::make_shared<StagedSides>(pool, stream, context, limit);
    Status prepared = prepare(*staged);
    if (prepared.code() == Code::out_of_range) return resource_exhausted(prepared.message());
    if (prepared.code() != Code::resource_exhausted) return prepared;
    const bool is_alone = pool->has_only(staged->blocks(), changes);
    changes += staged->blocks();
    staged.reset();
    const TimePoint now = Clock::now();
    if (is_alone || now >= limit) return prepared;
    pool->await_change(changes, std::min(limit, now + pause));
    sweep();
  }
}

Status DeviceMemory::stage(cuda::Stream stream, const void* memory, const StagedSides::Side& in,
                           const StagedSides::Side& out, TimePoint limit, DeviceRequest& sides,
                           std::shared_ptr<StagedSides>& staged) {
  return stage_by(stream, memory, limit, staged,
                  [&](StagedSides& made) { return made.prepare(in, out, sides); });
}

Status DeviceMemory::stage(cuda::Stream stream, const void* memory,
                           std::span<const TensorSides> tensors, TimePoint limit,
                           std::span<DeviceSide> places, std::shared_ptr<StagedSides>& staged) {
  return stage_by(stream, memory, limit, staged,
                  [&](StagedSides& made) { return made.prepare(tensors, places); });
}

// Operations that began before may still name the memory.
void DeviceMemory::forget(uint64_t number) {
  if (number == 0) return;
  const uint64_t next = words_.next_serial();
  const std::lock_guard lock(forgotten_mutex_);
  forgotten_.emplace_back(number, next);
}

// The worker's mapping keeps memory in use that the program has freed, until it is notified.
// memory_mutex_ is held.
void DeviceMemory::forget_freed() {
  std::erase_if(offered_, [this](const auto& entry) {
    if (is_current(entry.second)) return false;
    forget(entry.second.number);
    return true;
  });
}

// On a thread of its own: the worker, which answers, may be busy.
void DeviceMemory::start_forgetting() {
  const auto is_due = [oldest = words_.oldest_under_way()](const auto& entry) {
    return entry.second <= oldest;
  };
  const std::lock_guard lock(forgotten_mutex_);
  const bool looks = Clock::now() >= next_look_;
  if (is_forgetting_ || (!looks && std::ranges::none_of(forgotten_, is_due))) return;
  is_forgetting_ = offers_.ask_later([this, looks] {
    if (looks) find_freed();
    send_forgotten();
  });
}

void DeviceMemory::find_freed() {
  const std::lock_guard lock(memory_mutex_);
  forget_freed();
  const std::lock_guard forgotten_lock(forgotten_mutex_);
  next_look_ = Clock::now() + kFreedPause;
}

// What is not forgotten now is later; the worker keeps it until then, or until the rank ends.
void DeviceMemory::send_forgotten() {
  std::vector<std::pair<uint64_t, uint64_t>> due;
  {
    const uint64_t oldest = words_.oldest_under_way();
    const std::lock_guard lock(forgotten_mutex_);
    std::erase_if(forgotten_, [&](const auto& entry) {
      if (entry.second <= oldest) due.push_back(entry);
      return entry.second <= oldest;
    });
  }
  std::erase_if(due, [this](const auto& entry) { return offers_.forget(entry.first).ok(); });
  const std::lock_guard lock(forgotten_mutex_);
  forgotten_.insert(forgotten_.end(), due.begin(), due.end());
  is_forgetting_ = false;
}

// False: there is no thread.
bool DeviceMemory::run_task(const std::function<void()>& task) {
  const std::shared_ptr<Connection> self = connection_.weak_from_this().lock();
  return self != nullptr && tasks_.add([self, task] { task(); }).ok();
}

Status DeviceMemory::take_words(cuda::Stream stream, const void* memory, TimePoint limit,
                                Words& words) {
  if (!words_.is_prepared()) {
    const cuda::Context context = offers_.context_of(stream, memory);
    const auto prepare = [this, context, memory] { return words_.prepare(context, memory); };
    if (Status s = offers_.ask(limit, prepare); !s.ok()) return s;
  }
  while (!words_.try_take(words)) {
    sweep();
    if (Clock::now() >= limit)
      return resource_exhausted("too many operations on streams are under way; wait for some");
    std::this_thread::sleep_for(kMemoryPause);
  }
  return {};
}

// ---- Watching ----

void DeviceMemory::watch(DeviceOperation operation) {
  const std::lock_guard lock(watch_mutex_);
  watched_.push_back(std::move(operation));
  if (std::exchange(is_watching_, true)) return;
  const std::shared_ptr<Connection> self = connection_.shared_from_this();
  if (!thread_.add([this, self] { run_watch(); }).ok()) is_watching_ = false;
}

// Until no operation is under way.
void DeviceMemory::run_watch() {
  for (;;) {
    sweep();
    std::unique_lock lock(watch_mutex_);
    if (watched_.empty() && sweeps_ == 0) {
      is_watching_ = false;
      return;
    }
    changed_.wait_for(lock, kWatchPause);
  }
}

// Sees to operations that have ended, and forgets them.
void DeviceMemory::sweep() {
  std::vector<DeviceOperation> all;
  {
    const std::lock_guard lock(watch_mutex_);
    all.swap(watched_);
    ++sweeps_;
  }
  std::erase_if(all, [this](const DeviceOperation& operation) { return has_ended(operation); });
  start_forgetting();
  const std::lock_guard lock(watch_mutex_);
  --sweeps_;
  watched_.insert(watched_.end(), std::make_move_iterator(all.begin()),
                  std::make_move_iterator(all.end()));
}

bool DeviceMemory::has_ended(const DeviceOperation& operation) {
  const Status* const outcome = operation.poll();
  if (outcome == nullptr) return false;
  // Before the stream goes on: who waits for it and calls again finds the failure.
  if (operation.failure != nullptr) operation.failure->keep(*outcome);
  release(operation);
  Words words = operation.words;
  words.is_passed = outcome->ok() || !words_.is_in_use(words, true);
  if (!outcome->ok()) words_.resume(words);
  if (!words.is_passed && operation.staged != nullptr) operation.staged->fail();
  words_.retire(words);
  return true;
}

// What is copied out may take long, and streams must not wait for it. Its waiter gets errors.
void DeviceMemory::release(const DeviceOperation& operation) {
  const bool copies = operation.staged != nullptr && !operation.words.resumes;
  if (!copies || !run_task(operation.release)) operation.release();
}

// ---- Ending ----

// Whether every operation has ended, and no stream touches the segment any more.
bool DeviceMemory::is_idle() {
  if (!words_.is_idle()) return false;
  const std::lock_guard lock(memory_mutex_);
  return staging_ == nullptr || staging_->is_idle();
}

void DeviceMemory::close(TimePoint limit) {
  {
    const std::lock_guard lock(watch_mutex_);
    if (std::exchange(is_closed_, true)) return;
  }
  if (!was_used()) return;
  for (sweep(); !is_idle(); sweep()) {
    if (Clock::now() > limit) return connection_.own_memory().segment()->keep();
    std::this_thread::sleep_for(kMemoryPause);
  }
  try {
    release_pinned(std::min(limit, Clock::now() + kUnpinTime));
  } catch (const std::exception&) {
    connection_.own_memory().segment()->keep();  // This process is out of memory.
  }
}

// Whether the worker was offered anything.
bool DeviceMemory::was_used() {
  const std::lock_guard lock(memory_mutex_);
  return staging_ != nullptr || !offered_.empty() || words_.is_prepared();
}

void DeviceMemory::release_pinned(TimePoint limit) {
  struct Pieces {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
  };
  const auto pieces = std::make_shared<Pieces>();
  const auto unpin = [&](cuda::Context context, std::byte* data) {
    {
      const std::lock_guard lock(pieces->mutex);
      ++pieces->left;
    }
    offers_.unpin(context, data, [pieces] {
      const std::lock_guard lock(pieces->mutex);
      --pieces->left;
      pieces->changed.notify_one();
    });
  };
  {
    const std::lock_guard lock(memory_mutex_);
    if (staging_ != nullptr)
      for (const std::unique_ptr<StagingBlock>& block : staging_->close())
        if (block->is_pinned) unpin(block->context, block->data);
  }
  if (const auto [context, data] = words_.close(); data != nullptr) unpin(context, data);
  std::unique_lock lock(pieces->mutex);
  pieces->changed.wait_until(lock, limit, [&] { return pieces->left == 0; });
}

}  // namespace tutti::client
