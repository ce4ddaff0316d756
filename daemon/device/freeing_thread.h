// Frees what the driver gave, on a thread of its own: to free, the driver may wait for all streams
// of a context, which wait for ranks, which may wait for the caller.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

namespace tutti {

class FreeingThread {
 public:
  // How long end() waits.
  static constexpr std::chrono::seconds kEndBound{3};

  FreeingThread();
  ~FreeingThread();
  FreeingThread(const FreeingThread&) = delete;
  FreeingThread& operator=(const FreeingThread&) = delete;

  // Lets go of it soon, after what was given before. Any thread; never blocks.
  void free(std::shared_ptr<const void> resource);
  // Waits until all is freed. False: the bound has passed; what is left belongs to the thread,
  // which ends with the process. Nothing is freed afterwards.
  bool end();

 private:
  struct Queue;
  static void run(Queue& queue);

  const std::shared_ptr<Queue> queue_;
  std::thread thread_;
  bool all_freed_ = false;
};

// Keeps it until the process ends, because the driver may use it for as long.
void keep_until_exit(std::shared_ptr<const void> resource);

}  // namespace tutti
