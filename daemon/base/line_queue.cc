#include "daemon/base/line_queue.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

namespace tutti {

struct LineQueue::State {
  const int fd;
  const size_t lines_max;
  const DescribeDropped describe_dropped;
  std::mutex mutex;  // Guards all that follows.
  std::condition_variable changed;
  std::deque<std::string> lines;
  uint64_t dropped = 0;  // Not described yet; while there are any, more are dropped.
  uint64_t dropped_in_all = 0;
  bool writing = false;
  bool closed = false;
};

namespace {

// Lines that nobody can read any more are lost.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
    if (count >= 0)
      text.remove_prefix(static_cast<size_t>(count));
    else if (errno == EAGAIN)
      poll(&room, 1, -1);
    else if (errno != EINTR)
      return;
  }
}

template <class State>
void write_lines(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.closed || !state.lines.empty(); });
    if (state.closed) return;
    const std::string line = std::move(state.lines.front());
    state.lines.pop_front();
    state.writing = true;
    lock.unlock();
    write_all(state.fd, line);
    lock.lock();
    state.writing = false;
    if (state.dropped != 0 && state.lines.size() <= state.lines_max / 2)
      state.lines.push_back(state.describe_dropped(std::exchange(state.dropped, 0)));
    if (state.lines.empty()) state.changed.notify_all();
  }
}

// A thread that handles no signals: they are for others.
template <class Body>
void start_thread(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(body)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

LineQueue::LineQueue(int fd, size_t lines_max, DescribeDropped describe_dropped)
    : state_(new State{
          .fd = fd, .lines_max = lines_max, .describe_dropped = std::move(describe_dropped)}) {
  start_thread([state = state_] { write_lines(*state); });
}

void LineQueue::add(std::string line) {
  const std::lock_guard lock(state_->mutex);
  if (state_->dropped != 0 || state_->lines.size() >= state_->lines_max) {
    ++state_->dropped;
    ++state_->dropped_in_all;
    return;
  }
  state_->lines.push_back(std::move(line));
  state_->changed.notify_all();
}

uint64_t LineQueue::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped_in_all;
}

bool LineQueue::close(Millis limit) {
  std::unique_lock lock(state_->mutex);
  const auto is_written = [this] { return state_->lines.empty() && !state_->writing; };
  const bool written = state_->changed.wait_for(lock, limit, is_written);
  state_->closed = true;
  state_->changed.notify_all();
  return written;
}

}  // namespace tutti
