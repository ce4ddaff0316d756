// The HTTP server at real sockets: what clients of all kinds get, and what bad ones cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <thread>
#include <vector>

#include "daemon/base/loop.h"
#include "tests/http/fixture.h"
#include "tests/support/loopback.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kPatienceMs = 60'000;

struct HttpServing : testing::Test {
  HttpServing() : server(*serve_http("127.0.0.1:0", source)) {}

  Fd connect() const {
    Fd socket = connect_loopback(port_of(server->address()));
    EXPECT_TRUE(socket.valid());
    return socket;
  }
  static void send(const Fd& socket, const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count =
          ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;  // It was turned away meanwhile.
      sent += static_cast<size_t>(count);
    }
  }
  // All that comes until the server closes.
  static std::string receive(const Fd& socket) {
    std::string all;
    pollfd one{socket.get(), POLLIN, 0};
    while (poll(&one, 1, kPatienceMs) == 1) {
      std::array<char, 4096> bytes;
      const ssize_t count = recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (count <= 0) return all;
      all.append(bytes.data(), static_cast<size_t>(count));
    }
    return all + " and then silence";
  }
  std::string ask(const std::string& request) const {
    const Fd socket = connect();
    send(socket, request);
    return receive(socket);
  }
  std::string get(const std::string& path, const std::string& headers = "") const {
    return ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }

  FixedSource source;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServing, AnswersWithHeadersThatKeepBrowsersOut) {
  const std::string answer = get("/metrics", "Authorization: Bearer sesame\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n# HELP tutti_build_info"));
  EXPECT_THAT(answer, HasSubstr("demo"));
  EXPECT_THAT(get("/metrics", "Authorization: Bearer guess\r\n"), StartsWith("HTTP/1.1 401 "));
}

