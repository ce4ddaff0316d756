#include "client/completer.h"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <thread>
#include <utility>

namespace tutti::client {
namespace {

// Signals are for the caller's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

struct Completer::State {
  std::mutex mutex;  // Guards what follows.
  std::condition_variable changed;
  std::deque<Entry> entries;
  bool is_running = false;
  bool ends = false;
};

Completer::Completer() : state_(std::make_shared<State>()) {}

Completer::~Completer() {
  const std::lock_guard lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_one();
}

Status Completer::add(Entry entry) {
  const std::lock_guard lock(state_->mutex);
  state_->entries.push_back(std::move(entry));
  state_->changed.notify_one();
  if (state_->is_running) return {};
  try {
    const SignalsBlocked inherited;
    std::thread(run, state_).detach();
  } catch (const std::system_error& error) {
    state_->entries.pop_back();
    return resource_exhausted(std::string("no thread can be started: ") + error.what());
  }
  state_->is_running = true;
  return {};
}

// The entry is destroyed before the next wait: it may hold the last handle of the job.
void Completer::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "tutti-completer");
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->ends || !state->entries.empty(); });
      if (state->entries.empty()) return;
      entry = std::move(state->entries.front());
      state->entries.pop_front();
    }
    static_cast<void>(entry.queue->wait(*entry.op, -1));
    entry.done();
  }
}

}  // namespace tutti::client
