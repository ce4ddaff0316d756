// Which path shows what, and to whom.
#include "daemon/http/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http/fixture.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string header(const HttpAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers)
    if (key == name) return value;
  return "";
}

struct HttpRoutes : testing::Test {
  HttpAnswer get(const std::string& path, const std::string& authorization = "") {
    return answer_http({.path = path, .authorization = authorization}, source);
  }
  FixedSource source;
};

TEST_F(HttpRoutes, HealthAndReadinessNeedNoTokenAndTellNothingElse) {
  EXPECT_EQ(get("/healthz").code, 200);
  EXPECT_EQ(get("/readyz", "Bearer wrong").body, "OK\n");
  source.ready = unavailable("host a is draining");
  EXPECT_EQ(get("/healthz").code, 200);
  EXPECT_EQ(get("/readyz").code, 503);
  EXPECT_EQ(get("/readyz").body, "host a is draining\n");
  source.ready = deadline_exceeded("the agent does not react");
  EXPECT_EQ(get("/healthz").code, 503);
  EXPECT_EQ(get("/readyz").code, 503);
}

TEST_F(HttpRoutes, JobsAreShownToThoseWithATokenAlone) {
  for (const std::string path : {"/metrics", "/api/status", "/api/diagnosis"}) {
    EXPECT_THAT(get(path, "Bearer sesame").body, HasSubstr("demo")) << path;
    EXPECT_THAT(get(path, "Basic YW55Ym9keTpzZXNhbWU=").body, HasSubstr("demo")) << path;
    EXPECT_EQ(get(path).code, 200);
    EXPECT_THAT(get(path).body, Not(HasSubstr("demo"))) << path;
    EXPECT_THAT(get(path).body, Not(HasSubstr("1000"))) << path;
    const HttpAnswer refused = get(path, "Bearer guess");
    EXPECT_EQ(refused.code, 401);
    EXPECT_EQ(refused.body, "the token is wrong\n");
    EXPECT_THAT(header(refused, "WWW-Authenticate"), HasSubstr("Basic realm="));
  }
  source.is_public = true;
  EXPECT_THAT(get("/metrics").body, HasSubstr("demo"));
}

TEST_F(HttpRoutes, StatusIsOfAllNodesForThoseWhoMaySeeThem) {
  EXPECT_THAT(get("/api/status", "Bearer sesame").body,
              HasSubstr(R"("status":{"agents":[{"host":"a",)"));
  EXPECT_THAT(get("/api/status", "Bearer sesame").body, HasSubstr(R"("host":"b")"));
  EXPECT_THAT(get("/api/status", "Bearer sesame").body, HasSubstr(R"({"access":"all",)"));
  EXPECT_THAT(get("/api/status").body, HasSubstr(R"({"access":"node","hidden_jobs":1,)"));
  EXPECT_THAT(get("/api/status").body, Not(HasSubstr(R"("host":"b")")));
  EXPECT_EQ(get("/api/status").type, "application/json");
  EXPECT_THAT(get("/api/status", "Bearer sesame").body,
              HasSubstr(R"("paths":[{"from":"a","to":"b","message_us":50,"bytes_per_s":1e+09}])"));
}

TEST_F(HttpRoutes, DiagnosisIsOfAllNodesForThoseWhoMaySeeThem) {
  const std::string all = get("/api/diagnosis", "Bearer sesame").body;
  EXPECT_THAT(all, HasSubstr(R"("nodes":["OK","WARN"])"));
  EXPECT_THAT(
      all, HasSubstr(R"("jobs":[{"job":"demo","uid":1000,"subject":"","verdict":"not_joined",)"));
  EXPECT_EQ(get("/api/diagnosis").body, "{\"alarms\":[],\"nodes\":[\"OK\"],\"jobs\":[]}\n");
  EXPECT_EQ(get("/api/diagnosis").type, "application/json");
  EXPECT_THAT(get("/api/status", "Bearer sesame").body,
              HasSubstr("\"diagnosis\":" + all.substr(0, all.size() - 1) + ","));
}

TEST_F(HttpRoutes, BrowsersAreAskedForTheToken) {
  EXPECT_EQ(get("/login").code, 401);
  EXPECT_EQ(get("/login", "Basic YW55Ym9keTpzZXNhbWU=").code, 303);
  EXPECT_EQ(header(get("/login", "Bearer sesame"), "Location"), "/");
}

TEST_F(HttpRoutes, ThePageRunsItsOwnScriptAlone) {
  const HttpAnswer first = get("/");
  EXPECT_EQ(first.code, 200);
  EXPECT_EQ(first.type, "text/html; charset=utf-8");
  const std::string policy = header(first, "Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  const size_t nonce = policy.find("script-src 'nonce-");
  ASSERT_NE(nonce, std::string::npos);
  EXPECT_THAT(first.body, HasSubstr("<script nonce=\"" + policy.substr(nonce + 18, 32) + "\">"));
  EXPECT_NE(policy, header(get("/"), "Content-Security-Policy")) << "each has another nonce";
  EXPECT_THAT(first.body, Not(HasSubstr("innerHTML")));
  EXPECT_THAT(first.body, Not(HasSubstr("http://"))) << "it needs nothing from elsewhere";
}

TEST_F(HttpRoutes, AnythingElseIsNotThere) {
  for (const std::string path : {"", "/etc/passwd", "/metrics/", "/api", "/../metrics"})
    EXPECT_EQ(get(path).code, 404) << path;
}

// The name of another site may be made to lead to 127.0.0.1.
TEST_F(HttpRoutes, OfThisMachineAloneAreAskedByItsNames) {
  const auto code = [&](const std::string& host, bool loopback) {
    return answer_http({.path = "/metrics", .host = host, .loopback = loopback}, source).code;
  };
  for (const std::string host : {"", "localhost", "localhost:9464", "127.0.0.1:9464", "[::1]:9464"})
    EXPECT_EQ(code(host, true), 200) << host;
  for (const std::string host :
       {"evil.example", "evil.example:9464", "127.evil.example", "[::2]:1"})
    EXPECT_EQ(code(host, true), 421) << host;
  EXPECT_EQ(code("node7.example:9464", false), 200);
}

// Each question to the mesh is one to all of its agents.
TEST_F(HttpRoutes, AskTheMeshOnce) {
  for (const std::string path : {"/metrics", "/api/status", "/api/diagnosis"}) {
    source.meshes_asked = 0;
    EXPECT_EQ(answer_http({.path = path, .authorization = "Bearer sesame"}, source).code, 200);
    EXPECT_EQ(source.meshes_asked, 1) << path;
  }
}

TEST(HttpToken, IsReadOfBothSchemes) {
  EXPECT_EQ(token_of("Bearer sesame"), "sesame");
  EXPECT_EQ(token_of("bEARER  sesame"), "sesame");
  EXPECT_EQ(token_of("Basic YTpiOmM="), "b:c");
  EXPECT_EQ(token_of("Basic OnNlc2FtZQ=="), "sesame");
  for (const std::string other :
       {"", "Bearer", "Basic", "Basic ", "Basic !!!!", "Basic YWJj", "Digest x", "sesame"})
    EXPECT_EQ(token_of(other), "") << other;
}

}  // namespace
}  // namespace tutti
