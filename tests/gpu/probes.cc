// What Tutti assumes of GPUs and of their driver, each assumption tried alone, without a daemon:
// lines of what was found, "no: " before those that break the assumption. Exit code 0: it holds; 1:
// it does not; 2: no such probe.
//   gpu_probes           names the probes
//   gpu_probes PROBE     over the driver that TUTTI_TEST_CUDA_DRIVER names
// Most run in two processes, an owner of memory and a user of it, as trainers and their worker are.
#include <map>

#include "tests/gpu/probe_parts.h"

namespace tutti::probes {

namespace {

// ---- Probes ----

const int kQueued =
    is_fake_under_test() ? 10 : 1000;  // Kernels, so that the GPU is busy for a while.
constexpr size_t kIpcBytes = 64 * kMiB;
constexpr size_t kSmall = 1000;

// Two handles: of a large allocation, and of the third of three small ones, that share a granule.
void own_ipc(Peer& peer) {
  Work work;
  const auto large = work.allocate(kIpcBytes);
  work.write(large->data(), pattern(kIpcBytes, 1));
  const MemoryHandle handle = must(work.gpu->export_memory(*large), "export");
  peer.send(handle.ipc.data(), sizeof(cuda::IpcHandle));
  cuda::Pointer small[3] = {};
  cuda::IpcHandle ipc{};
  const cuda::Error made = work.in_context([&] {
    for (cuda::Pointer& piece : small) work.driver.mem_alloc(&piece, kSmall);
    return work.driver.ipc_get_mem_handle(&ipc, small[2]);
  });
  expect(made == cuda::kSuccess, "a small allocation is exported: " + work.error(made));
  cuda::Pointer base = 0;
  size_t bytes = 0;
  work.in_context([&] { return work.driver.mem_get_address_range(&base, &bytes, small[2] + 500); });
  expect(base == small[2], "its range, of " + std::to_string(bytes) + " bytes, begins with it");
  work.write(reinterpret_cast<void*>(small[2]), pattern(kSmall, 3));
  peer.send(&ipc, sizeof(ipc));
  peer.hear();
  expect(work.read(large->data() + 4096, 4096) == pattern(4096, 2),
         "the owner sees the user's bytes");
  peer.tell();
  peer.hear();
}

void use_ipc(Peer& peer) {
  Work work;
  MemoryHandle handle{.ipc = Bytes(sizeof(cuda::IpcHandle)), .bytes = kIpcBytes};
  if (!peer.receive(handle.ipc.data(), handle.ipc.size())) give_up("no handle came");
  const auto began = Clock::now();
  std::unique_ptr<Buffer> large = must(work.gpu->import_memory(handle), "import");
  say("the first import takes %s", us(us_since(began)).c_str());
  expect(work.read(large->data(), kIpcBytes) == pattern(kIpcBytes, 1),
         "the user sees the owner's bytes");
  work.write(large->data() + 4096, pattern(4096, 2));
  MemoryHandle small{.ipc = Bytes(sizeof(cuda::IpcHandle)), .bytes = kSmall};
  if (!peer.receive(small.ipc.data(), small.ipc.size())) give_up("no handle came");
  auto piece = work.gpu->import_memory(small);
  expect(piece.ok(), "a small allocation is imported: " + piece.status().to_string());
  if (piece.ok())
    expect(work.read((*piece)->data(), kSmall) == pattern(kSmall, 3),
           "its bytes are those of the owner's");
  peer.tell();
  peer.hear();

  auto again = work.gpu->import_memory(handle);
  say("opened twice: %s%s", again.status().to_string().c_str(),
      again.ok() && (*again)->data() == large->data() ? ", the same address" : "");
  if (again.ok()) {
    again->reset();
    expect(work.read(large->data(), 4096) == pattern(4096, 1),
           "closed once, the memory is still mapped");
  }
  const auto one = work.ones(kIpcBytes);
  for (int i = 0; i < kQueued; ++i)
    must(work.add(large->data(), large->data(), one->data(), kIpcBytes), "add");
  const auto closing = Clock::now();
  large.reset();
  const double closed = us_since(closing);
  const Status done = work.gpu->wait(*work.stream);
  expect(done.ok(),
         "closed while kernels use it, which " + us(closed) + " took: " + done.to_string());
  peer.tell();
}

// Finds a chunk again from a bare pointer, and sends its descriptor.
void share_chunk(const Work& work, const Peer& peer, cuda::Pointer chunk) {
  cuda::Pointer found = 0;
  size_t bytes = 0;
  uint64_t id = 0;
  cuda::Context context = nullptr;
  const cuda::Error ranged = work.in_context(
      [&] { return work.driver.mem_get_address_range(&found, &bytes, chunk + 100); });
  expect(found == chunk && bytes == kGranule,
         "the range of a chunk is the chunk: " + work.error(ranged) + ", " + std::to_string(bytes));
  const cuda::Error known =
      work.driver.pointer_get_attribute(&id, cuda::kPointerBufferId, chunk + 100);
  expect(known == cuda::kSuccess,
         "its buffer id is " + std::to_string(id) + ": " + work.error(known));
  const cuda::Error asked =
      work.driver.pointer_get_attribute(&context, cuda::kPointerContext, chunk);
  say("its context: %s%s", work.error(asked).c_str(), context == nullptr ? ", null" : "");
  cuda::IpcHandle ipc{};
  const cuda::Error exported =
      work.in_context([&] { return work.driver.ipc_get_mem_handle(&ipc, chunk); });
  expect(exported != cuda::kSuccess, "it has no IPC handle: " + work.error(exported));
  cuda::Allocation allocation = 0;
  int fd = -1;
  const cuda::Error retained = work.in_context([&] {
    return work.driver.mem_retain_allocation_handle(&allocation, reinterpret_cast<void*>(chunk));
  });
  const cuda::Error shared = work.in_context([&] {
    return work.driver.mem_export_to_shareable_handle(&fd, allocation, cuda::kHandleDescriptor, 0);
  });
  expect(shared == cuda::kSuccess,
         "it is exported from a bare pointer: " + work.error(retained) + ", " + work.error(shared));
  work.driver.mem_release(allocation);
  peer.send_descriptor(fd);
  close(fd);
}

// Memory of two chunks, as torch's expandable segments: found again from a bare pointer.
void own_chunks(Peer& peer) {
  Work work;
  cuda::Pointer base = 0;
  const cuda::Error made = work.in_context([&] {
    cuda::AllocationProperties how{};
    how.type = cuda::kAllocationPinned;
    how.handle_types = cuda::kHandleDescriptor;
    how.location = {cuda::kLocationDevice, 0};
    cuda::Error error = work.driver.mem_address_reserve(&base, 2 * kGranule, 0, 0, 0);
    for (size_t at = 0; at < 2 * kGranule && error == cuda::kSuccess; at += kGranule) {
      cuda::Allocation chunk = 0;
      error = work.driver.mem_create(&chunk, kGranule, &how, 0);
      if (error == cuda::kSuccess) error = work.driver.mem_map(base + at, kGranule, 0, chunk, 0);
      work.driver.mem_release(chunk);
    }
    const cuda::Access access{{cuda::kLocationDevice, 0}, cuda::kAccessReadWrite};
    if (error == cuda::kSuccess) error = work.driver.mem_set_access(base, 2 * kGranule, &access, 1);
    return error;
  });
  if (made != cuda::kSuccess) give_up("chunks are not made: " + work.error(made));
  auto* memory = reinterpret_cast<std::byte*>(base);
  work.write(memory, pattern(2 * kGranule, 4));
  for (size_t at = 0; at < 2 * kGranule; at += kGranule) share_chunk(work, peer, base + at);
  peer.hear();
  expect(work.read(memory + kGranule - 2048, 4096) == pattern(4096, 5),
         "the owner sees bytes over both");
}

void use_chunks(Peer& peer) {
  Work work;
  const Fd first = peer.receive_descriptor(), second = peer.receive_descriptor();
  MemoryHandle handle{.bytes = 2 * kGranule};
  handle.chunks = {{first.get(), kGranule}, {second.get(), kGranule}};
  const auto memory = must(work.gpu->import_memory(handle), "import chunks");
  expect(work.read(memory->data(), 2 * kGranule) == pattern(2 * kGranule, 4),
         "the user sees both chunks");
  work.write(memory->data() + kGranule - 2048, pattern(4096, 5));
  peer.tell();
}

// Host memory that both processes have registered.
void own_words(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin in the owner");
  peer.hear();
  must(work.gpu->store(*work.stream, peer.word(1), 7), "store a word");
  must(work.gpu->wait(*work.stream), "finish the store");
  expect(peer.load(1) == 7, "the processor sees a stream's store");
  const auto one = work.ones(4096);
  must(work.add(peer.shared + 8192, one->data(), one->data(), 4096), "a kernel on shared memory");
  must(work.gpu->wait(*work.stream), "finish it");
  peer.tell();
  peer.hear();
}
void use_words(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin in the user too");
  cuda::Pointer device = 0;
  const cuda::Error error = work.in_context(
      [&] { return work.driver.mem_host_get_device_pointer(&device, peer.shared + 64, 0); });
  expect(error == cuda::kSuccess, "it has a device pointer: " + work.error(error));
  say("which %s the host's", device == address_of(peer.shared + 64) ? "equals" : "differs from");
  peer.tell();
  peer.hear();
  expect(work.read(peer.shared + 8192, 1)[0] == std::byte{2},
         "a copy reads what the other's kernel wrote");
  peer.tell();
}

// Streams of one process wait for words of the other's.
void own_order(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  peer.hear();
  must(work.gpu->store(*work.stream, peer.word(0), 1), "store a word");
  must(work.gpu->wait(*work.stream), "finish it");
  peer.hear();
  poll(nullptr, 0, 100);
  peer.store(0, 5);  // By the processor.
  peer.hear();
}
void use_order(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  const auto attribute = symbol<cuda::Error (*)(int*, int, int)>("cuDeviceGetAttribute");
  // CAN_USE_64_BIT_STREAM_MEM_OPS of the functions before _v2, and CAN_USE_STREAM_WAIT_VALUE_NOR.
  for (const int asked : {93, 122})
    if (int value = -1; attribute != nullptr && attribute(&value, asked, 0) == cuda::kSuccess)
      say("device attribute %d is %d", asked, value);
  must(work.gpu->wait(*work.stream, peer.word(0), 1), "wait for a word");
  expect(!must(work.gpu->is_done(*work.stream), "look"), "the stream waits");
  auto began = Clock::now();
  peer.tell();
  must(work.gpu->wait(*work.stream), "the wait ends");
  say("a stream's store releases another process's stream: %s", us(us_since(began)).c_str());
  must(work.gpu->wait(*work.stream, peer.word(0), 5), "wait for a word");
  must(work.gpu->store(*work.stream, peer.word(2), 9), "store after the wait");
  peer.tell();
  must(work.gpu->wait(*work.stream), "the wait ends");
  expect(peer.load(0) == 5 && peer.load(2) == 9, "a processor's store releases it too");
  must(work.gpu->wait(*work.stream, peer.word(2), uint64_t(9)), "wait for what is there");
  peer.store(3, ~uint64_t{0} - 1);
  must(work.gpu->wait(*work.stream, peer.word(3), ~uint64_t{0} - 3), "near the end of the numbers");
  must(work.gpu->wait(*work.stream), "both go on");
  peer.tell();
}

// Each waits for a word that the other writes behind many launches: first one way, then the other.
void go_back_and_forth(Peer& peer, bool is_first) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  const auto memory = work.ones(4 * kMiB);
  peer.tell();
  peer.hear();
  const auto began = Clock::now();
  const int mine = is_first ? 0 : 1, others = is_first ? 1 : 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    if (!is_first) must(work.gpu->wait(*work.stream, peer.word(others), round), "wait");
    for (int i = 0; i < kQueued; ++i)
      must(work.add(memory->data(), memory->data(), memory->data(), 4 * kMiB), "add");
    must(work.gpu->store(*work.stream, peer.word(mine), round), "store");
    if (is_first) must(work.gpu->wait(*work.stream, peer.word(others), round), "wait");
  }
  must(work.gpu->wait(*work.stream), "finish");
  if (!is_first)
    say("6 x %d launches in turns of two processes: %s", kQueued, us(us_since(began)).c_str());
  // Both keep the GPU busy, while one waits on a second stream.
  const auto second = must(work.gpu->make_stream(), "make a stream");
  must(work.gpu->wait(*second, peer.word(2 + others), 1), "wait");
  for (int i = 0; i < kQueued; ++i)
    must(work.add(memory->data(), memory->data(), memory->data(), 4 * kMiB), "add");
  must(work.gpu->store(*work.stream, peer.word(2 + mine), 1), "store");
  must(work.gpu->wait(*second), "the second stream ends");
  must(work.gpu->wait(*work.stream), "the first stream ends");
  if (!is_first)
    say("both busy, each with a stream that waits for the other: %s", us(us_since(began)).c_str());
  peer.tell();
  peer.hear();
}

