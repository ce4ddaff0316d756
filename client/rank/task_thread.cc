#include "client/rank/task_thread.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "client/rank/signals.h"

namespace tutti::client {

struct TaskThread::State {
  const char* name = "";
  std::mutex mutex;  // Guards what follows.
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool is_running = false;
  bool ends = false;
};

TaskThread::TaskThread(const char* name) : state_(std::make_shared<State>()) {
  state_->name = name;
}

TaskThread::~TaskThread() {
  const std::lock_guard lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_one();
}

Status TaskThread::add(std::function<void()> task) noexcept {
  const std::lock_guard lock(state_->mutex);
  bool is_added = false;
  try {
    state_->tasks.push_back(std::move(task));
    is_added = true;
    if (!state_->is_running) {
      const SignalsBlocked inherited;
      std::thread(run, state_).detach();
      state_->is_running = true;
    }
  } catch (const std::exception&) {
    if (is_added) state_->tasks.pop_back();
    return resource_exhausted("no thread can be started, or memory ran out");
  }
  state_->changed.notify_one();
  return {};
}

// The task is destroyed before the next wait: it may hold the last handle of the job.
void TaskThread::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), state->name);
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->ends || !state->tasks.empty(); });
      if (state->tasks.empty()) return;
      task = std::move(state->tasks.front());
      state->tasks.pop_front();
    }
    task();
  }
}

}  // namespace tutti::client
