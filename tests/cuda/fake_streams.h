// Streams and events of the fake driver: each stream is a thread that does its work in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tutti::fake {

// What an event waits for: set once the work that was queued before its record is done.
class Mark {
 public:
  void set();
  bool is_set();
  void wait();
  bool wait_a_while();  // Whether it is set.

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

class StreamThread {
 public:
  explicit StreamThread(int gpu) : gpu_(gpu), thread_([this] { run(); }) {}
  // Waits for the queued work, as the driver does before it frees a stream.
  ~StreamThread();
  StreamThread(const StreamThread&) = delete;
  StreamThread& operator=(const StreamThread&) = delete;

  int gpu() const { return gpu_; }
  void add(std::function<void()> work);
  std::shared_ptr<Mark> mark();
  void wait_until(const volatile uint64_t* word, uint64_t value);
  bool is_idle();

 private:
  void run();

  const int gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool is_busy_ = false;
  bool ends_ = false;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace tutti::fake
