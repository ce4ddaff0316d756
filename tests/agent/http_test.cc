// The HTTP port of a real tuttid.
#include <gmock/gmock.h>
#include <sys/ptrace.h>

#include <thread>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "proto/segment.h"
#include "tests/agent/harness.h"
#include "tests/support/loopback.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct AgentHttp : AgentTest {
  // For the agent started last.
  int port() const {
    const std::string text = log();
    const std::string mark = "metrics http://127.0.0.1:";
    const size_t at = text.rfind(mark);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + mark.size()));
  }
  std::string get(const std::string& path, const std::string& token = "") const {
    const Fd socket = connect_loopback(port());
    if (!socket.valid()) return "not connected";
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" +
                                (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") +
                                "\r\n";
    EXPECT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
              ssize_t(request.size()));
    std::string answer;
    std::array<char, 4096> bytes;
    ssize_t count = 0;
    while (wait_readable(socket.get()) &&
           (count = recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0)
      answer.append(bytes.data(), static_cast<size_t>(count));
    return answer;
  }
};

TEST_F(AgentHttp, IsServedWhereTheSettingSaysAndNowhereElse) {
  const pid_t silent = start();
  EXPECT_EQ(port(), 0);
  end(silent, SIGTERM);
  next_notification();
  start({"--metrics-listen=127.0.0.1:0"});
  ASSERT_NE(port(), 0) << log();
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(get("/"), HasSubstr("<title>Tutti</title>"));
  const auto reply = admin_status(address(), true, kPatienceMs);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->agents(0).metrics_address(), "127.0.0.1:" + std::to_string(port()));
  EXPECT_GT(reply->agents(0).descriptors(), 3u);
  EXPECT_GT(reply->agents(0).descriptors_max(), reply->agents(0).descriptors());
  EXPECT_EQ(reply->agents(0).protocol(), kProtocolVersion);
  EXPECT_GT(reply->agents(0).resident_bytes(), uint64_t{1} << 20);
  EXPECT_LT(reply->agents(0).resident_bytes(), uint64_t{1} << 30);
  EXPECT_GT(reply->agents(0).processor_ms(), 0u);
  EXPECT_LT(reply->agents(0).processor_ms(), 600'000u);
}

