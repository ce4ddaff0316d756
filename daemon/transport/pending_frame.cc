#include "daemon/transport/pending_frame.h"

#include <utility>

namespace tutti {

bool SendBudget::try_acquire(size_t bytes) {
  size_t used = used_.load();
  do {
    if (used > 0 && used + bytes > bytes_max_) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

void PendingFrameCount::add() {
  std::lock_guard lock(mutex_);
  ++count_;
}

void PendingFrameCount::remove() {
  std::lock_guard lock(mutex_);
  if (--count_ == 0) zero_.notify_all();
}

void PendingFrameCount::wait_zero() {
  std::unique_lock lock(mutex_);
  zero_.wait(lock, [this] { return count_ == 0; });
}

std::unique_ptr<PendingFrame> PendingFrame::accept(Outgoing& frame,
                                                   std::shared_ptr<SendBudget> budget,
                                                   std::shared_ptr<PendingFrameCount> count) {
  if (!budget->try_acquire(sizeof(FrameHeader) + frame.bytes.size())) return nullptr;
  return std::unique_ptr<PendingFrame>(
      new PendingFrame(std::move(frame), std::move(budget), std::move(count)));
}

std::unique_ptr<PendingFrame> PendingFrame::make_internal(
    FrameKind kind, const std::string& text, std::shared_ptr<PendingFrameCount> count) {
  const auto copy = std::make_shared<const std::string>(text);
  Outgoing frame{{.kind = kind}, std::as_bytes(std::span(*copy)), [copy] {}};
  return std::unique_ptr<PendingFrame>(
      new PendingFrame(std::move(frame), nullptr, std::move(count)));
}

PendingFrame::PendingFrame(Outgoing&& frame, std::shared_ptr<SendBudget> budget,
                           std::shared_ptr<PendingFrameCount> count)
    : header(frame.header),
      frame_(std::move(frame)),
      budget_(std::move(budget)),
      count_(std::move(count)) {
  count_->add();
}

PendingFrame::~PendingFrame() {
  if (budget_) budget_->release(size());
  if (frame_.released) frame_.released();
  frame_.released = nullptr;  // Its captures are destroyed before the transport may be.
  count_->remove();
}

}  // namespace tutti
