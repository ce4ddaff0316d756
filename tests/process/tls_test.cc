// Agents with tls = require: jobs, certificates that are renewed meanwhile, and whoever has none,
// or another's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <sstream>

#include "daemon/mesh/mesh.h"
#include "tests/support/test_ca.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kCallMs = 10'000;
constexpr uid_t kNobody = 65'534;
constexpr Millis kPatience{60'000};
const std::string kHostNames = "DNS:a,DNS:b,IP:127.0.0.1";

// Made first, because the agents need it to start.
struct CertificateDirectory {
  CertificateDirectory() {
    std::string name = ::testing::TempDir() + "tutti_tls_XXXXXX";
    root = mkdtemp(name.data());
    fs::permissions(root, fs::perms(0755));
    mount("hosts", kHostNames, ca, ca.certificate());
  }
  ~CertificateDirectory() { fs::remove_all(root); }
  std::string mount(const std::string& name, const std::string& names, const TestCa& issuer,
                    const std::string& authorities) const {
    mount_secret(root + "/" + name, issuer.issue({.common_name = name, .names = names}),
                 authorities);
    return root + "/" + name;
  }

  const TestCa ca{"authority"};
  std::string root;
};

LocalMeshOptions two_hosts(const std::string& tls_dir) {
  LocalMeshOptions options;
  options.hosts = 2;
  options.agent_flags = {"--tls=require", "--tls-dir=" + tls_dir};
  return options;
}

class TlsMesh : public ::testing::Test {
 protected:
  ~TlsMesh() override {
    for (const pid_t agent : agents_) {
      ::kill(agent, SIGKILL);
      waitpid(agent, nullptr, 0);
    }
  }

  // As an administrator or a stranger, by the certificate alone.
  static void act_with(const std::string& directory) {
    setenv("TUTTI_TLS", "require", 1);
    setenv("TUTTI_TLS_DIR", directory.c_str(), 1);
  }
  Status drain(int host, bool undo) const {
    return admin_drain(mesh_.host(host).control, undo, kCallMs);
  }

  // Starts one more agent, whose coordinator is host a; returns the path of its log.
  std::string start_agent(const std::string& name, const std::string& tls_dir) {
    const std::string home = files_.root + "/home-" + name;
    fs::create_directories(home);
    const fs::path token = fs::path(mesh_.host(0).socket).parent_path().parent_path() / "token";
    const std::vector<std::string> command = {program_directory() / "tuttid",
                                              "--config=/dev/null",
                                              "--socket=" + home + "/sock",
                                              "--run-dir=" + home + "/run",
                                              "--listen=127.0.0.1:0",
                                              "--host=" + name,
                                              "--coordinator=" + mesh_.host(0).control,
                                              "--token-file=" + token.string(),
                                              "--tls=require",
                                              "--tls-dir=" + tls_dir};
    agents_.push_back(fork());
    if (agents_.back() == 0) exec(command, home + "/log");
    return home + "/log";
  }
  [[noreturn]] static void exec(const std::vector<std::string>& command, const std::string& log) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  static std::string text_of(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  // Waits until the file has this text. Returns all that it has.
  static std::string await_text(const std::string& path, const std::string& text) {
    Loop idle;
    const TimePoint limit = Clock::now() + kPatience;
    std::string found;
    while (found.find(text) == std::string::npos && Clock::now() < limit) {
      idle.run_once(Clock::now() + Millis(20));
      found = text_of(path);
    }
    return found;
  }

  CertificateDirectory files_;
  TestMesh mesh_{two_hosts(files_.root + "/hosts")};
  std::vector<pid_t> agents_;
};

TEST_F(TlsMesh, JobGoesOnWhileCertificatesAndTheirAuthorityAreRenewed) {
  setenv("TUTTI_TEST_DONE", (files_.root + "/done").c_str(), 1);
  std::vector<Trainer> trainers = mesh_.start("job", {1, 1}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    const std::string done = std::getenv("TUTTI_TEST_DONE");
    float end = 0;
    while (end == 0) {  // Rank 0 decides.
      end = context.rank == 0 && fs::exists(done) ? 1.0f : 0.0f;
      group.all_reduce(std::span(&end, 1));
    }
    check(group.epoch() == 1, "one epoch");
  });
  for (const Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const TestCa next("next");
  const std::string both = files_.ca.certificate() + next.certificate();
  const std::string tool = files_.mount("tutti-admin", "", next, next.certificate());
  act_with(tool);
  EXPECT_THAT(drain(0, true).message(), HasSubstr("no authority in " + tool));
  files_.mount("hosts", kHostNames, files_.ca, both);
  files_.mount("hosts", kHostNames, next, both);
  for (int host = 0; host < 2; ++host) EXPECT_EQ(drain(host, true).to_string(), "OK");
  files_.mount("hosts", kHostNames, next, next.certificate());
  EXPECT_EQ(mesh_.run("another", {1, 1},
                      [](const RankContext& context) {
                        Group group = context.join();
                        check_works(group);
                      }),
            "");
  std::ofstream(std::getenv("TUTTI_TEST_DONE")) << "done";
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

TEST_F(TlsMesh, AgentWithTheCertificateOfAnotherIsNotRegistered) {
  const std::string another =
      files_.mount("c", "DNS:c,IP:127.0.0.1", files_.ca, files_.ca.certificate());
  EXPECT_THAT(await_text(start_agent("d", another), "not registered"),
              HasSubstr("an agent calls itself host d, but its certificate is for DNS c, IP "
                        "127.0.0.1, CN c"));
  const TestCa stranger("stranger");
  const std::string strange = files_.mount("e", "DNS:e", stranger, stranger.certificate());
  EXPECT_THAT(await_text(start_agent("e", strange), "not registered"),
              HasSubstr("no authority in " + strange + "/ca.crt has issued its certificate"));
  act_with(another);
  const auto reply = admin_status(mesh_.host(0).address, false, kCallMs);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  std::string hosts;
  for (const v1::AgentReport& agent : reply->agents()) hosts += agent.host() + " ";
  EXPECT_EQ(hosts, "a b ");
}

TEST_F(TlsMesh, WorkersOfOtherUsersNeedNoKeyAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may start processes of other users";
  const std::string log =
      start_agent("c", files_.mount("c", "DNS:c", files_.ca, files_.ca.certificate()));
  ASSERT_THAT(await_text(log, "serves"), HasSubstr("serves"));
  Trainer trainer({"job", files_.root + "/home-c/sock", 0, 1}, [](const RankContext& context) {
    check(setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0,
          "another user");
    Group group = context.join();
    check_works(group);
  });
  EXPECT_EQ(trainer.wait(), "") << text_of(log);
}

TEST_F(TlsMesh, CertificatesOfAdministratorsAloneAdminister) {
  act_with(files_.mount("c", "DNS:c", files_.ca, files_.ca.certificate()));
  const Status refused = drain(1, false);
  EXPECT_EQ(refused.code(), Code::unauthenticated) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("certificate of DNS c, CN c"));
  act_with(files_.mount("tutti-admin", "", files_.ca, files_.ca.certificate()));
  EXPECT_EQ(drain(1, false).to_string(), "OK");
  EXPECT_EQ(drain(1, true).to_string(), "OK");
  EXPECT_EQ(admin_stop(mesh_.host(1).control, true, kCallMs).to_string(), "OK");
}

TEST_F(TlsMesh, AgentSaysAtItsStartWhatIsWrongWithItsFiles) {
  const std::string directory = files_.mount("c", "DNS:c", files_.ca, files_.ca.certificate());
  fs::permissions(directory + "/tls.key", fs::perms(0644));
  EXPECT_THAT(await_text(start_agent("c", directory), "cannot start"),
              HasSubstr("the key " + directory + "/tls.key is open to other users"));
  EXPECT_THAT(await_text(start_agent("d", directory + "/none"), "cannot start"),
              HasSubstr(directory + "/none/ca.crt cannot be read"));
}

}  // namespace
}  // namespace tutti
