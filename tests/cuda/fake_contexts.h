// Contexts of the fake driver: one a GPU, with the streams that were made there.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "daemon/cuda/cuda.h"
#include "tests/cuda/fake_streams.h"

namespace tutti::cuda {

struct StreamTag {
  explicit StreamTag(int gpu) : thread(gpu) {}
  fake::StreamThread thread;
  bool is_capturing = false;
};
struct ContextTag {
  int gpu = 0;
  std::mutex mutex;  // Guards what follows.
  std::set<StreamTag*> streams;
  std::unique_ptr<StreamTag> default_stream;  // Null: nothing was queued there yet.
};

}  // namespace tutti::cuda

namespace tutti::fake {

inline constexpr int kGpusMax = 8;

// Any thread. They live until the process ends.
cuda::Context context_of(int gpu);

// What this thread has pushed.
std::vector<cuda::Context>& current();
int current_gpu();  // -1: no context is current.

// In the current context.
cuda::Stream make_stream();
void destroy_stream(cuda::Stream stream);
// Null: the default stream's, but no context is current.
StreamThread* thread_of(cuda::Stream stream);

// Waits until the streams of the current context have done what they were given so far, as the
// driver does before it frees memory. False: the process has met a fault.
bool wait_for_streams();

}  // namespace tutti::fake
