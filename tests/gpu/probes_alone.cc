// The probes of one process: see probes.cc.
#include <map>

#include "tests/gpu/probe_parts.h"

namespace tutti::probes {

// cuMemAllocAsync's pools: their memory must be exported as a pool, so it is staged.
void try_pool() {
  Work work;
  const auto allocate =
      symbol<cuda::Error (*)(cuda::Pointer*, size_t, cuda::Stream)>("cuMemAllocAsync");
  if (allocate == nullptr) return say("the driver has no pools");
  cuda::Pointer memory = 0;
  const cuda::Error made =
      work.in_context([&] { return allocate(&memory, 4 * kMiB, work.gpu->native(*work.stream)); });
  must(work.gpu->wait(*work.stream), "allocate from the pool");
  expect(made == cuda::kSuccess, "memory of the pool: " + work.error(made));
  unsigned type = 0;
  uint64_t id = 0;
  cuda::IpcHandle ipc{};
  cuda::Allocation allocation = 0;
  const auto ask = [&](const char* what, const std::function<cuda::Error()>& call) {
    const cuda::Error error = work.in_context(call);
    say("%s: %s", what, work.error(error).c_str());
    return error;
  };
  ask("its type",
      [&] { return work.driver.pointer_get_attribute(&type, cuda::kPointerMemoryType, memory); });
  expect(type == cuda::kMemoryTypeDevice, "it is device memory");
  ask("its buffer id",
      [&] { return work.driver.pointer_get_attribute(&id, cuda::kPointerBufferId, memory); });
  const cuda::Error ipc_error =
      ask("IPC handle", [&] { return work.driver.ipc_get_mem_handle(&ipc, memory); });
  const cuda::Error retained = ask("allocation", [&] {
    return work.driver.mem_retain_allocation_handle(&allocation, reinterpret_cast<void*>(memory));
  });
  expect(ipc_error != cuda::kSuccess && retained != cuda::kSuccess, "it is refused, and so staged");
}

void try_buffer_ids() {
  Work work;
  std::map<cuda::Pointer, uint64_t> seen;
  int again = 0, same = 0;
  for (int round = 0; round < 100; ++round) {
    cuda::Pointer memory = 0;
    uint64_t id = 0;
    const size_t bytes = round % 2 == 0 ? 4 * kMiB : 1000;
    const cuda::Error error =
        work.in_context([&] { return work.driver.mem_alloc(&memory, bytes); });
    if (error != cuda::kSuccess) give_up("allocating: " + work.error(error));
    work.driver.pointer_get_attribute(&id, cuda::kPointerBufferId, memory);
    if (const auto found = seen.find(memory); found != seen.end()) {
      ++again;
      same += found->second == id ? 1 : 0;
    }
    seen[memory] = id;
    work.in_context([&] { return work.driver.mem_free(memory); });
    uint64_t freed = 0;
    const cuda::Error asked =
        work.driver.pointer_get_attribute(&freed, cuda::kPointerBufferId, memory);
    if (asked == cuda::kSuccess && freed == id) same += 1;
  }
  expect(again != 0 && same == 0, std::to_string(again) + " of 100 addresses came again, " +
                                      std::to_string(same) + " with the id that they had");
}

namespace {

// Which calls wait while a stream of the context waits for a word, as lanes wait for ranks.
class Held {
 public:
  // A call that waits is let go on by the word; then the stream is held again.
  void try_call(const std::string& what, bool may_wait, const std::function<void()>& call) {
    std::atomic<bool> has_returned = false;
    const auto began = Clock::now();
    std::thread caller([&] {
      call();
      has_returned = true;
    });
    while (!has_returned && us_since(began) < kPatienceUs) poll(nullptr, 0, 1);
    const bool waits = !has_returned;
    expect(may_wait || !waits, what + (waits ? " waits" : " returns after " + us(us_since(began))));
    if (waits) std::atomic_ref(*word()).store(++value_ - 1);
    caller.join();
    if (waits) hold();
  }

  Work work;

  Held() {
    std::memset(words_->data(), 0, 4096);
    hold();
  }
  ~Held() { std::atomic_ref(*word()).store(value_); }

 private:
  static constexpr double kPatienceUs = 2e6;

  uint64_t* word() { return reinterpret_cast<uint64_t*>(words_->data()); }
  void hold() { must(work.gpu->wait(*held_, word(), value_), "hold a stream"); }

  const std::unique_ptr<Buffer> words_ = must(work.gpu->allocate_pinned(4096), "pinned memory");
  const std::unique_ptr<Stream> held_ = must(work.gpu->make_stream(), "make a stream");
  uint64_t value_ = 1;
};

}  // namespace

void call_beside_a_held_stream() {
  Held held;
  Work& work = held.work;
  const auto ones = [&](const char* what) { return must(work.gpu->allocate(kMiB), what); };
  std::unique_ptr<Buffer> memory, pinned, registered;
  alignas(4096) static std::byte page[4096];
  held.try_call("to allocate", false, [&] { memory = ones("allocate"); });
  held.try_call("to pin memory of the driver's", false,
                [&] { pinned = must(work.gpu->allocate_pinned(kMiB), "pinned memory"); });
  held.try_call("to register memory", false,
                [&] { registered = must(work.gpu->pin(page, sizeof(page)), "pin"); });
  held.try_call("to make and destroy a stream", false,
                [&] { must(work.gpu->make_stream(), "make a stream"); });
  held.try_call("to copy from ordinary memory", false,
                [&] { work.write(memory->data(), pattern(4096, 1)); });
  held.try_call("a kernel, the first of its kind, and its end", false, [&] {
    must(work.add(memory->data(), memory->data(), memory->data(), 4096), "add");
    must(work.gpu->wait(*work.stream), "finish");
  });
  held.try_call("a kernel of f64, the first", false, [&] {
    const Target target{memory->data(), Dtype::f64};
    const Operand source{memory->data(), Dtype::f64};
    must(work.gpu->reduce(*work.stream, {&target, 1}, {&source, 1}, {.count = 64}), "reduce");
    must(work.gpu->wait(*work.stream), "finish");
  });
  held.try_call("to open the GPU once more", true,  // It loads kernels: a worker does so once.
                [&] { must(make_gpu(work.driver, 0), "open"); });
  held.try_call("to unregister memory", true, [&] { registered.reset(); });
  held.try_call("to free pinned memory", true, [&] { pinned.reset(); });
  held.try_call("to free memory", true, [&] { memory.reset(); });
}

}  // namespace tutti::probes
