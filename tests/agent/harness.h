// A real tuttid with the fake worker, in a directory of its own, and trainers that connect to it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/framing.h"
#include "daemon/session/session.h"
#include "proto/segment.h"
#include "proto/session.pb.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti {

inline constexpr int kPatienceMs = 60'000;
inline constexpr uint32_t kNobody = 65'534;
inline constexpr uint32_t kDaemon = 1;

inline bool wait_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, kPatienceMs) == 1;
}

struct TrainerSocket {
  explicit TrainerSocket(const std::string& path) {
    auto connected = connect_unix(path, SOCK_STREAM);
    EXPECT_TRUE(connected.ok()) << connected.status().to_string();
    if (connected.ok()) socket = *std::move(connected);
  }
  void send_bytes(const std::string& bytes) {
    EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  void greet(const v1::Hello& hello) { send_bytes(framed(hello.SerializeAsString())); }
  // Returns "" if the connection ended before `count` bytes arrived.
  std::string receive_bytes(size_t count) {
    std::string bytes;
    while (bytes.size() < count) {
      char byte = 0;
      if (!wait_readable(socket.get()) || recv(socket.get(), &byte, 1, 0) != 1) return "";
      bytes += byte;
    }
    return bytes;
  }
  // Returns nothing if the connection ended without a welcome.
  std::optional<v1::Welcome> welcome() {
    const std::string prefix = receive_bytes(sizeof(uint32_t));
    if (prefix.empty()) return std::nullopt;
    uint32_t length = 0;
    std::copy(prefix.begin(), prefix.end(), reinterpret_cast<char*>(&length));
    v1::Welcome welcome;
    EXPECT_TRUE(welcome.ParseFromString(receive_bytes(length)));
    return welcome;
  }
  bool ended() { return wait_readable(socket.get()) && receive_bytes(1).empty(); }

  Fd socket;
};

inline v1::Hello hello_of(const std::string& job, uint32_t rank = 0) {
  v1::Hello hello;
  hello.set_version(kProtocolVersion);
  hello.set_job(job);
  hello.set_rank(rank);
  hello.set_world_size(4);
  return hello;
}

struct AgentTest : testing::Test {
  AgentTest() {
    std::filesystem::permissions(home, std::filesystem::perms(0755));
    notify_socket = *listen_notify(home + "/notify");
  }
  ~AgentTest() override {
    while (!running.empty()) end(*running.begin(), SIGKILL);
    for (const pid_t worker : workers) kill(worker, SIGKILL);
  }

  static Result<Fd> listen_notify(const std::string& path) {
    Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage storage{.ss_family = AF_UNIX};
    auto* address = reinterpret_cast<sockaddr*>(&storage);
    constexpr size_t kPathOffset = offsetof(sockaddr, sa_data);
    path.copy(reinterpret_cast<char*>(&storage) + kPathOffset, 100);
    if (bind(socket.get(), address, static_cast<socklen_t>(kPathOffset + path.size())) != 0)
      return errno_status("bind");
    return socket;
  }
  std::string next_notification() {
    std::string text(256, '\0');
    if (!wait_readable(notify_socket.get())) return "nothing";
    text.resize(static_cast<size_t>(recv(notify_socket.get(), text.data(), text.size(), 0)));
    return text;
  }

  // Starts tuttid with these flags in addition to the usual ones. Its output goes to log(), unless
  // there is another descriptor for it.
  pid_t run(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {TUTTI_AGENT,
                                          "--socket=" + socket(),
                                          "--run-dir=" + home + "/run",
                                          "--listen=127.0.0.1:0",
                                          "--host=a",
                                          "--worker-binary=" TUTTI_FAKE_WORKER};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      const int log = open((home + "/log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
      dup2(log, STDOUT_FILENO);
      dup2(output.valid() ? output.get() : log, STDERR_FILENO);
      setenv("NOTIFY_SOCKET", (home + "/notify").c_str(), 1);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    running.insert(pid);
    return pid;
  }
  // Starts tuttid and waits until it serves, and says so.
  pid_t start(const std::vector<std::string>& flags = {}) {
    const size_t before = count_in_log("serves: socket ");
    const pid_t pid = run(flags);
    EXPECT_TRUE(next_notification().starts_with("READY=1\nSTATUS=serves: socket ")) << log();
    EXPECT_TRUE(output.valid() || await([&] { return count_in_log("serves: socket ") > before; }));
    return pid;
  }
  // Returns the wait status.
  int end(pid_t pid, int signal) {
    int status = 0;
    kill(pid, signal);
    waitpid(pid, &status, 0);
    running.erase(pid);
    return status;
  }
  int exit_code(pid_t pid) {
    const int status = end(pid, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Returns the answer to a trainer of the job; its message is "gone" if the connection ended
  // without.
  v1::Welcome join(const v1::Hello& hello) {
    trainers.emplace_back(socket());
    trainers.back().greet(hello);
    v1::Welcome none;
    none.set_message("gone");
    const v1::Welcome welcome = trainers.back().welcome().value_or(none);
    if (field(welcome, "pid") != "") workers.insert(std::stoi(field(welcome, "pid")));
    return welcome;
  }
  v1::Welcome join(const std::string& job, uint32_t rank = 0) { return join(hello_of(job, rank)); }

  // Returns "7" from "... name=7 ..." in the fake worker's message.
  static std::string field(const v1::Welcome& welcome, const std::string& name) {
    const std::string text = " " + welcome.message();
    const std::string mark = " " + name + "=";
    const size_t at = text.find(mark);
    if (at == std::string::npos) return "";
    const size_t begin = at + mark.size();
    return text.substr(begin, text.find(' ', begin) - begin);
  }

  std::string socket() const { return home + "/tuttid.sock"; }
  std::string address() const { return "unix:" + socket(); }
  // Returns the path of a file that holds them.
  std::string write_tokens(const std::string& lines) const {
    const std::string path = home + "/tokens";
    std::ofstream(path) << lines;
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    return path;
  }
  std::string log() const { return text_of(home + "/log"); }
  // The address of the agent started last.
  std::string control() const {
    const std::string text = log();
    const std::string mark = "control plane ";
    const size_t at = text.rfind(mark);
    if (at == std::string::npos) return "";
    return text.substr(at + mark.size(),
                       text.find_first_of(" ,\n", at + mark.size()) - at - mark.size());
  }
  size_t count_in_log(const std::string& words) const {
    const std::string text = log();
    size_t count = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
      ++count;
    return count;
  }

  const TemporaryDirectory directory;
  const std::string home = directory;
  Fd notify_socket;
  Fd output;  // tuttid's stderr, if not the log's file.
  std::map<std::string, std::string> environment;
  std::set<pid_t> running;
  std::set<pid_t> workers;
  std::vector<TrainerSocket> trainers;  // Keeps their connections open.
};

}  // namespace tutti
