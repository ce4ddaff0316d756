// A rank that process_run_test starts with `tutti run`.
//
//   run_trainer fail-first RANK   that rank leaves the job, waits for the end of all the others'
//                                 processes, and ends with code 7; theirs end with 1, saying why
//   run_trainer fail-late RANK    the same, but it takes another 3 s to end
//   run_trainer all-late RANK     the same, and the others take 4 s to end after they failed
//   run_trainer leave-first RANK  the same, but it ends with code 0
//   run_trainer crash RANK        that rank ends with code 7 without leaving; the others wait
//   run_trainer meet              rank 0 listens at MASTER_ADDR:MASTER_PORT, the others connect
//   run_trainer sum               all_reduces ordinary and shared memory and checks the sums
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/tutti.hpp"

namespace {

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// Returns a pidfd of every rank's process: it becomes readable when the process ends.
std::vector<int> watch_processes(tutti::Group& group) {
  std::vector<int32_t> mine = {getpid()};
  std::vector<int32_t> all(static_cast<size_t>(group.world_size()));
  group.all_gather(std::span<const int32_t>(mine), std::span(all));
  std::vector<int> watched;
  for (const int32_t pid : all)
    watched.push_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  group.barrier();  // No rank ends before all watch it.
  return watched;
}

int fail(int culprit, int code) {
  tutti::Group group = tutti::Group::join();
  const std::vector<int> processes = watch_processes(group);
  if (group.rank() != culprit)
    while (true) group.barrier();
  group.leave();
  for (int rank = 0; rank < static_cast<int>(processes.size()); ++rank) {
    pollfd ended{.fd = processes[rank], .events = POLLIN, .revents = 0};
    if (rank != culprit) check(poll(&ended, 1, -1) == 1, "a process to watch");
  }
  return code;
}

int crash(int culprit) {
  tutti::Group group = tutti::Group::join();
  group.barrier();
  if (group.rank() == culprit) _exit(7);
  while (true) pause();
}

int meet() {
  tutti::Group group = tutti::Group::join();
  const std::string host = std::getenv("MASTER_ADDR");
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(std::getenv("MASTER_PORT"))));
  check(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, "MASTER_ADDR is an address");
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const bool listens = group.rank() == 0;
  if (listens) check(bind(socket, generic, sizeof address) == 0, "MASTER_PORT is free");
  if (listens) check(listen(socket, group.world_size()) == 0, "rank 0 listens");
  group.barrier();
  if (!listens) check(connect(socket, generic, sizeof address) == 0, "rank 0 is reached");
  if (!listens) return 0;
  for (int came = 1; came < group.world_size(); ++came)
    check(accept(socket, nullptr, nullptr) >= 0, "a rank comes");
  std::printf("%d came to %s\n", group.world_size() - 1, host.c_str());
  return 0;
}

int sum() {
  constexpr size_t kCount = 1'000'000;
  tutti::Group group = tutti::Group::join();
  std::vector<float> ordinary(kCount, 1);
  const std::span<float> shared = group.alloc<float>(kCount);
  std::ranges::fill(shared, 2.0f);
  group.all_reduce(std::span(ordinary));
  group.all_reduce(shared);
  const auto ranks = static_cast<float>(group.world_size());
  check(std::ranges::all_of(ordinary, [&](float x) { return x == ranks; }), "ordinary sums");
  check(std::ranges::all_of(shared, [&](float x) { return x == 2 * ranks; }), "shared sums");
  std::printf("right sums\n");
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.at(0) == "sum") return sum();
  if (arguments.at(0) == "meet") return meet();
  if (arguments[0] == "crash") return crash(std::stoi(arguments.at(1)));
  const int code = fail(std::stoi(arguments.at(1)), arguments[0] == "leave-first" ? 0 : 7);
  if (arguments[0].ends_with("-late")) sleep(3);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (std::string(argv[1]) == "all-late") sleep(4);
    return 1;
  }
}