// The user's kernel writes the owner's tensor, then a word; the owner's kernel behind its wait sees
// all of it.
struct Sizes {
  size_t bytes;
  uint64_t rounds;
};
constexpr Sizes kSizes[] = {{1 << 10, 4000}, {64 << 10, 4000}, {kMiB, 2000}, {64 * kMiB, 40}};
void own_tensor(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  int index = 0;
  for (const auto& [bytes, rounds] : kSizes) {
    const auto tensor = work.allocate(bytes);
    const auto seen = must(work.gpu->allocate_pinned(bytes), "pinned memory");
    const MemoryHandle handle = must(work.gpu->export_memory(*tensor), "export");
    peer.send(handle.ipc.data(), handle.ipc.size());
    uint64_t wrong = 0;
    const auto began = Clock::now();
    for (uint64_t round = 1; round <= rounds; ++round) {
      must(work.gpu->wait(*work.stream, peer.word(index), round), "wait for the user");
      must(work.add(seen->data(), tensor->data(), nullptr, bytes),
           "a kernel that reads the tensor");
      must(work.gpu->store(*work.stream, peer.word(index + 1), round), "store");
      must(work.gpu->wait(*work.stream), "finish");
      const auto* values = reinterpret_cast<const int32_t*>(seen->data());
      for (size_t i = 0; i < bytes / 4; ++i)
        wrong += values[i] != static_cast<int32_t>(round) ? 1 : 0;
    }
    expect(wrong == 0, std::to_string(rounds) + " rounds of " + std::to_string(bytes) + " bytes, " +
                           us(us_since(began) / static_cast<double>(rounds)) +
                           " each: " + std::to_string(wrong) + " values of earlier rounds");
    index += 2;
    peer.hear();
  }
}
void write_tensor(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  int index = 0;
  for (const auto& [bytes, rounds] : kSizes) {
    MemoryHandle handle{.ipc = Bytes(sizeof(cuda::IpcHandle)), .bytes = bytes};
    if (!peer.receive(handle.ipc.data(), handle.ipc.size())) give_up("no handle came");
    const auto tensor = must(work.gpu->import_memory(handle), "import");
    const auto one = work.ones(bytes), count = work.allocate(bytes);
    work.write(count->data(), Bytes(bytes));
    for (uint64_t round = 1; round <= rounds; ++round) {
      must(work.gpu->wait(*work.stream, peer.word(index + 1), round - 1), "wait for the owner");
      must(work.add(count->data(), count->data(), one->data(), bytes), "add");
      must(work.add(tensor->data(), count->data(), nullptr, bytes), "write the tensor");
      must(work.gpu->store(*work.stream, peer.word(index), round), "store");
      if (round % 100 == 0) must(work.gpu->wait(*work.stream), "finish");
    }
    must(work.gpu->wait(*work.stream), "finish");
    index += 2;
    peer.tell();
  }
}

