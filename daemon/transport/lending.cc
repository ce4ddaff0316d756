#include "daemon/transport/lending.h"

#include <utility>

namespace tutti {

bool SendBudget::take(size_t bytes) {
  size_t used = used_.load();
  do {
    if (used > 0 && used + bytes > bytes_max_) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

void Lending::borrowed() {
  std::lock_guard lock(mutex_);
  ++borrowed_;
}

void Lending::returned() {
  std::lock_guard lock(mutex_);
  if (--borrowed_ == 0) none_.notify_all();
}

void Lending::wait_none() {
  std::unique_lock lock(mutex_);
  none_.wait(lock, [this] { return borrowed_ == 0; });
}

std::unique_ptr<Borrow> Borrow::take(Outgoing& frame, std::shared_ptr<SendBudget> budget,
                                     std::shared_ptr<Lending> lending) {
  if (!budget->take(sizeof(FrameHeader) + frame.bytes.size())) return nullptr;
  return std::unique_ptr<Borrow>(
      new Borrow(std::move(frame), std::move(budget), std::move(lending)));
}

std::unique_ptr<Borrow> Borrow::own(FrameKind kind, const std::string& text,
                                    std::shared_ptr<Lending> lending) {
  const auto copy = std::make_shared<const std::string>(text);
  Outgoing frame{{.kind = kind}, std::as_bytes(std::span(*copy)), [copy] {}};
  return std::unique_ptr<Borrow>(new Borrow(std::move(frame), nullptr, std::move(lending)));
}

Borrow::Borrow(Outgoing&& frame, std::shared_ptr<SendBudget> budget,
               std::shared_ptr<Lending> lending)
    : header(frame.header),
      frame_(std::move(frame)),
      budget_(std::move(budget)),
      lending_(std::move(lending)) {
  lending_->borrowed();
}

Borrow::~Borrow() {
  if (budget_) budget_->give(cost());
  if (frame_.released) frame_.released();
  frame_.released = nullptr;  // Whatever it holds goes before the transport may.
  lending_->returned();
}

}  // namespace tutti
