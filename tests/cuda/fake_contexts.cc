#include "tests/cuda/fake_contexts.h"

#include <array>

#include "tests/cuda/fake_poison.h"

namespace tutti::fake {

namespace {

using Contexts = std::array<cuda::ContextTag, kGpusMax>;

Contexts& make_contexts() {
  auto& contexts = *new Contexts();
  for (size_t gpu = 0; gpu < contexts.size(); ++gpu) contexts[gpu].gpu = static_cast<int>(gpu);
  return contexts;
}

}  // namespace

cuda::Context context_of(int gpu) {
  static Contexts& contexts = make_contexts();
  return &contexts[static_cast<size_t>(gpu)];
}

std::vector<cuda::Context>& current() {
  static thread_local std::vector<cuda::Context> stack;
  return stack;
}

int current_gpu() { return current().empty() ? -1 : current().back()->gpu; }

cuda::Stream make_stream() {
  const cuda::Context context = current().back();
  const std::lock_guard lock(context->mutex);
  return *context->streams.insert(new cuda::StreamTag(context->gpu)).first;
}

void destroy_stream(cuda::Stream stream) {
  const cuda::Context context = context_of(stream->thread.gpu());
  {
    const std::lock_guard lock(context->mutex);
    context->streams.erase(stream);
  }
  delete stream;
}

StreamThread* thread_of(cuda::Stream stream) {
  if (stream != nullptr) return &stream->thread;
  if (current().empty()) return nullptr;
  const cuda::Context context = current().back();
  const std::lock_guard lock(context->mutex);
  if (context->default_stream == nullptr)
    context->default_stream = std::make_unique<cuda::StreamTag>(context->gpu);
  return &context->default_stream->thread;
}

bool wait_for_streams() {
  const cuda::Context context = current().back();
  std::vector<std::shared_ptr<Mark>> marks;
  {
    const std::lock_guard lock(context->mutex);
    for (cuda::StreamTag* stream : context->streams) marks.push_back(stream->thread.mark());
    if (context->default_stream != nullptr) marks.push_back(context->default_stream->thread.mark());
  }
  for (const std::shared_ptr<Mark>& mark : marks)
    while (!mark->wait_a_while())
      if (is_poisoned()) return false;
  return true;
}

}  // namespace tutti::fake