void wait_to_be_killed(Peer&) {
  for (;;) pause();
}

constexpr size_t kKilledBytes = 512 * kMiB;
void own_until_killed(Peer& peer) {
  Work work;
  const auto memory = work.allocate(kKilledBytes);
  const MemoryHandle handle = must(work.gpu->export_memory(*memory), "export");
  peer.send(handle.ipc.data(), handle.ipc.size());
  wait_to_be_killed(peer);
}
void use_of_a_killed_owner(Peer& peer) {
  Work work;
  MemoryHandle handle{.ipc = Bytes(sizeof(cuda::IpcHandle)), .bytes = kKilledBytes};
  if (!peer.receive(handle.ipc.data(), handle.ipc.size())) give_up("no handle came");
  auto memory = must(work.gpu->import_memory(handle), "import");
  const auto one = work.ones(kKilledBytes);
  auto began = Clock::now();
  for (int i = 0; i < kQueued; ++i)
    must(work.add(memory->data(), memory->data(), one->data(), kKilledBytes), "add");
  kill(peer.pid, SIGKILL);
  waitpid(peer.pid, nullptr, 0);
  say("the owner is gone after %s", us(us_since(began)).c_str());
  const Status done = work.gpu->wait(*work.stream);
  expect(done.ok(),
         "kernels that use its memory end after " + us(us_since(began)) + ": " + done.to_string());
  const Status later = work.add(memory->data(), memory->data(), one->data(), kKilledBytes);
  const Status ended = work.gpu->wait(*work.stream);
  expect(ended.ok(), "one that starts later: " + later.to_string() + ", " + ended.to_string());
  began = Clock::now();
  memory.reset();
  say("closing it takes %s", us(us_since(began)).c_str());
  work.write(one->data(), pattern(4096, 1));
  expect(work.read(one->data(), 4096) == pattern(4096, 1), "the user's context lives");
}
void wait_for_a_killed_user(Peer& peer) {
  Work work;
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  must(work.gpu->wait(*work.stream, peer.word(0), 1), "wait");
  kill(peer.pid, SIGKILL);
  waitpid(peer.pid, nullptr, 0);
  expect(!must(work.gpu->is_done(*work.stream), "look"), "its stream waits on");
  const auto began = Clock::now();
  peer.store(0, 1);
  const Status done = work.gpu->wait(*work.stream);
  expect(done.ok(), "the processor frees a stream that waits: " + us(us_since(began)) + ", " +
                        done.to_string());
}

