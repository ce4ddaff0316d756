// What links have borrowed from their callers: bounded per link, counted per transport, given back
// exactly once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "daemon/transport/transport.h"

namespace tutti {

// The bytes a link may hold at a time. Any thread.
class SendBudget {
 public:
  explicit SendBudget(size_t bytes_max) : bytes_max_(bytes_max) {}
  // False where it would be exceeded; an empty queue takes any frame.
  bool take(size_t bytes);
  void give(size_t bytes) { used_ -= bytes; }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> used_ = 0;
};

// Counts a transport's live Borrows, so that its destructor can outwait them. Any thread.
class Lending {
 public:
  void borrowed();
  void returned();
  void wait_none();

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  size_t borrowed_ = 0;  // Guarded by mutex_.
};

// One accepted frame. Its end is the release: first the budget, so that the caller may send again
// from within `released`, then `released` itself.
class Borrow {
 public:
  // Takes `frame` only if the budget allows; otherwise returns null and leaves it as it was.
  static std::unique_ptr<Borrow> take(Outgoing& frame, std::shared_ptr<SendBudget> budget,
                                      std::shared_ptr<Lending> lending);
  // A frame of the link's own with a copy of `text`, beside the budget.
  static std::unique_ptr<Borrow> own(FrameKind kind, const std::string& text,
                                     std::shared_ptr<Lending> lending);
  ~Borrow();
  Borrow(const Borrow&) = delete;
  Borrow& operator=(const Borrow&) = delete;

  FrameHeader header;
  std::span<const std::byte> bytes() const { return frame_.bytes; }

 private:
  Borrow(Outgoing&& frame, std::shared_ptr<SendBudget> budget, std::shared_ptr<Lending> lending);
  size_t cost() const { return sizeof(FrameHeader) + frame_.bytes.size(); }

  Outgoing frame_;
  std::shared_ptr<SendBudget> budget_;  // Null for the link's own.
  std::shared_ptr<Lending> lending_;
};

}  // namespace tutti
