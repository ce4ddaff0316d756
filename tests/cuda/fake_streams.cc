#include "tests/cuda/fake_streams.h"

#include "tests/cuda/fake_delays.h"
#include "tests/cuda/fake_poison.h"

namespace tutti::fake {
namespace {

// Between two looks at a word in memory that another process writes.
constexpr std::chrono::microseconds kLook{20};
constexpr int kLooksBetweenFaults = 100;  // These are slower: they read a file.
constexpr std::chrono::milliseconds kWhile{1};
constexpr size_t kQueued = 1'000;  // Who adds more waits, as with CUDA's own driver.

}  // namespace

void Mark::set() {
  const std::lock_guard lock(mutex_);
  is_set_ = true;
  changed_.notify_all();
}

bool Mark::is_set() {
  const std::lock_guard lock(mutex_);
  return is_set_;
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_set_; });
}

bool Mark::wait_a_while() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kWhile, [this] { return is_set_; });
}

StreamThread::~StreamThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StreamThread::add(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_.size() < kQueued; });
  work_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Mark> StreamThread::mark() {
  auto mark = std::make_shared<Mark>();
  add([mark] { mark->set(); });
  return mark;
}

void StreamThread::wait_until(const volatile uint64_t* word, uint64_t value) {
  add([word, value] {
    auto* shared = const_cast<uint64_t*>(word);
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    const std::chrono::microseconds look = delay_of("FAKE_CUDA_SLOW_WAITS");
    for (int looks = 1; static_cast<int64_t>(std::atomic_ref(*shared).load() - value) < 0;
         ++looks) {
      never.wait_for(lock, std::max(kLook, look));
      if (looks % kLooksBetweenFaults == 0) stop_if_lost();
    }
    stop_if_lost();
  });
}

bool StreamThread::is_idle() {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !is_busy_;
}

void StreamThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    is_busy_ = true;
    changed_.notify_all();
    lock.unlock();
    stop_if_lost();
    next();
    lock.lock();
    is_busy_ = false;
  }
}

}  // namespace tutti::fake