// An illegal address in one process.
void meet_a_fault(Peer& peer) {
  if (is_fake_under_test()) kill(getpid(), SIGKILL);  // Its memory is the host's.
  Work work;
  const auto one = work.ones(kMiB);
  peer.tell();
  peer.hear();
  auto* nowhere = reinterpret_cast<std::byte*>(cuda::Pointer{4096});
  say("the launch says %s", work.add(nowhere, one->data(), one->data(), kMiB).to_string().c_str());
  const Status done = work.gpu->wait(*work.stream);
  expect(!done.ok(), "synchronising says " + done.to_string());
  cuda::Pointer memory = 0;
  const cuda::Error allocated =
      work.in_context([&] { return work.driver.mem_alloc(&memory, kMiB); });
  expect(cuda::is_sticky(allocated), "allocating says " + work.error(allocated));
  const cuda::Error queried =
      work.in_context([&] { return work.driver.stream_query(work.gpu->native(*work.stream)); });
  expect(cuda::is_sticky(queried), "asking the stream says " + work.error(queried));
  peer.tell();
  std::_Exit(all_hold ? 0 : 1);
}
void live_beside_a_fault(Peer& peer) {
  if (is_fake_under_test()) return say("the fake driver has no faults");
  Work work;
  const double before = free_mib(work);
  const auto one = work.ones(64 * kMiB), sum = work.allocate(64 * kMiB);
  peer.hear();
  for (int i = 0; i < kQueued; ++i)
    must(work.add(sum->data(), one->data(), one->data(), 64 * kMiB), "add");
  peer.tell();
  for (int i = 0; i < kQueued; ++i)
    must(work.add(sum->data(), one->data(), one->data(), 64 * kMiB), "add");
  const Status done = work.gpu->wait(*work.stream);
  expect(done.ok(), "another process's work goes on: " + done.to_string());
  peer.hear();
  int status = 0;
  waitpid(peer.pid, &status, 0);
  expect(status == 0, "the process that met it found what is expected");
  double after = free_mib(work);
  for (int tries = 0; tries < 50 && after + 130 < before; ++tries) {
    poll(nullptr, 0, 100);
    after = free_mib(work);
  }
  expect(before < 0 || after + 130 >= before,
         "free MiB: " + std::to_string(before) + ", then " + std::to_string(after));
}

