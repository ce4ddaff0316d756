// The words in pinned memory of the segment that order operations with the rank's streams. Safe
// from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "client/gpu/memory_offers.h"
#include "client/rank/connection.h"
#include "daemon/cuda/cuda.h"
#include "proto/board.h"

namespace tutti::client {

// The words of DeviceRequest in the segment, for one operation at a time, and one more: `resumed`,
// where the rank's stream stores the value once it has gone on.
struct Words {
  static constexpr uint64_t kDone = sizeof(uint64_t);
  static constexpr uint64_t kPassed = 2 * sizeof(uint64_t);
  static constexpr uint64_t kResumed = 3 * sizeof(uint64_t);

  uint64_t offset = 0;    // Of `ready`; the others follow.
  uint64_t value = 0;     // See DeviceRequest.
  uint64_t serial = 0;    // Of the operation, among all of this rank on GPUs.
  bool resumes = false;   // The stream waits for `done`.
  bool is_passed = true;  // Not: the worker may still store them.
};

// Where the worker finds the words.
void place(const Words& words, DeviceRequest& request);

class StreamWords {
 public:
  StreamWords(Connection& connection, cuda::DriverWatch& watch, MemoryOffers& offers)
      : connection_(connection), watch_(watch), offers_(offers) {}
  StreamWords(const StreamWords&) = delete;
  StreamWords& operator=(const StreamWords&) = delete;

  // Whether there is memory for words.
  bool is_prepared();
  // Pins memory for words in this process and in the worker, which it waits for. `memory`: of the
  // GPU that uses it.
  Status prepare(cuda::Context context, const void* memory);
  // Begins an operation. False: too many are under way.
  bool try_take(Words& words);
  // Ends an operation that was not submitted, whose stream was not asked to store anything.
  void give_back(const Words& words);
  // Ends an operation whose stream was asked to store `ready`.
  void retire(const Words& words);
  // Stores `done` in place of the worker: the stream goes on.
  void resume(const Words& words);
  // The same, and ends the operation, which was not submitted.
  void release(const Words& words);
  // The serial of the next operation, and that below which all have ended.
  uint64_t next_serial();
  uint64_t oldest_under_way();
  // Whether every operation has ended, and no stream touches words any more.
  bool is_idle();
  // The pinned memory, which the caller unpins, and its context; null: there is none. There will
  // be no other.
  std::pair<cuda::Context, std::byte*> close();

  // Has the stream store `ready`, then, apart from that, wait for `done`. INVALID_ARGUMENT: it is
  // no stream of this process. `memory`: on the GPU whose default stream nullptr is.
  Status store_ready(cuda::Stream stream, const void* memory, const Words& words);
  Status wait_for_done(cuda::Stream stream, const void* memory, const Words& words);
  // Has the stream say that it has gone on.
  Status store_resumed(cuda::Stream stream, const void* memory, const Words& words);
  bool has_resumed(const Words& words) { return holds(words, Words::kResumed); }
  // Whether GPUs of the worker may still touch the operation's memory. `has_failed`: as the board
  // says, which was asked before.
  bool is_in_use(const Words& words, bool has_failed);
  bool is_ready(const Words& words) { return holds(words, 0); }

 private:
  const cuda::Driver& driver() { return *watch_.find(); }
  bool holds(const Words& words, uint64_t which);
  cuda::Pointer word_address(uint64_t offset);
  std::atomic<uint64_t>& word(uint64_t offset);
  bool is_free(const Words& words);
  void reuse_retired();

  Connection& connection_;
  cuda::DriverWatch& watch_;
  MemoryOffers& offers_;
  std::mutex mutex_;  // Guards what follows.
  uint64_t next_serial_ = 1;
  std::set<uint64_t> under_way_;  // Serials.
  uint64_t offset_ = 0;           // 0: not prepared.
  bool is_closed_ = false;
  cuda::Context context_ = nullptr;
  std::vector<Words> spare_;
  std::vector<Words> retired_;  // Their operations have ended; their streams may still touch them.
};

}  // namespace tutti::client
