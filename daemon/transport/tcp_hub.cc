#include <poll.h>

#include <algorithm>
#include <vector>

#include "daemon/transport/tcp_link.h"

namespace tutti {
namespace {

constexpr Millis kGoodbyeLimit{600};  // A little more than links take at most.

}  // namespace

bool TcpHub::keep(std::shared_ptr<TcpLink> link) {
  const std::lock_guard lock(mutex_);
  if (!closing_) links_.insert(std::move(link));
  return !closing_;
}

void TcpHub::forget(const std::shared_ptr<TcpLink>& link) {
  const std::lock_guard lock(mutex_);
  links_.erase(link);
  changed_.notify_all();
}

std::set<std::shared_ptr<TcpLink>> TcpHub::links() {
  const std::lock_guard lock(mutex_);
  return links_;
}

void TcpHub::close_all(const Status& cause) {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for (const auto& link : links()) link->close(cause);
}

void TcpHub::wait_none() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return links_.empty(); });
}

void TcpHub::drive_to_end() {
  for (const auto& link : links()) link->wind_up();
  const TimePoint limit = Clock::now() + kGoodbyeLimit;
  for (auto left = links(); !left.empty(); left = links()) {
    std::vector<pollfd> sockets;
    for (const auto& link : left) sockets.push_back({link->descriptor(), POLLIN, 0});
    const auto wait_ms = std::chrono::ceil<Millis>(limit - Clock::now()).count();
    if (wait_ms <= 0) break;
    poll(sockets.data(), sockets.size(), static_cast<int>(std::min<int64_t>(wait_ms, 10)));
    for (const auto& link : left) link->ready(EPOLLIN | EPOLLOUT);
  }
  for (const auto& link : links()) link->break_off(unavailable("its transport ends"));
}

}  // namespace tutti
