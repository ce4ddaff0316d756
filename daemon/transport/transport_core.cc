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

void TransportCore::add_half_open(std::shared_ptr<LinkCore> link) {
  half_open_.push_back(std::move(link));
  if (half_open_.size() <= limits.half_open_max) return;
  const std::shared_ptr<LinkCore> oldest = half_open_.front();
  half_open_.pop_front();
  const Status full = resource_exhausted("too many links wait to be let in");
  oldest->close_with(full, full);
  oldest->shut_down();
}

}  // namespace tutti
