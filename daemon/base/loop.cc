#include "daemon/base/loop.h"

#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tutti {

namespace {
constexpr TimePoint kNever = TimePoint::max();
constexpr Micros kContendedYield{50};  // A longer yield gave the core to another thread.
constexpr Millis kBackoffMin{1};
constexpr Millis kBackoffMax{2'000};

epoll_data data_of(int fd, uint32_t generation) {
  return {.u64 = uint64_t{generation} << 32 | static_cast<uint32_t>(fd)};
}
}  // namespace

Loop::Loop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(std::this_thread::get_id()) {
  require(epoll_.valid() && wake_.valid(), "the system gives no epoll or eventfd");
  epoll_event event{.events = EPOLLIN, .data = data_of(wake_.get(), 0)};
  require(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0,
          "epoll refuses eventfd");
}

Status Loop::watch(int fd, uint32_t events, Ready ready) {
  const uint32_t generation = ++generation_;
  epoll_event event{.events = events, .data = data_of(fd, generation)};
  const int verb = watched_.contains(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), verb, fd, &event) != 0)
    return errno_status("cannot watch descriptor");
  watched_[fd] = {generation, std::make_shared<Ready>(std::move(ready))};
  return {};
}

void Loop::unwatch(int fd) {
  if (watched_.erase(fd) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Loop::TimerId Loop::at(TimePoint when, Task task) {
  const TimerId id = next_timer_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  return id;
}

void Loop::cancel(TimerId timer) {
  const auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, timer});
  timer_times_.erase(found);
}

void Loop::post(Task task) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  // The loop's own thread checks for tasks before it sleeps.
  if (first && !in_loop_thread()) eventfd_write(wake_.get(), 1);
}

bool Loop::in_loop_thread() const { return thread_ == std::this_thread::get_id(); }

bool Loop::has_posted() {
  const std::lock_guard lock(mutex_);
  return !posted_.empty();
}

void Loop::stop() {
  post([this] { stopping_ = true; });
}

void Loop::run() {
  while (!stopping_) run_once(kNever);
}

void Loop::run_once(TimePoint until) {
  thread_ = std::this_thread::get_id();
  Events events;  // Local: a callback may call run_once().
  const int count = wait(until, events);
  require(count >= 0 || errno == EINTR, "epoll_wait failed");
  if (count > 0 && awake_) last_event_ = Clock::now();
  for (int i = 0; i < count; ++i) {
    const epoll_event event = events[i];
    const auto fd = static_cast<int>(event.data.u64 & UINT32_MAX);
    if (fd == wake_.get()) {
      eventfd_t ignored = 0;
      eventfd_read(wake_.get(), &ignored);
      continue;
    }
    const auto found = watched_.find(fd);
    // Unwatched or replaced by an earlier callback.
    if (found == watched_.end() || found->second.generation != event.data.u64 >> 32) continue;
    const std::shared_ptr<Ready> ready = found->second.ready;
    (*ready)(event.events);
  }
  run_posted();
  run_timers();
}

// Returns the number of events.
int Loop::wait(TimePoint until, Events& events) {
  const auto most = static_cast<int>(events.size());
  if (has_posted()) return epoll_wait(epoll_.get(), events.data(), most, 0);
  if (const int count = poll(until, events); count != 0) return count;
  return epoll_wait(epoll_.get(), events.data(), most, wait_ms(until));
}

// Polls without sleeping, for as long as stay_awake() allows. Returns the number of events.
int Loop::poll(TimePoint until, Events& events) {
  const Micros awake = awake_ ? awake_() : Micros(0);
  if (awake.count() == 0) return 0;
  TimePoint now = Clock::now();
  if (!timers_.empty()) until = std::min(until, timers_.begin()->first.first);
  until = std::min(until, last_event_ + awake);
  if (now >= until || now < poll_again_at_) return 0;
  while (now < until) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (count != 0) {
      backoff_ = Millis(0);
      return count;
    }
    sched_yield();
    const TimePoint before = std::exchange(now, Clock::now());
    if (now - before < kContendedYield) continue;
    backoff_ = std::clamp(2 * backoff_, kBackoffMin, kBackoffMax);
    poll_again_at_ = now + backoff_;
    return 0;
  }
  backoff_ = Millis(0);
  return 0;
}

void Loop::run_posted() {
  std::vector<Task> tasks = std::exchange(spare_, {});  // Local: a task may call run_once().
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) task();
  tasks.clear();
  spare_ = std::move(tasks);
}

void Loop::run_timers() {
  const TimePoint now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto due = timers_.extract(timers_.begin());
    timer_times_.erase(due.key().second);
    due.mapped()();
  }
}

int Loop::wait_ms(TimePoint until) const {
  if (!timers_.empty()) until = std::min(until, timers_.begin()->first.first);
  if (until == kNever) return -1;
  const auto left = std::chrono::ceil<Millis>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

}  // namespace tutti
