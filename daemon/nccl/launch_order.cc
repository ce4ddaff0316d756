#include "daemon/nccl/launch_order.h"

#include <utility>

namespace tutti::nccl {

LaunchOrder::Ticket LaunchOrder::add(std::function<void()> go) {
  waiting_.emplace(next_, Waiting{std::move(go)});
  begun_.emplace(next_, false);
  return next_++;
}

void LaunchOrder::set_ready(Ticket ticket) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end()) return;
  found->second.is_ready = true;
  run();
}

void LaunchOrder::pass(Ticket ticket) {
  waiting_.erase(ticket);
  run();
}

void LaunchOrder::leave(Ticket ticket) {
  const auto left = begun_.extract(ticket);
  if (!left.empty() && left.mapped()) ++room_;
  pass(ticket);
}

void LaunchOrder::run() {
  while (!waiting_.empty() && room_ > 0 && !is_closed_) {
    auto& [ticket, first] = *waiting_.begin();
    if (!first.is_ready || std::exchange(first.has_begun, true)) return;
    --room_;
    begun_.at(ticket) = true;
    const auto go = std::move(first.go);  // It may pass or leave.
    go();
  }
}

}  // namespace tutti::nccl