// It counts beside a certificate only, and here nobody shows one.
TEST_F(AgentHttp, WithTlsTheAgentsTokenShowsNothing) {
  const TestCa authority("authority");
  const std::string mounted = home + "/tls";
  mount_secret(mounted, authority.issue({.common_name = "a", .names = "DNS:a,IP:127.0.0.1"}),
               authority.certificate());
  const std::vector<std::string> flags = {
      "--metrics-listen=127.0.0.1:0",
      "--token-file=" + write_tokens("boss role=admin\npeer role=agent\n")};
  const pid_t plain = start(flags);
  EXPECT_THAT(get("/api/status", "peer"), StartsWith("HTTP/1.1 200 "));
  end(plain, SIGTERM);
  next_notification();
  std::vector<std::string> with_tls = flags;
  with_tls.insert(with_tls.end(), {"--tls=require", "--tls-dir=" + mounted});
  start(with_tls);
  EXPECT_THAT(get("/api/status", "peer"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(get("/api/status", "boss"), StartsWith("HTTP/1.1 200 "));
}

// As it comes in: whatever is shown of it later can be shown as it is.
TEST_F(AgentHttp, TextsOfAWorkerForgeNoLinesAndTurnNoTerminal) {
  start({"--metrics-listen=127.0.0.1:0", "--metrics-public=yes"});
  ASSERT_EQ(join("terminal").code(), TUTTI_OK);
  const std::string clean =
      "x\"} 1?tutti_jobs{host=\"a\"} 666??[31m?"
      "?<b>";
  v1::WorkerReport said;
  ASSERT_TRUE(await([&] {
    const auto reply = admin_status(address(), true, kPatienceMs);
    if (reply.ok() && reply->agents(0).workers_size() == 1) said = reply->agents(0).workers(0);
    return !said.state().empty();
  }));
  EXPECT_EQ(said.state(), "failed: " + clean);
  EXPECT_EQ(said.strategy(), clean);
  EXPECT_EQ(said.gpu_link_why(), clean);
  EXPECT_EQ(said.departures().cause().message(), clean);
  EXPECT_EQ(said.departures().cause().culprit_host(), clean);
  EXPECT_EQ(said.tuning().times(0).strategy(), clean);
  EXPECT_EQ(said.tuning().links(0).from(), clean);
  EXPECT_LT(said.tuning().links(0).to().size(), 5'000u);
  const std::vector<std::string> forged = {"\ntutti_jobs{host=\"a\"} 666", "\x1b", "\xc2\x9b",
                                           "\xe2\x80\xae"};
  for (const char* path : {"/metrics", "/api/status", "/"})
    for (const std::string& text : forged) EXPECT_THAT(get(path), Not(HasSubstr(text))) << path;
}

TEST_F(AgentHttp, APortThatIsTakenEndsTheAgentWithTheSettingsName) {
  start({"--metrics-listen=127.0.0.1:0"});
  const std::string taken = "127.0.0.1:" + std::to_string(port());
  const pid_t second = run({"--metrics-listen=" + taken, "--run-dir=" + home + "/run2",
                            "--socket=" + home + "/second.sock"});
  EXPECT_EQ(exit_code(second), 1);
  EXPECT_THAT(log(),
              HasSubstr("cannot start: setting metrics_listen = '" + taken + "': cannot bind"));
}

// As the control plane does not, either.
TEST_F(AgentHttp, IsNotOpenToEveryNetworkWithoutTokens) {
  EXPECT_EQ(exit_code(run({"--metrics-listen=0.0.0.0:0"})), 2);
  EXPECT_THAT(log(), HasSubstr("setting metrics_listen = '0.0.0.0:0' is open to every network"));
  EXPECT_THAT(next_notification(), StartsWith("STATUS=cannot start: "));
  start({"--metrics-listen=0.0.0.0:0", "--metrics-public=yes"});
}

TEST_F(AgentHttp, ReadinessFollowsDraining) {
  start({"--metrics-listen=127.0.0.1:0"});
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 200 "));
  ASSERT_TRUE(admin_drain(address(), false, kPatienceMs).ok());
  EXPECT_TRUE(await([&] { return get("/readyz").starts_with("HTTP/1.1 503 "); }));
  EXPECT_THAT(get("/readyz"), HasSubstr("\r\n\r\nhost a is draining\n"));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(get("/metrics"), HasSubstr("\ntutti_agent_serving{host=\"a\"} 0\n"));
  ASSERT_TRUE(admin_drain(address(), true, kPatienceMs).ok());
  EXPECT_TRUE(await([&] { return get("/readyz").starts_with("HTTP/1.1 200 "); }));
}

TEST_F(AgentHttp, AnAgentWithoutItsCoordinatorIsNotReady) {
  start({"--metrics-listen=127.0.0.1:0", "--coordinator=127.0.0.1:1", "--trust-network=yes"});
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get("/readyz"), HasSubstr("registered at the coordinator 127.0.0.1:1"));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

// Its loop does not turn, though all its threads could answer.
TEST_F(AgentHttp, HealthIsThatOfTheLoop) {
  const pid_t agent = start({"--metrics-listen=127.0.0.1:0"});
  if (ptrace(PTRACE_SEIZE, agent, nullptr, nullptr) != 0)
    GTEST_SKIP() << "ptrace is not permitted, which stops one thread";
  ptrace(PTRACE_INTERRUPT, agent, nullptr, nullptr);
  EXPECT_EQ(waitpid(agent, nullptr, __WALL), agent);
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get("/healthz"), HasSubstr("the agent does not react"));
  EXPECT_EQ(ptrace(PTRACE_DETACH, agent, nullptr, nullptr), 0);
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(AgentHttp, JobsAreSeenWithAnAdministratorsTokenAlone) {
  start({"--metrics-listen=127.0.0.1:0",
         "--token-file=" + write_tokens("boss role=admin\nuser role=trainer\n")});
  v1::Hello hello = hello_of("secret-job");
  hello.set_token("user");
  ASSERT_EQ(join(hello).code(), TUTTI_OK);
  for (const std::string path : {"/metrics", "/api/status"}) {
    EXPECT_THAT(get(path), Not(HasSubstr("secret-job"))) << path;
    EXPECT_THAT(get(path, "boss"), HasSubstr("secret-job")) << path;
    for (const std::string token : {"user", "guess"}) {
      EXPECT_THAT(get(path, token), StartsWith("HTTP/1.1 401 "));
      EXPECT_THAT(get(path, token), Not(HasSubstr("secret-job")));
    }
  }
  EXPECT_THAT(get("/metrics"), HasSubstr("\ntutti_jobs{host=\"a\"} 1\n"));
  EXPECT_THAT(get("/metrics"), HasSubstr("tutti_refused_callers_total{host=\"a\",door=\"http\","
                                         "code=\"UNAUTHENTICATED\"} 8\n"));
}

TEST_F(AgentHttp, JobsAreSeenByAllWhereTheSettingSaysSo) {
  start({"--metrics-listen=127.0.0.1:0", "--metrics-public=yes"});
  join("open-job");
  EXPECT_THAT(get("/metrics"), HasSubstr("job_name=\"open-job\""));
  EXPECT_THAT(get("/api/status"), HasSubstr("\"job\":\"open-job\""));
}

TEST_F(AgentHttp, RefusedTrainersAreCounted) {
  start({"--metrics-listen=127.0.0.1:0", "--jobs-max=1"});
  join("first");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(join("second").code(), TUTTI_RESOURCE_EXHAUSTED);
  EXPECT_THAT(get("/metrics"), HasSubstr("tutti_refused_callers_total{host=\"a\",door=\"socket\","
                                         "code=\"RESOURCE_EXHAUSTED\"} 3\n"));
}

TEST_F(AgentHttp, ScrapersDoNotKeepTrainersOut) {
  start({"--metrics-listen=127.0.0.1:0", "--metrics-public=yes"});
  std::atomic<bool> over = false;
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 8; ++i)
    scrapers.emplace_back([&] {
      while (!over) EXPECT_THAT(get("/metrics"), StartsWith("HTTP/1.1 200 "));
    });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(join("job" + std::to_string(i)).code(), TUTTI_OK);
  over = true;
  for (std::thread& scraper : scrapers) scraper.join();
}

}  // namespace
}  // namespace tutti
