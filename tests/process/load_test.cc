// Thousands of connections that never say who they are, at every door of an agent and its workers,
// while jobs come and go.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tests/support/await.h"
#include "tests/support/loopback.h"
#include "tests/support/proc_counters.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

// TUTTI_LOAD=full: as many as a hostile program may well open, for a minute.
const bool kFull = std::getenv("TUTTI_LOAD") != nullptr;
const int kConnections = kFull ? 2'000 : 400;  // Of each kind.
const int kJobs = kFull ? 20 : 6;
constexpr int kOperations = 1'000;
const Millis kJobEvery{kFull ? 3'000 : 1'000};
constexpr double kJoinSecondsMax = 20;  // What it took is printed; this is for loaded machines.
constexpr int64_t kSpareMib = 64;       // What allocators keep.
constexpr int kSpareDescriptors = 8;    // Of gRPC, where a worker has connected again.

// A door, and what each connection says at it before it falls silent.
struct Door {
  std::string name;
  std::string path;  // Of a Unix socket; else:
  int port = 0;
  std::string words;
};

Fd dial(const Door& door) {
  Fd socket(::socket(door.path.empty() ? AF_INET : AF_UNIX,
                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  door.path.copy(local.sun_path, sizeof(local.sun_path) - 1);
  const sockaddr_in remote = loopback(door.port);
  if (door.path.empty())
    (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&remote), sizeof(remote));
  else
    (void)connect(socket.get(), reinterpret_cast<sockaddr*>(&local), sizeof(local));
  return socket;
}

// Keeps the connections to one door open, dialling once a second those that were closed. Never
// returns.
[[noreturn]] void besiege(const Door& door, int ready) {
  std::vector<Fd> sockets(kConnections);
  std::vector<pollfd> polls(kConnections);
  const auto end = [&](size_t i) {
    sockets[i].reset();
    polls[i] = {.fd = -1, .events = 0, .revents = 0};
  };
  const auto renew = [&](size_t i) {
    sockets[i] = dial(door);
    polls[i] = {.fd = sockets[i].get(), .events = POLLOUT, .revents = 0};
  };
  for (size_t i = 0; i < sockets.size(); ++i) renew(i);
  (void)!write(ready, "r", 1);
  for (TimePoint renewed = Clock::now();;) {
    poll(polls.data(), polls.size(), 100);
    const bool is_time = Clock::now() >= renewed + Millis(1'000);
    if (is_time) renewed = Clock::now();
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].fd < 0 && is_time) {
        renew(i);
      } else if ((polls[i].revents & (POLLHUP | POLLERR)) != 0) {
        end(i);
      } else if ((polls[i].revents & POLLOUT) != 0) {
        (void)!send(polls[i].fd, door.words.data(), door.words.size(), MSG_NOSIGNAL);
        polls[i].events = POLLIN;
      } else if ((polls[i].revents & POLLIN) != 0) {
        char some[4096];
        if (recv(polls[i].fd, some, sizeof some, 0) <= 0) end(i);
      }
    }
  }
}

class Siege {
 public:
  explicit Siege(const std::vector<Door>& doors) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd read_end(ends[0]);
    Fd write_end(ends[1]);
    for (const Door& door : doors) {
      pids_.push_back(fork());
      if (pids_.back() == 0) besiege(door, write_end.get());
    }
    for (size_t i = 0; i < doors.size(); ++i) {
      char byte = 0;
      EXPECT_EQ(read(read_end.get(), &byte, 1), 1);
    }
  }
  ~Siege() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

// The port on which the process listens for TCP, by its sockets' inodes.
int listening_port_of(pid_t pid) {
  std::vector<std::string> inodes;
  std::error_code gone;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone))
    inodes.push_back(std::filesystem::read_symlink(entry.path(), gone).string());
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    char inode[32] = {};
    unsigned port = 0;
    unsigned state = 0;
    if (std::sscanf(line.c_str(), " %*u: %*x:%x %*x:%*x %x %*s %*s %*s %*s %*s %31s", &port, &state,
                    inode) != 3 ||
        state != 0x0a)
      continue;
    if (std::ranges::count(inodes, "socket:[" + std::string(inode) + "]") != 0)
      return static_cast<int>(port);
  }
  return 0;
}

// Returns how many seconds the join took.
double join_work_and_leave(const RankContext& context) {
  const TimePoint begin = Clock::now();
  Group group = context.join();
  const std::chrono::duration<double> joined = Clock::now() - begin;
  for (int i = 0; i < kOperations; ++i) check_works(group);
  group.leave();
  return joined.count();
}

