#include "client/gpu/stream_failure.h"

#include <thread>
#include <utility>

namespace tutti::client {
namespace {

// How long a call that fails waits for operations that may know why.
constexpr Millis kReasonTime{100};

}  // namespace

std::shared_ptr<StreamFailure> StreamFailure::begin() {
  ++under_way_;
  return {this, [self = shared_from_this()](StreamFailure*) { --self->under_way_; }};
}

void StreamFailure::keep(const Status& outcome) {
  const std::lock_guard lock(mutex_);
  if (first_.ok()) first_ = outcome;
  any_ = !first_.ok();
}

Status StreamFailure::take() {
  if (!any_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  any_ = false;
  return std::exchange(first_, Status());
}

Status StreamFailure::first_failure(const Connection& connection, Status status) {
  if (status.ok() || !connection.is_own_process() || connection.usable().ok()) return status;
  const TimePoint limit = Clock::now() + kReasonTime;
  while (under_way_ != 0 && Clock::now() < limit) std::this_thread::sleep_for(Millis(1));
  Status first = take();
  return first.ok() ? status : first;
}

}  // namespace tutti::client
