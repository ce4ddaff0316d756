#include "client/gpu/stream_words.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace tutti::client {
namespace {

constexpr uint64_t kWordsBytes = 64 << 10;
constexpr uint64_t kSetBytes = 64;  // A cache line, so that no two streams share one.

}  // namespace

bool StreamWords::is_prepared() {
  const std::lock_guard lock(mutex_);
  return offset_ != 0;
}

// Pins memory for words in this process and in the worker. On the thread that asks.
Status StreamWords::prepare(cuda::Context context, const void* memory) {
  constexpr uint64_t kPage = 4096;
  if (is_prepared()) return {};
  std::byte* block = connection_.own_memory().allocate(kWordsBytes + kPage);
  if (block == nullptr) return resource_exhausted("the segment is full");
  const uint64_t offset = (connection_.own_memory().offset_of(block) + kPage - 1) / kPage * kPage;
  std::byte* words = connection_.own_memory().at(offset);
  std::memset(words, 0, kWordsBytes);
  const cuda::Current current(driver(), context);
  const cuda::Error error =
      driver().mem_host_register(words, kWordsBytes, cuda::kHostPortable | cuda::kHostDeviceMap);
  if (error != cuda::kSuccess) {
    connection_.own_memory().free(block);
    return cuda::status_of(driver(), error, "memory for words cannot be pinned");
  }
  uint64_t number = 0;
  const Status taken = offers_.offer_pinned(OfferKind::words, memory, offset, kWordsBytes, number);
  const std::lock_guard lock(mutex_);
  if (!taken.ok() || is_closed_) {
    offers_.unpin(context, words, [connection = connection_.weak_from_this(), block] {
      if (const auto held = connection.lock()) held->own_memory().free(block);
    });
    return taken.ok() ? connection_.usable() : taken;
  }
  context_ = context;
  offset_ = offset;
  for (uint64_t at = 0; at < kWordsBytes; at += kSetBytes) spare_.push_back({offset + at, 0, 0});
  return {};
}

std::atomic<uint64_t>& StreamWords::word(uint64_t offset) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(connection_.own_memory().at(offset));
}

cuda::Pointer StreamWords::word_address(uint64_t offset) {
  cuda::Pointer address = 0;
  driver().mem_host_get_device_pointer(&address, connection_.own_memory().at(offset), 0);
  return address;
}

void place(const Words& words, DeviceRequest& request) {
  request.ready_offset = words.offset;
  request.done_offset = words.offset + Words::kDone;
  request.passed_offset = words.offset + Words::kPassed;
  request.value = words.value;
}

bool StreamWords::holds(const Words& words, uint64_t which) {
  return word(words.offset + which).load(std::memory_order_acquire) == words.value;
}

// A worker that has not taken the request when the operation has failed never will.
bool StreamWords::is_in_use(const Words& words, bool has_failed) {
  const uint64_t passed = word(words.offset + Words::kPassed).load(std::memory_order_acquire);
  if (passed == words.value || (has_failed && passed != words.value - 1)) return false;
  return !connection_.has_worker_ended();
}

Status StreamWords::store_ready(cuda::Stream stream, const void* memory, const Words& words) {
  const cuda::Current current(driver(), offers_.context_of(stream, memory));
  const cuda::Error error =
      current.error() != cuda::kSuccess
          ? current.error()
          : driver().stream_write_value(stream, word_address(words.offset), words.value, 0);
  if (error == cuda::kSuccess) return {};
  return invalid_argument(cuda::status_of(driver(), error, "the stream cannot be used").message() +
                          "; pass a stream of this process that was not destroyed");
}

Status StreamWords::wait_for_done(cuda::Stream stream, const void* memory, const Words& words) {
  const cuda::Current current(driver(), offers_.context_of(stream, memory));
  const cuda::Error error = driver().stream_wait_value(
      stream, word_address(words.offset + Words::kDone), words.value, cuda::kWaitGreaterOrEqual);
  return cuda::status_of(driver(), error, "the stream cannot wait");
}

Status StreamWords::store_resumed(cuda::Stream stream, const void* memory, const Words& words) {
  const cuda::Current current(driver(), offers_.context_of(stream, memory));
  const cuda::Error error = driver().stream_write_value(
      stream, word_address(words.offset + Words::kResumed), words.value, 0);
  return cuda::status_of(driver(), error, "the stream cannot store a word");
}

void StreamWords::retire(const Words& words) {
  const std::lock_guard lock(mutex_);
  under_way_.erase(words.serial);
  retired_.push_back(words);
}

// A stream that has stored its last word no longer touches them; what a processor stored differs.
bool StreamWords::is_free(const Words& words) {
  return holds(words, 0) && (!words.resumes || has_resumed(words)) &&
         (words.is_passed || !is_in_use(words, false));
}

void StreamWords::reuse_retired() {
  std::erase_if(retired_, [this](const Words& words) {
    if (!is_free(words)) return false;
    spare_.push_back({words.offset, words.value, 0});
    return true;
  });
}

void StreamWords::resume(const Words& words) {
  word(words.offset + Words::kDone).store(words.value + 1);
}

void StreamWords::release(const Words& words) {
  resume(words);
  retire(words);
}

void StreamWords::give_back(const Words& words) {
  const std::lock_guard lock(mutex_);
  under_way_.erase(words.serial);
  spare_.push_back(words);
}

bool StreamWords::try_take(Words& words) {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) reuse_retired();
  if (spare_.empty()) return false;
  words = spare_.back();
  spare_.pop_back();
  words.value += 2;
  words.serial = next_serial_++;
  under_way_.insert(words.serial);
  return true;
}

uint64_t StreamWords::next_serial() {
  const std::lock_guard lock(mutex_);
  return next_serial_;
}

uint64_t StreamWords::oldest_under_way() {
  const std::lock_guard lock(mutex_);
  return under_way_.empty() ? next_serial_ : *under_way_.begin();
}

bool StreamWords::is_idle() {
  const std::lock_guard lock(mutex_);
  reuse_retired();
  return under_way_.empty() && retired_.empty();
}

std::pair<cuda::Context, std::byte*> StreamWords::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  return {context_, offset_ != 0 ? connection_.own_memory().at(offset_) : nullptr};
}

}  // namespace tutti::client