void own_context(Peer& peer) {
  peer.hear();
  const auto began = Clock::now();
  Work work;
  say("a context, with kernels and a stream, takes %s", us(us_since(began)).c_str());
  peer.tell();
  peer.hear();
}
void time_words(Work& work, Peer& peer) {
  uint64_t value = 0;
  const auto await = [&](int word) {
    while (peer.load(word) != value) {
    }
  };
  time_calls("a word, stored by a stream, seen by the processor", [&] {
    must(work.gpu->store(*work.stream, peer.word(0), ++value), "store");
    await(0);
  });
  time_calls("a stream that waits for the processor's word, and answers", [&] {
    ++value;
    must(work.gpu->wait(*work.stream, peer.word(1), value), "wait");
    must(work.gpu->store(*work.stream, peer.word(0), value), "store");
    peer.store(1, value);
    await(0);
  });
}

void time_sums(Work& work, const char* kind) {
  const auto large = work.ones(256 * kMiB), other = work.allocate(256 * kMiB);
  for (const size_t bytes : {kMiB, 16 * kMiB, 256 * kMiB}) {
    const auto began = Clock::now();
    const int kTimes = is_fake_under_test() ? 2 : 50;
    for (int i = 0; i < kTimes; ++i)
      must(work.add(other->data(), large->data(), large->data(), bytes), "add");
    must(work.gpu->wait(*work.stream), "finish");
    const double each = us_since(began) / kTimes;
    say("a sum of two of %zu MiB%s: %.1f us, %.0f GB/s read and written", bytes / kMiB, kind, each,
        3 * static_cast<double>(bytes) / each / 1e3);
  }
}

