// A mesh of real agents and workers for tests, with trainers as forked processes.
//
// Create it before this process has threads. Trainers use nothing but the client library.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/tutti.hpp"
#include "daemon/launch/launch.h"
#include "tests/support/run_program.h"
#include "tests/support/variable.h"

namespace tutti::testing {

inline constexpr uid_t kNobody = 65'534;

// What a trainer needs to join its job. join() throws tutti::Error.
struct RankContext {
  std::string job;
  std::string socket;
  int rank = 0;
  int world_size = 0;

  Group join(int timeout_ms = 60'000) const {
    JoinOptions options;
    options.socket = socket;
    options.job = job;
    options.rank = rank;
    options.world_size = world_size;
    options.timeout = std::chrono::milliseconds(timeout_ms);
    return Group::join(options);
  }
};

// Unless `holds`, ends the trainer with this sentence as its report.
inline void check(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("check failed: " + what);
}

// Returns the error that `act` throws; fails the trainer where it throws none.
inline Error failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("check failed: expected an error, got none");
}

inline void check_contains(const Error& error, const std::string& part) {
  check(std::string(error.what()).find(part) != std::string::npos,
        "'" + std::string(error.what()) + "' does not say '" + part + "'");
}

// Runs one operation and checks its values.
inline void check_works(Group& group) {
  std::vector<float> x(100, 1.0f);
  group.all_reduce(std::span(x));
  for (const float value : x) check(value == static_cast<float>(group.world_size()), "a right sum");
}

inline void all_reduce_of(Group& group, size_t count, const Options& options = {}) {
  std::vector<float> x(count);
  group.all_reduce(std::span(x), sum, options);
}

// A forked trainer. Its report is the exception of its body, or "".
class Trainer {
 public:
  using Body = std::function<void(const RankContext&)>;
  static constexpr unsigned kTimeoutSeconds = 240;  // Then SIGALRM ends it.

  Trainer(const RankContext& context, const Body& body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      run_body(context, body, ends[1]);
    }
    close(ends[1]);
    output_ = Fd(ends[0]);
  }
  Trainer(Trainer&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), output_(std::move(other.output_)) {}
  ~Trainer() {
    if (pid_ == 0) return;
    kill(SIGKILL);
    wait();
  }

  void kill(int signal) const { ::kill(pid_, signal); }
  // Blocks until the trainer writes a line with write_line(); "" when it ends instead.
  std::string read_line() const {
    std::string text;
    char byte = 0;
    while (read(output_.get(), &byte, 1) == 1 && byte != '\n') text += byte;
    return text;
  }
  // Waits until it ends, and returns its report.
  std::string wait() {
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; (got = read(output_.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    if (WIFSIGNALED(status)) text += "killed by signal " + std::to_string(WTERMSIG(status));
    return text;
  }

 private:
  [[noreturn]] static void run_body(const RankContext& context, const Body& body, int output) {
    alarm(kTimeoutSeconds);
    report_fd() = output;
    std::string text;
    try {
      body(context);
    } catch (const std::exception& error) {
      text = "rank " + std::to_string(context.rank) + ": " + error.what();
    }
    (void)!write(output, text.data(), text.size());
    _exit(text.empty() ? 0 : 1);
  }

 public:
  static int& report_fd() {
    static int fd = -1;
    return fd;
  }

 private:
  pid_t pid_ = 0;
  Fd output_;
};

// Called in a trainer: writes a line for Trainer::read_line().
inline void write_line(const std::string& text) {
  const std::string line = text + "\n";
  (void)!write(Trainer::report_fd(), line.data(), line.size());
}

// What trainers wait for without using a core. Make it before forking.
class Gate {
 public:
  Gate() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
  }
  void wait() const {
    char byte = 0;
    (void)!read(read_.get(), &byte, 1);
  }
  // Takes one opening; does not wait for it.
  bool is_open() const {
    pollfd readable{.fd = read_.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 0) != 1) return false;
    wait();
    return true;
  }
  void open_for(size_t trainers) const {
    (void)!write(write_.get(), std::string(trainers, ' ').data(), trainers);
  }

 private:
  Fd read_;
  Fd write_;
};

