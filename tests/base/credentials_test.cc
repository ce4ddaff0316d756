// Tokens with roles: how lines are read, and whom they admit.
#include "daemon/base/credentials.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

Credentials credentials_of(const std::string& lines) {
  Result<std::vector<Token>> tokens = parse_tokens(lines, "tokens");
  EXPECT_TRUE(tokens.ok()) << tokens.status().to_string();
  return {.tokens = tokens.ok() ? *std::move(tokens) : std::vector<Token>()};
}

void expect_refused(const std::string& lines, const std::string& part) {
  const Status status = parse_tokens(lines, "tokens").status();
  EXPECT_EQ(status.code(), Code::invalid_argument) << lines;
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("sesame"), std::string::npos) << "tells the token";
}

TEST(Credentials, LinesAreReadWithTheirRoles) {
  const Credentials read = credentials_of(
      "# ours\n\n one role=agent,trainer\ntwo\trole=admin # for people\r\n"
      "three role=trainer jobs=train-* subject=vision\nfour role=trainer,agent,admin\nfi#ve "
      "role=agent");
  ASSERT_EQ(read.tokens.size(), 5u);
  const auto roles = [&](size_t i) {
    const Token& token = read.tokens[i];
    return std::string(token.trainer ? "t" : "") + (token.agent ? "a" : "") +
           (token.admin ? "A" : "");
  };
  EXPECT_EQ(read.tokens[0].text, "one");
  EXPECT_EQ(roles(0), "ta");
  EXPECT_EQ(roles(1), "A");
  EXPECT_EQ(roles(2), "t");
  EXPECT_EQ(read.tokens[2].jobs, "train-*");
  EXPECT_EQ(read.tokens[2].subject, "vision");
  EXPECT_EQ(roles(3), "taA");
  EXPECT_EQ(read.tokens[4].text, "fi#ve");
}

TEST(Credentials, LinesThatCannotBeReadAreNamedWithoutTheToken) {
  expect_refused("sesame", "tokens:1: say what the token is for: role=trainer");
  expect_refused("sesame subject=x", "say what the token is for");
  expect_refused("ok role=agent\nsesame role=king", "tokens:2: 'king' is no role");
  expect_refused("sesame role=", "tokens:1: expected role=, jobs= or subject=");
  expect_refused("sesame admin", "expected role=");
  expect_refused("sesame job=x", "expected role=");
  expect_refused("sesame role=agent\nsesame role=admin",
                 "tokens:2: the token stands in an earlier line");
  expect_refused("sesame role=trainer,agent jobs=x", "role=trainer");
  expect_refused("sesame role=admin subject=x", "which this token is not for");
  expect_refused(std::string(1025, 'x'), "longer than 1024 bytes");
  expect_refused("x role=trainer subject=" + std::string(129, 'y'), "longer than 128 bytes");
  expect_refused("# nothing\n", "tokens holds no token");
}

TEST(Credentials, WithoutTokensForTrainersAllAreAdmitted) {
  EXPECT_EQ(*admit_trainer({}, "", "demo", "a"), "");
  EXPECT_EQ(*admit_trainer({}, "anything", "demo", "a"), "");
  EXPECT_EQ(*admit_trainer(credentials_of("x role=agent\ny role=admin"), "", "demo", "a"), "");
}

TEST(Credentials, TokensAdmitTrainersToTheirJobsAsTheirSubject) {
  const Credentials some = credentials_of(
      "all role=trainer\nsome role=trainer jobs=train-* subject=vision\nboss role=admin");
  EXPECT_EQ(*admit_trainer(some, "all", "demo", "a"), "");
  EXPECT_EQ(*admit_trainer(some, "some", "train-7/x", "a"), "vision");
  const Status other = admit_trainer(some, "some", "demo", "a").status();
  EXPECT_EQ(other.code(), Code::permission_denied);
  EXPECT_EQ(other.message().substr(0, 39), "the token is for jobs called train-*, n");
  for (const char* wrong : {"", "al", "alll", "boss"}) {
    const Status status = admit_trainer(some, wrong, "demo", "a").status();
    EXPECT_EQ(status.code(), Code::unauthenticated) << wrong;
    EXPECT_NE(status.message().find("set TUTTI_TOKEN"), std::string::npos);
  }
}

TEST(Credentials, AnAgentSignsWithTheFirstTokenForAgentsElseWithItsOwnKey) {
  Credentials some = credentials_of("boss role=admin\nfirst role=trainer,agent\nsecond role=agent");
  some.own_key = "own";
  EXPECT_EQ(some.agent_token(), "first");
  EXPECT_EQ(some.agent_keys(), (std::vector<std::string>{"first", "second", "own"}));
  EXPECT_TRUE(some.has_agent_token());
  const Credentials none{.own_key = "own"};
  EXPECT_EQ(none.agent_token(), "own");
  EXPECT_EQ(none.agent_keys(), std::vector<std::string>{"own"});
  EXPECT_FALSE(none.has_agent_token());
}

TEST(Credentials, TokensAreComparedWhole) {
  EXPECT_TRUE(same_token("", ""));
  EXPECT_TRUE(same_token("abc", "abc"));
  for (const char* wrong : {"", "ab", "abd", "abcd"}) EXPECT_FALSE(same_token("abc", wrong));
  EXPECT_FALSE(same_token("", "a"));
}

}  // namespace
}  // namespace tutti