void time_copies(Work& work) {
  const auto host = must(work.gpu->allocate_pinned(64 * kMiB), "pinned memory");
  const auto device = work.allocate(64 * kMiB);
  for (const bool to_host : {true, false}) {
    const auto began = Clock::now();
    std::byte* to = (to_host ? host : device)->data();
    const std::byte* from = (to_host ? device : host)->data();
    for (int i = 0; i < 10; ++i) must(work.gpu->copy(*work.stream, to, from, 64 * kMiB), "copy");
    must(work.gpu->wait(*work.stream), "finish");
    say("64 MiB %s the host: %.1f GB/s", to_host ? "to" : "from",
        640 * 1.048576 / us_since(began) * 1e3);
  }
}

void count_costs(Peer& peer) {
  const auto start = Clock::now();
  Work work;
  say("the first context of the machine takes %s", us(us_since(start)).c_str());
  const double before = free_mib(work);
  peer.tell();
  peer.hear();
  say("and %.0f MiB", before - free_mib(work));
  peer.tell();
  const auto one = work.ones(4096);
  const auto pinned = must(work.gpu->pin(peer.shared, kSharedBytes), "pin");
  const auto launch = [&] {
    must(work.add(one->data(), one->data(), one->data(), 16), "add");
    must(work.gpu->wait(*work.stream), "finish");
  };
  time_calls("a kernel, launch to finish", launch);
  time_words(work, peer);
  time_sums(work, "");
  time_copies(work);
  work.gpu->set_cancel_word(*work.stream, peer.word(5));
  time_calls("a kernel that can be cancelled, launch to finish", launch);
  time_sums(work, " that can be cancelled");
}

const std::map<std::string, std::function<void()>> kProbes = {
    {"ipc", [] { in_two_processes(own_ipc, use_ipc); }},
    {"chunks", [] { in_two_processes(own_chunks, use_chunks); }},
    {"pool", try_pool},
    {"words", [] { in_two_processes(own_words, use_words); }},
    {"order", [] { in_two_processes(own_order, use_order); }},
    {"turns",
     [] {
       in_two_processes([](Peer& peer) { go_back_and_forth(peer, true); },
                        [](Peer& peer) { go_back_and_forth(peer, false); });
     }},
    {"tensor", [] { in_two_processes(own_tensor, write_tensor); }},
    {"killed-owner", [] { in_two_processes(own_until_killed, use_of_a_killed_owner); }},
    {"killed-user", [] { in_two_processes(wait_to_be_killed, wait_for_a_killed_user); }},
    {"held", call_beside_a_held_stream},
    {"fault", [] { in_two_processes(meet_a_fault, live_beside_a_fault); }},
    {"buffer-ids", try_buffer_ids},
    {"costs", [] { in_two_processes(own_context, count_costs); }},
};

}  // namespace
}  // namespace tutti::probes

int main(int count, char** arguments) {
  if (count < 2) {
    for (const auto& [name, probe] : tutti::probes::kProbes) std::printf("%s\n", name.c_str());
    return 0;
  }
  const auto found = tutti::probes::kProbes.find(arguments[1]);
  if (found == tutti::probes::kProbes.end()) {
    std::fprintf(stderr, "gpu_probes: there is no probe '%s'\n", arguments[1]);
    return 2;
  }
  found->second();
  return tutti::probes::all_hold ? 0 : 1;
}
