// Real etcds, as plain processes with data of their own. tests/tools/get etcd-server etcd-client
// gets the programs.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/await.h"
#include "tests/support/loopback.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_directory.h"

namespace tutti::testing {

class EtcdCluster {
 public:
  static std::filesystem::path program() { return tools() / "etcd-server/usr/bin/etcd"; }
  static std::filesystem::path client() { return tools() / "etcd-client/usr/bin/etcdctl"; }
  static bool is_there() {
    return std::filesystem::exists(program()) && std::filesystem::exists(client());
  }

  // Starts them and waits until they have a leader. With `tls_dir`, which has ca.crt, tls.crt and
  // tls.key, they take clients with certificates of that authority alone.
  explicit EtcdCluster(int members, std::string tls_dir = {}) : tls_dir_(std::move(tls_dir)) {
    for (int i = 0; i < members; ++i)
      members_.push_back(
          {LoopbackListener().port, LoopbackListener().port, LoopbackListener().port, 0});
    for (int i = 0; i < members; ++i) start(i);
    await([this] { return leader() >= 0; });
  }
  ~EtcdCluster() {
    for (int i = 0; i < size(); ++i) stop(i);
  }
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  // host:port,host:port,...
  std::string endpoints() const {
    std::string text;
    for (const Member& member : members_)
      text += (text.empty() ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(member.port);
    return text;
  }
  void signal(int member, int number) const { kill(members_.at(member).pid, number); }
  void stop(int member) {
    if (members_.at(member).pid == 0) return;
    signal(member, SIGKILL);
    waitpid(members_.at(member).pid, nullptr, 0);
    members_.at(member).pid = 0;
  }
  void start(int member) {
    const pid_t pid = fork();
    if (pid == 0) run(member);
    members_.at(member).pid = pid;
  }
  // From now on `user` alone may use the keys of these prefixes, and nobody others.
  void ask_for_user(const std::string& user, const std::string& password,
                    const std::vector<std::string>& prefixes) const {
    control({"role", "add", "agents"});
    for (const std::string& prefix : prefixes)
      control({"role", "grant-permission", "agents", "--prefix=true", "readwrite", prefix});
    for (const std::string& name : {std::string("root"), user}) {
      control({"user", "add", name + ":" + password});
      control({"user", "grant-role", name, name == "root" ? "root" : "agents"});
    }
    control({"auth", "enable"});
  }
  // The member that leads, or -1.
  int leader() const {
    for (int i = 0; i < size(); ++i)
      if (members_[i].pid != 0 && metrics(i).find("\netcd_server_is_leader 1") != std::string::npos)
        return i;
    return -1;
  }

 private:
  struct Member {
    int port;
    int peer_port;
    int metrics_port;
    pid_t pid;
  };

  static std::string url(int port) { return "http://127.0.0.1:" + std::to_string(port); }

  static std::filesystem::path tools() {
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    return here / "../../tools";
  }
  std::string client_url(int member) const {
    return (tls_dir_.empty() ? "http" : "https") +
           ("://127.0.0.1:" + std::to_string(members_[member].port));
  }
  void control(const std::vector<std::string>& words) const {
    std::string line = "ETCDCTL_API=3 '" + client().string() + "' --endpoints=" + client_url(0);
    if (!tls_dir_.empty())
      line += " --cacert='" + tls_dir_ + "/ca.crt' --cert='" + tls_dir_ + "/tls.crt' --key='" +
              tls_dir_ + "/tls.key'";
    for (const std::string& word : words) line += " '" + word + "'";
    if (std::system((line + " >'" + (directory_ / "client.log").string() + "' 2>&1").c_str()) != 0)
      throw std::runtime_error("etcdctl failed: " + line);
  }

  [[noreturn]] void run(int member) const {
    std::string cluster;
    for (int i = 0; i < size(); ++i)
      cluster += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + url(members_[i].peer_port);
    const std::string name = "m" + std::to_string(member);
    const std::string client = client_url(member);
    const std::string peer = url(members_[member].peer_port);
    std::vector<std::string> words = {program(),
                                      "--name",
                                      name,
                                      "--data-dir",
                                      directory_ / name,
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      peer,
                                      "--initial-advertise-peer-urls",
                                      peer,
                                      "--initial-cluster",
                                      cluster,
                                      "--heartbeat-interval",
                                      "100",
                                      "--election-timeout",
                                      "1000"};
    words.push_back("--listen-metrics-urls=" + url(members_[member].metrics_port));
    if (!tls_dir_.empty())
      for (const std::string& flag :
           {std::string("--client-cert-auth"), "--trusted-ca-file=" + tls_dir_ + "/ca.crt",
            "--cert-file=" + tls_dir_ + "/tls.crt", "--key-file=" + tls_dir_ + "/tls.key"})
        words.push_back(flag);
    run_program(words, directory_ / (name + ".log"));
  }

  std::string metrics(int member) const {
    const Fd socket = connect_loopback(members_[member].metrics_port);
    if (!socket.valid()) return {};
    timeval patience{2, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    std::string answer;
    if (write(socket.get(), request.data(), request.size()) < 0) return {};
    char buffer[4096];
    for (ssize_t got = 0; (got = read(socket.get(), buffer, sizeof buffer)) > 0;)
      answer.append(buffer, static_cast<size_t>(got));
    return answer;
  }

  const std::string tls_dir_;
  const TemporaryDirectory directory_;
  std::vector<Member> members_;
};

}  // namespace tutti::testing
