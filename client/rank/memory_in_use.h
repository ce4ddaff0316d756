// The program's memory that operations under way read and write, on all groups of a connection. An
// operation that gets in their way is refused, whatever memory it is. Safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "client/rank/fork_guard.h"
#include "client/rank/mapped_segment.h"
#include "client/rank/overlap.h"
#include "daemon/base/status.h"

namespace tutti::client {

class MemoryInUse;

// What one operation uses, at the latest until this is destroyed. Must not outlive MemoryInUse.
class MemoryUse {
 public:
  MemoryUse() = default;
  MemoryUse(const MemoryUse&) = delete;
  MemoryUse& operator=(const MemoryUse&) = delete;
  ~MemoryUse() { end(); }

  // The operation has arrived, with this number: it uses its memory until it has ended, unless more
  // is said. `has_ended` takes no lock.
  template <class HasEnded>
  void start(uint64_t number, HasEnded has_ended) noexcept {
    static_assert(is_held_in_place<HasEnded>, "std::function must not allocate for it");
    number_ = number;
    op_has_ended_ = has_ended;
    has_started_.store(true, std::memory_order_release);
  }
  // Its memory is in use for longer: until end().
  void last_until_end() { lasts_until_end_ = true; }
  void end();
  // Nobody waits any more: ordinary memory that lasts until end() is left alone from now on.
  void abandon();

 private:
  friend class MemoryInUse;
  // libstdc++ and libc++ hold such a value in the std::function itself.
  template <class Value>
  static constexpr bool is_held_in_place =
      sizeof(Value) <= 2 * sizeof(void*) && alignof(Value) <= alignof(void*) &&
      std::is_trivially_copyable_v<Value>&& std::is_trivially_destructible_v<Value>;

  std::span<const MemoryRange> ranges() const {
    return many_.empty() ? std::span(few_).first(few_count_) : std::span(many_);
  }
  bool has_ended() const;
  std::string name() const;
  template <class Predicate>
  void drop_ranges(const Predicate& is_dropped);
  void set_ranges(std::span<const MemoryRange> ranges);

  MemoryInUse* all_ = nullptr;          // Null: nothing was taken. Its mutex guards what follows.
  std::atomic<bool> has_left_ = false;  // It is not on the list any more, and never is again.
  MemoryUse* next_ = nullptr;
  MemoryUse* previous_ = nullptr;
  std::array<MemoryRange, 2> few_;
  size_t few_count_ = 0;
  std::vector<MemoryRange> many_;  // Of a list; empty: the few are meant.
  uintptr_t first_ = 0;            // All ranges are between these.
  uintptr_t last_ = 0;
  std::string_view verb_;  // Static.
  std::atomic<bool> lasts_until_end_ = false;
  uint64_t number_ = 0;
  std::function<bool()> op_has_ended_;
  std::atomic<bool> has_started_ = false;  // Stored after the two above.
};

class MemoryInUse {
 public:
  MemoryInUse(const ForkGuard& fork_guard, const MappedSegment& segment)
      : fork_guard_(fork_guard), segment_(segment) {}
  MemoryInUse(const MemoryInUse&) = delete;
  MemoryInUse& operator=(const MemoryInUse&) = delete;

  // Takes memory for an operation. `ranges`: sorted. `verb`: of the operation; static.
  // `stays`: ordinary memory is in use, too; otherwise it is only copied, before the call returns
  // and when it is waited for. INVALID_ARGUMENT: another operation writes there, or reads what this
  // one writes; the message names both.
  Status take(std::span<const MemoryRange> ranges, std::string_view verb, bool stays,
              MemoryUse& use);

 private:
  friend class MemoryUse;
  Status check(std::span<const MemoryRange> ranges, std::string_view verb) const;
  bool is_shared(const MemoryRange& range) const {
    return range.begin - reinterpret_cast<uintptr_t>(segment_.base()) < segment_.bytes();
  }

  const ForkGuard& fork_guard_;
  const MappedSegment& segment_;
  std::mutex mutex_;  // Guards what follows.
  MemoryUse* first_ = nullptr;
};

}  // namespace tutti::client
