// What the probes of probes.cc are made of: two processes that talk, and a GPU with a stream.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "daemon/base/fd.h"
#include "daemon/device/device.h"
#include "tests/support/cuda_driver.h"

namespace tutti::probes {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGranule = 2 * kMiB;
inline constexpr size_t kSharedBytes = kMiB;
inline constexpr int kAnswerMs = 30'000;  // The most that one process waits for the other.

inline std::atomic<bool> all_hold = true;

template <class... Values>
void say(const char* format, Values... values) {
  std::printf(format, values...);
  std::printf("\n");
  std::fflush(stdout);
}

inline void expect(bool holds, const std::string& what) {
  say("%s%s", holds ? "" : "no: ", what.c_str());
  if (!holds) all_hold = false;
}

[[noreturn]] inline void give_up(const std::string& what) {
  expect(false, what);
  std::_Exit(1);
}

inline void must(const Status& status, const std::string& what) {
  if (!status.ok()) give_up(what + ": " + status.to_string());
}

template <class T>
T must(Result<T> result, const std::string& what) {
  must(result.status(), what);
  return *std::move(result);
}

inline double us_since(Clock::time_point began) {
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

inline std::string us(double time) { return std::to_string(static_cast<int64_t>(time)) + " us"; }

// ---- The two processes ----

// The other process of a probe, and memory of the host that both have mapped.
class Peer {
 public:
  Peer(int socket, pid_t pid, std::byte* shared) : pid(pid), shared(shared), socket_(socket) {}

  void send(const void* data, size_t bytes) const {
    if (write(socket_.get(), data, bytes) != static_cast<ssize_t>(bytes))
      give_up("no peer to send to");
  }
  bool receive(void* data, size_t bytes) const {
    pollfd ready{socket_.get(), POLLIN, 0};
    return poll(&ready, 1, kAnswerMs) == 1 &&
           recv(socket_.get(), data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  void tell() const { send("!", 1); }
  void hear() const {
    char byte = 0;
    if (!receive(&byte, 1)) give_up("the other process says nothing");
  }

  void send_descriptor(int fd) const {
    const Message message(fd);
    if (sendmsg(socket_.get(), &message.header, 0) != 1) give_up("a descriptor is not sent");
  }
  Fd receive_descriptor() const {
    Message message(-1);
    int fd = -1;
    if (recvmsg(socket_.get(), &message.header, 0) != 1) give_up("no descriptor came");
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message.header)), sizeof(fd));
    return Fd(fd);
  }

  uint64_t* word(int index) const { return reinterpret_cast<uint64_t*>(shared) + 8 * index; }
  uint64_t load(int index) const { return std::atomic_ref(*word(index)).load(); }
  void store(int index, uint64_t value) const { std::atomic_ref(*word(index)).store(value); }

  const pid_t pid;  // 0: this is the child.
  std::byte* const shared;

 private:
  struct Message {
    explicit Message(int fd) {
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof(control);
      cmsghdr* attached = CMSG_FIRSTHDR(&header);
      attached->cmsg_level = SOL_SOCKET;
      attached->cmsg_type = SCM_RIGHTS;
      attached->cmsg_len = CMSG_LEN(sizeof(fd));
      std::memcpy(CMSG_DATA(attached), &fd, sizeof(fd));
    }
    char byte = 'd';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr header{};
  };
  Fd socket_;
};

using Part = void (*)(Peer&);

// Neither process has met the driver before. `owner` runs in the child.
inline void in_two_processes(Part owner, Part user) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) give_up("no sockets");
  const std::unique_ptr<Device> host = make_host_device();
  const auto shared = must(host->allocate(kSharedBytes), "memory of the host");
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    Peer peer(ends[1], 0, shared->data());
    owner(peer);
    std::_Exit(all_hold ? 0 : 1);
  }
  close(ends[1]);
  Peer peer(ends[0], child, shared->data());
  user(peer);
  int status = 0;
  waitpid(child, &status, 0);
  const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (!is_killed) expect(status == 0, "the owner ends with " + std::to_string(status));
}

// ---- A GPU ----

struct Work {
  const cuda::Driver& driver = *must(cuda::load_driver(driver_under_test()), "load the driver");
  std::unique_ptr<Gpu> gpu = must(make_gpu(driver, 0), "open the GPU");
  std::unique_ptr<Stream> stream = must(gpu->make_stream(), "make a stream");

  std::unique_ptr<Buffer> allocate(size_t bytes) { return must(gpu->allocate(bytes), "allocate"); }
  void write(void* to, const Bytes& bytes) {
    must(gpu->copy(*stream, to, bytes.data(), bytes.size()), "copy to the GPU");
    must(gpu->wait(*stream), "finish the copy");
  }
  Bytes read(const void* from, size_t count) {
    Bytes bytes(count);
    must(gpu->copy(*stream, bytes.data(), from, count), "copy from the GPU");
    must(gpu->wait(*stream), "finish the copy");
    return bytes;
  }
  // to = a + b, of 32-bit integers.
  Status add(void* to, const void* a, const void* b, size_t bytes) {
    const Target target{static_cast<std::byte*>(to), Dtype::i32};
    const Operand sources[] = {{static_cast<const std::byte*>(a), Dtype::i32},
                               {static_cast<const std::byte*>(b), Dtype::i32}};
    return gpu->reduce(*stream, {&target, 1}, {sources, b == nullptr ? 1u : 2u},
                       {.count = bytes / 4});
  }
  std::unique_ptr<Buffer> ones(size_t bytes) {
    std::unique_ptr<Buffer> made = allocate(bytes);
    Bytes values(bytes);
    for (size_t i = 0; i < bytes; i += 4) values[i] = std::byte{1};
    write(made->data(), values);
    return made;
  }
  std::string error(cuda::Error error) const {
    return error == cuda::kSuccess ? "OK" : cuda::status_of(driver, error, "error").message();
  }
  cuda::Error in_context(const std::function<cuda::Error()>& call) const {
    const cuda::Current current(driver, gpu->context());
    return current.error() == cuda::kSuccess ? call() : current.error();
  }
};

inline cuda::Pointer address_of(const void* memory) {
  return reinterpret_cast<cuda::Pointer>(memory);
}

inline Bytes pattern(size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 31 + (i >> 8) * 7 + seed);
  return made;
}

template <class Function>
Function symbol(const char* name) {
  void* handle = dlopen(driver_under_test().c_str(), RTLD_NOW);
  return reinterpret_cast<Function>(handle == nullptr ? nullptr : dlsym(handle, name));
}

// In MiB, of the GPU's memory; -1: the driver does not say.
inline double free_mib(const Work& work) {
  const auto ask = symbol<cuda::Error (*)(size_t*, size_t*)>("cuMemGetInfo_v2");
  size_t free = 0, total = 0;
  if (ask == nullptr) return -1;
  return work.in_context([&] { return ask(&free, &total); }) == cuda::kSuccess
             ? static_cast<double>(free) / static_cast<double>(kMiB)
             : -1;
}

// The median of many, and how long one in a hundred takes at least.
inline void time_calls(const char* what, const std::function<void()>& call) {
  constexpr int kWarmUp = 20, kCalls = 1000;
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + kCalls; ++i) {
    const auto began = Clock::now();
    call();
    if (i >= kWarmUp) times.push_back(us_since(began));
  }
  std::ranges::sort(times);
  say("%s: median %.1f us, 1 %% above %.1f us", what, times[kCalls / 2], times[kCalls * 99 / 100]);
}

// The probes of one process: probes_alone.cc.
void try_pool();
void try_buffer_ids();
void call_beside_a_held_stream();

}  // namespace tutti::probes