struct Load : ::testing::Test {
  Load() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  std::vector<Door> doors(pid_t worker) const {
    const std::string greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
    const std::string headers("\0\0\x40\1\4\0\0\0\1\0\7:me", 15);  // Of which most is missing.
    const std::string socket = mesh_.host(0).socket;
    const int control = port_of(mesh_.host(0).control);
    const int link = listening_port_of(worker);
    EXPECT_NE(link, 0);
    return {{"silent trainers", socket, 0, ""},
            {"half a hello", socket, 0, std::string("\x40\0\0\0\x08", 5)},
            {"silent at the control plane", "", control, ""},
            {"greeted at the control plane", "", control, greeting},
            {"half a request", "", control, greeting + headers},
            {"silent at a worker's links", "", link, ""},
            {"half a link's hello", "", link, std::string("TUTTILNK\1\0\0\0", 12)}};
  }
  // Starts a job every few seconds; returns how long each rank's join took, sorted.
  std::vector<double> run_jobs() {
    std::vector<std::vector<Trainer>> jobs;
    std::vector<double> joins;
    const TimePoint begin = Clock::now();
    Loop clock;
    for (int i = 0; i < kJobs; ++i) {
      while (Clock::now() < begin + i * kJobEvery) clock.run_once(begin + i * kJobEvery);
      jobs.push_back(mesh_.start("job" + std::to_string(i), {1, 1}, [](const auto& context) {
        write_line("joined " + std::to_string(join_work_and_leave(context)));
      }));
    }
    for (std::vector<Trainer>& job : jobs) {
      for (Trainer& trainer : job) {
        const std::string line = trainer.read_line();
        EXPECT_TRUE(line.starts_with("joined ")) << line;
        joins.push_back(line.starts_with("joined ") ? std::stod(line.substr(7)) : -1);
      }
      EXPECT_EQ(TestMesh::wait(job), "") << mesh_.log_tails();
    }
    std::ranges::sort(joins);
    return joins;
  }

  Gate end_;  // Of the job that lasts.
  TestMesh mesh_{2};
};

TEST_F(Load, JobsComeAndGoUnderThousandsOfHalfOpenConnections) {
  const pid_t agent = mesh_.host(0).agent;
  std::vector<Trainer> lasting = mesh_.start("lasting", {1, 1}, [&](const RankContext& context) {
    Group group = context.join();
    write_line("joined");
    end_.wait();
    check_works(group);
  });
  for (Trainer& trainer : lasting) EXPECT_EQ(trainer.read_line(), "joined");
  const auto worker = static_cast<pid_t>(worker_report(mesh_, 0, "lasting").pid());
  ASSERT_GT(worker, 0);
  EXPECT_EQ(mesh_.run("warm", {1, 1}, join_work_and_leave), "");
  EXPECT_TRUE(await([&] { return worker_report(mesh_, 0, "warm").pid() == 0; }));
  const int agent_descriptors = open_descriptors(agent);
  const int worker_descriptors = open_descriptors(worker);
  const int64_t agent_mib = private_mib_of(agent);
  const int64_t worker_mib = private_mib_of(worker);
  {
    const Siege siege(doors(worker));
    const std::vector<double> joins = run_jobs();
    std::printf("joins: median %.3f s, p99 %.3f s; agent %ld -> %ld MiB, worker %ld -> %ld MiB\n",
                joins[joins.size() / 2], joins[joins.size() * 99 / 100], long(agent_mib),
                long(private_mib_of(agent)), long(worker_mib), long(private_mib_of(worker)));
    ASSERT_EQ(kill(agent, 0), 0) << mesh_.log_tails();
    EXPECT_GE(joins.front(), 0);
    EXPECT_LT(joins.back(), kJoinSecondsMax);
  }
  EXPECT_TRUE(await([&] {
    return open_descriptors(agent) <= agent_descriptors + kSpareDescriptors &&
           open_descriptors(worker) <= worker_descriptors + kSpareDescriptors;
  })) << open_descriptors(agent)
      << " descriptors of the agent, before " << agent_descriptors << "; "
      << open_descriptors(worker) << " of the worker, before " << worker_descriptors;
  EXPECT_TRUE(await([&] {
    return private_mib_of(agent) <= agent_mib + kSpareMib &&
           private_mib_of(worker) <= worker_mib + kSpareMib;
  })) << private_mib_of(agent)
      << " MiB of the agent, before " << agent_mib << "; " << private_mib_of(worker)
      << " MiB of the worker, before " << worker_mib;
  std::printf("afterwards: agent %ld MiB, worker %ld MiB\n", long(private_mib_of(agent)),
              long(private_mib_of(worker)));
  end_.open_for(lasting.size());
  EXPECT_EQ(TestMesh::wait(lasting), "") << mesh_.log_tails();
}

}  // namespace
}  // namespace tutti