TEST_F(HttpServing, HeadIsGetWithoutTheBody) {
  const std::string head = ask("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST_F(HttpServing, OnlyLooksAndServesNoFiles) {
  for (const std::string method :
       {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "MKCOL"})
    EXPECT_THAT(ask(method + " /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                             "Origin: https://evil.example\r\n"
                             "Access-Control-Request-Method: GET\r\n\r\n"),
                StartsWith("HTTP/1.1 405 "))
        << method;
  for (const std::string path : {"/etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
                                 "//etc/passwd", "/daemon/", "/?x=../../etc/passwd%00"})
    EXPECT_THAT(get(path), Not(HasSubstr("root:"))) << path;
  EXPECT_THAT(get("/etc/passwd"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServing, WhatIsNoRequestIsRefused) {
  const std::string many(20'000, 'x');
  EXPECT_THAT(get("/metrics", "X: " + many + "\r\n"), Not(HasSubstr("200 OK")));
  EXPECT_THAT(get("/" + many), Not(HasSubstr("200 OK")));
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), std::string("\0\0\0\0\r\n\r\n", 8),
        std::string("GET\r\n\r\n"), std::string("PRI * HTTP/2.0\r\n\r\n")})
    EXPECT_THAT(ask(bytes), Not(HasSubstr("200 OK")));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServing, AHeaderThatCountsStandsThereOnce) {
  for (const std::string twice : {"HOST: evil\r\n", "Authorization: a\r\nauthorization: b\r\n"})
    EXPECT_THAT(get("/metrics", twice), StartsWith("HTTP/1.1 400 ")) << twice;
  EXPECT_THAT(get("/metrics", "Authorization: Bearer sesame \t\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServing, ASlowClientIsTurnedAwayAndOthersAreServedMeanwhile) {
  const Fd slow = connect();
  send(slow, "GET /metrics HTTP/1.1\r\nHost: loc");
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(receive(slow), AllOf(Not(HasSubstr("200 OK")), Not(HasSubstr("silence"))));
}

TEST_F(HttpServing, ACrowdOfSilentClientsHoldsNothingForLong) {
  std::vector<Fd> crowd(50);  // More than the server has threads.
  for (Fd& one : crowd) one = connect();
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

// A probe that came behind all of them would restart the agent.
struct HttpCrowd : HttpServing {
  static constexpr size_t kCrowd = 2'000;
  static constexpr Millis kProbeWithin{1'500};

  void SetUp() override {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur <= 2 * kCrowd) GTEST_SKIP() << "needs more descriptors: ulimit -Hn";
  }
  void crowd_in(size_t many, const std::string& bytes) {
    for (size_t i = 0; i < many; ++i) send(crowd.emplace_back(connect()), bytes);
  }
  void expect_probes_at_once() const {
    for (const std::string path : {"/healthz", "/readyz"}) {
      const TimePoint begin = Clock::now();
      EXPECT_THAT(get(path), StartsWith("HTTP/1.1 200 "));
      EXPECT_LT(Clock::now() - begin, kProbeWithin) << path;
    }
  }

  std::vector<Fd> crowd;
};

TEST_F(HttpCrowd, ThatNeverEndsItsRequestsKeepsNoProbeWaiting) {
  crowd_in(kCrowd, "GET /metrics HTTP/1.1\r\nHost: loc");
  expect_probes_at_once();
  pollfd last{crowd.back().get(), POLLIN, 0};
  EXPECT_EQ(poll(&last, 1, 0), 0) << "it was turned away before the probes were answered";
}

TEST_F(HttpCrowd, ThatDoesNotReadItsAnswersKeepsNoProbeWaiting) {
  for (int i = 0; i < 10'000; ++i) source.shown.add_workers()->set_job("a job with a long name");
  crowd_in(600,
           "GET /api/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n\r\n");
  expect_probes_at_once();
}

// As while the coordinator does not answer.
struct StuckSource final : FixedSource {
  v1::AgentReport node() override {
    goes_on.wait(false);
    return FixedSource::node();
  }
  std::atomic<bool> goes_on{false};
};

TEST_F(HttpCrowd, WhoseRequestsTakeLongKeepsNoProbeWaiting) {
  StuckSource stuck;
  server = *serve_http("127.0.0.1:0", stuck);
  crowd_in(600, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  expect_probes_at_once();
  EXPECT_THAT(receive(crowd.back()), StartsWith("HTTP/1.1 503 ")) << "it waits for its turn";
  stuck.goes_on = true;
  stuck.goes_on.notify_all();
  EXPECT_THAT(receive(crowd.front()), StartsWith("HTTP/1.1 200 "));
  server.reset();
}

TEST_F(HttpServing, IPv6IsServedAsWell) {
  const auto served = serve_http("[::1]:0", source);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_THAT((*served)->address(), StartsWith("[::1]:"));
}

TEST_F(HttpServing, ManyAtOnceAreAllAnswered) {
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i)
    clients.emplace_back([&] {
      for (int k = 0; k < 8; ++k)
        if (get("/metrics").starts_with("HTTP/1.1 200 ")) ++answered;
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 16 * 8);
  EXPECT_EQ(source.asked, 16 * 8);
}

TEST_F(HttpServing, EndsSoonThoughClientsAreConnected) {
  const Fd idle = connect();
  const TimePoint begin = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - begin, Millis(kPatienceMs / 2));
}

TEST_F(HttpServing, APlaceThatCannotBeHadIsNamed) {
  const auto why = [&](const std::string& listen) {
    const auto served = serve_http(listen, source);
    return served.ok() ? "served" : served.status().message();
  };
  EXPECT_THAT(why(server->address()),
              StartsWith("setting metrics_listen = '" + server->address() + "': cannot bind"));
  EXPECT_THAT(why(server->address()), HasSubstr("choose another"));
  for (const std::string bad : {"", "9464", "127.0.0.1:", "127.0.0.1:94640", "127.0.0.1:80s",
                                "127.0.0.1:80,81", ":9464", "no such host:80"})
    EXPECT_THAT(why(bad), StartsWith("setting metrics_listen = '" + bad + "': ")) << bad;
  EXPECT_EQ(why("localhost:0"), "served");
}

}  // namespace
}  // namespace tutti
