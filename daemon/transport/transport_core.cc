#include "daemon/transport/transport_core.h"

#include "daemon/transport/link_core.h"

namespace tutti {

bool TransportCore::add(std::shared_ptr<LinkCore> link) {
  const std::lock_guard lock(mutex_);
  if (!closing_) links_.insert(std::move(link));
  return !closing_;
}

void TransportCore::remove(const std::shared_ptr<LinkCore>& link) {
  const std::lock_guard lock(mutex_);
  links_.erase(link);
  removed_.notify_all();
}

LinkSet TransportCore::links() {
  const std::lock_guard lock(mutex_);
  return links_;
}

void TransportCore::close_all(const Status& cause) {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for (const auto& link : links()) link->close(cause);
}

void TransportCore::wait_no_links() {
  std::unique_lock lock(mutex_);
  removed_.wait(lock, [this] { return links_.empty(); });
}

void TransportCore::add_half_open(const std::string& address, std::shared_ptr<LinkCore> link) {
  half_open_.push(address, std::move(link));
  const auto evicted = half_open_.pop_beyond(limits.half_open_max);
  if (!evicted) return;
  const Status full = resource_exhausted("too many links wait to be let in");
  (*evicted)->close_with(full, full);
  (*evicted)->shut_down();
}

void TransportCore::remove_half_open(const std::shared_ptr<LinkCore>& link) {
  (void)half_open_.remove_if([&](const auto& each) { return each == link; });
}

}  // namespace tutti
