// Frames that a link has accepted and not yet released: their bytes are bounded per link, their
// number is counted per transport, and each is released exactly once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

#include "daemon/transport/transport.h"

namespace tutti {

// Bounds the bytes of a link's pending frames. Thread-safe.
class SendBudget {
 public:
  explicit SendBudget(size_t bytes_max) : bytes_max_(bytes_max) {}
  // Returns false if the budget would be exceeded. An unused budget admits a frame of any size.
  bool try_acquire(size_t bytes);
  void release(size_t bytes) { used_ -= bytes; }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> used_ = 0;
};

// Counts a transport's pending frames, so that its destructor can wait for them. Thread-safe.
class PendingFrameCount {
 public:
  void add();
  void remove();
  void wait_zero();

 private:
  std::mutex mutex_;
  std::condition_variable zero_;
  size_t count_ = 0;  // Guarded by mutex_.
};

// One accepted frame. The destructor releases it: first the budget, so that the caller may send
// again from within `released`, then `released` itself.
class PendingFrame {
 public:
  // Moves from `frame` if the budget admits it; otherwise returns null and leaves it unchanged.
  static std::unique_ptr<PendingFrame> accept(Outgoing& frame, std::shared_ptr<SendBudget> budget,
                                              std::shared_ptr<PendingFrameCount> count);
  // Makes a frame of the link itself with a copy of `text`; it takes no budget.
  static std::unique_ptr<PendingFrame> make_internal(FrameKind kind, const std::string& text,
                                                     std::shared_ptr<PendingFrameCount> count);
  ~PendingFrame();
  PendingFrame(const PendingFrame&) = delete;
  PendingFrame& operator=(const PendingFrame&) = delete;

  FrameHeader header;
  std::span<const std::byte> bytes() const { return frame_.bytes; }
  // Bytes on the wire: header and payload.
  size_t size() const { return sizeof(FrameHeader) + frame_.bytes.size(); }

 private:
  PendingFrame(Outgoing&& frame, std::shared_ptr<SendBudget> budget,
               std::shared_ptr<PendingFrameCount> count);

  Outgoing frame_;
  std::shared_ptr<SendBudget> budget_;  // Null for the link's own frames.
  std::shared_ptr<PendingFrameCount> count_;
};

}  // namespace tutti