// Starts another agent in place of one that was killed. It ends with this process.
inline void restart_agent(const LocalMesh::Host& host, const std::vector<std::string>& flags) {
  const std::filesystem::path home = std::filesystem::path(host.socket).parent_path();
  std::vector<std::string> command = {program_directory() / "tuttid",
                                      "--socket=" + host.socket,
                                      "--run-dir=" + (home / "run").string(),
                                      "--listen=" + host.control,
                                      "--host=" + host.name,
                                      "--token-file=" + (home.parent_path() / "token").string()};
  command.insert(command.end(), flags.begin(), flags.end());
  if (fork() == 0) run_program(command, host.log);
}

class TestMesh {
 public:
  explicit TestMesh(int hosts, bool netns = false)
      : TestMesh(LocalMeshOptions{.hosts = hosts, .netns = netns}) {}
  explicit TestMesh(const LocalMeshOptions& options) {
    block_launcher_signals();
    setenv("TUTTI_FOLDING", "ranks", 0);   // Also with few cores, where the worker would.
    setenv("TUTTI_DATA_STREAMS", "2", 0);  // The same.
    loop_ = std::make_unique<Loop>();
    children_ = std::make_unique<ChildProcesses>(*loop_);
    auto mesh = LocalMesh::start(*loop_, *children_, options, [] { return false; });
    if (!mesh.ok()) throw std::runtime_error("no mesh: " + mesh.status().to_string());
    mesh_ = *std::move(mesh);
  }

  LocalMesh& mesh() { return *mesh_; }
  std::string log_tails() const { return mesh_->log_tails(); }
  const LocalMesh::Host& host(int index) const { return mesh_->hosts().at(index); }

  // Starts one trainer per rank, host by host.
  std::vector<Trainer> start(const std::string& job, const std::vector<int>& per_host,
                             const Trainer::Body& body) const {
    int world_size = 0;
    for (const int ranks : per_host) world_size += ranks;
    std::vector<Trainer> trainers;
    for (size_t host = 0; host < per_host.size(); ++host)
      for (int i = 0; i < per_host[host]; ++i) {
        const int rank = static_cast<int>(trainers.size());
        trainers.emplace_back(RankContext{job, mesh_->hosts()[host].socket, rank, world_size},
                              body);
      }
    return trainers;
  }

  // Waits for all, and returns the reports that are not "".
  static std::string wait(std::vector<Trainer>& trainers) {
    std::string reports;
    for (Trainer& trainer : trainers) {
      const std::string report = trainer.wait();
      if (!report.empty()) reports += report + "\n";
    }
    return reports;
  }

  std::string run(const std::string& job, const std::vector<int>& per_host,
                  const Trainer::Body& body) const {
    std::vector<Trainer> trainers = start(job, per_host, body);
    std::string reports = wait(trainers);
    return reports.empty() ? reports : reports + mesh_->log_tails();
  }

 private:
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<ChildProcesses> children_;
  std::unique_ptr<LocalMesh> mesh_;
};

// Its tensors of ordinary memory pass between hosts through windows of 512 KiB, in segments of
// 16 MiB.
inline TestMesh mesh_with_small_windows(int hosts) {
  const Variable slice("TUTTI_SLICE_BYTES", "65536");
  const Variable segment("TUTTI_SEGMENT_BYTES", "16777216");
  return TestMesh(hosts);
}

// A mesh of the hosts a and b.
class TwoHostsTest : public ::testing::Test {
 protected:
  // A job of its own each time: a rank may not move while its old host still has it.
  std::string run(const std::vector<int>& per_host, const Trainer::Body& body) {
    return mesh_.run(std::exchange(next_job_, next_job_ + "2"), per_host, body);
  }
  TestMesh mesh_{2};

 private:
  std::string next_job_ = "job";
};

}  // namespace tutti::testing
