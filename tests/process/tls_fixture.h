// Two agents with tls = require, and others with other certificates.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <map>

#include "daemon/control/admin_client.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_ca.h"
#include "tests/support/test_mesh.h"

namespace tutti::testing {

namespace fs = std::filesystem;

inline constexpr int kCallMs = 10'000;
inline constexpr Millis kPatience{60'000};
inline const std::string kHostNames = "DNS:a,DNS:b,IP:127.0.0.1";

// Made first, because the agents need it to start.
struct CertificateDirectory {
  CertificateDirectory() {
    fs::permissions(root, fs::perms(0755));
    mount("hosts", kHostNames, ca, ca.certificate());
  }
  std::string mount(const std::string& name, const std::string& names, const TestCa& issuer,
                    const std::string& authorities) const {
    mount_secret(root + "/" + name, issuer.issue({.common_name = name, .names = names}),
                 authorities);
    return root + "/" + name;
  }

  const TestCa ca{"authority"};
  const TemporaryDirectory directory;
  const std::string root = directory;
};

inline LocalMeshOptions two_hosts(const std::string& tls_dir) {
  LocalMeshOptions options;
  options.hosts = 2;
  options.agent_flags = {"--tls=require", "--tls-dir=" + tls_dir};
  return options;
}

class TlsMesh : public ::testing::Test {
 protected:
  ~TlsMesh() override {
    while (!agents_.empty()) kill_agent(agents_.begin()->first);
  }

  void kill_agent(const std::string& name) {
    const pid_t agent = agents_.at(name);
    agents_.erase(name);
    ::kill(agent, SIGKILL);
    waitpid(agent, nullptr, 0);
  }

  // As an administrator or a stranger, by the certificate alone.
  static void act_with(const std::string& directory) {
    setenv("TUTTI_TLS", "require", 1);
    setenv("TUTTI_TLS_DIR", directory.c_str(), 1);
  }
  Status drain(int host, bool undo) const {
    return admin_drain(mesh_.host(host).control, undo, kCallMs);
  }

  std::string token_file() const {
    return fs::path(mesh_.host(0).socket).parent_path().parent_path() / "token";
  }
  // Starts one more agent, whose coordinator is host a; returns the path of its log.
  std::string start_agent(const std::string& name, const std::string& tls_dir) {
    const std::string home = files_.root + "/home-" + name;
    fs::create_directories(home);
    fs::remove(home + "/log");  // Of an agent before it.
    const std::vector<std::string> command = {program_directory() / "tuttid",
                                              "--config=/dev/null",
                                              "--socket=" + home + "/sock",
                                              "--run-dir=" + home + "/run",
                                              "--listen=127.0.0.1:0",
                                              "--host=" + name,
                                              "--coordinator=" + mesh_.host(0).control,
                                              "--token-file=" + token_file(),
                                              "--tls=require",
                                              "--tls-dir=" + tls_dir};
    std::filesystem::remove(home + "/log");
    agents_[name] = fork();
    if (agents_[name] == 0) run_program(command, home + "/log");
    return home + "/log";
  }
  // Waits until the file has this text. Returns all that it has.
  static std::string await_text(const std::string& path, const std::string& text,
                                std::source_location at = std::source_location::current()) {
    await([&] { return text_of(path).find(text) != std::string::npos; }, at);
    return text_of(path);
  }

  CertificateDirectory files_;
  TestMesh mesh_{two_hosts(files_.root + "/hosts")};
  std::map<std::string, pid_t> agents_;
};

}  // namespace tutti::testing
