// The table of who may do what: each row with the right and the wrong caller, and its copy in
// SECURITY.md. Rows whose subject is not the control plane are tried in other rooms; here they are
// only counted, so that no row comes without a test.
#include "daemon/membership/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/control/credentials.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using Kind = Caller::Kind;

struct Row {
  Rpc rpc;
  std::string name;
  std::string may;  // Letters of the kinds: nobody in particular, user, agent, Admin.
};
const std::vector<Row> kRows = {
    {Rpc::attend, "Mesh.Attend", ""},
    {Rpc::enlist, "Mesh.Enlist", "a"},
    {Rpc::status, "Admin.Status", "uaA"},
    {Rpc::trace, "Admin.Trace", "uaA"},
    {Rpc::set_strategy, "Admin.SetStrategy", "uaA"},
    {Rpc::drain, "Admin.Drain", "A"},
    {Rpc::stop, "Admin.Stop", "A"},
    {Rpc::stop_job, "Admin.StopJob", "uaA"},
    {Rpc::health, "grpc.health.v1.Health", "nuaA"},
    {Rpc::reflection, "grpc.reflection", "nuaA"},
};
constexpr std::string_view kKinds = "nuaA";

TEST(MeshRules, EachCallAdmitsTheRightCallersAndRefusesTheOthers) {
  for (const Row& row : kRows) {
    EXPECT_EQ(name_of(row.rpc), row.name);
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      const Caller caller{.kind = static_cast<Kind>(kind), .uid = 7, .name = "somebody"};
      const Status status = permit(row.rpc, caller, "a:1");
      const bool may = row.may.find(kKinds[kind]) != std::string::npos;
      EXPECT_EQ(status.ok(), may) << row.name << " " << kKinds[kind];
      if (may) continue;
      EXPECT_EQ(status.code(),
                caller.kind == Kind::anybody ? Code::unauthenticated : Code::permission_denied);
      EXPECT_THAT(status.message(), HasSubstr(row.name + " is for "));
      EXPECT_THAT(status.message(), HasSubstr("not for somebody; "));
    }
  }
}

// Where the rows are tried that permit() does not decide.
struct Trial {
  std::string name;
  std::string file;
  std::string test;
};
const std::vector<Trial> kTrials = {
    {"JoinRank", "membership/join_test.cc", "OnlyAPassThatAnAgentSignedForThisJobAndHostAdmits"},
    {"Resume", "membership/epoch_test.cc", "WhoShowsNoPassOfTheJobsOwnerIsNotBelievedAboutEpochs"},
    {"RankGone", "membership/epoch_test.cc", "AWorkerCannotTakeAwayTheRanksOfAnother"},
    {"hello", "agent/rules_test.cc", "TokensDecideWhoJoinsWhichJobAsRoot"},
    {"admin request on the Unix socket", "agent/rules_test.cc",
     "UsersSeeTheirOwnJobsAndMayNotAdministerAsRoot"},
    {"worker's control socket", "agent/rules_test.cc", "KeyAndWorkersSocketsAreTheAgentsAlone"},
    {"trainer's socket (descriptor to the worker)", "agent/rules_test.cc",
     "UsersWithJobsOfOneNameHaveWorkersOfTheirOwnAsRoot"},
    {"a rank's segment, board, recorder and eventfd (descriptors to trainers)",
     "process/owners_test.cc", "AnotherUserMayNotJoinThroughAnotherHostAsRoot"},
    {"recorder (descriptor to the agent)", "agent/trace_test.cc", "WhatIsNoRecorderIsDropped"},
    {"Data.Exchange and TCP links", "transport/tcp_test.cc", "TurnsAwayAWrongProof"},
    {"run_dir", "agent/rules_test.cc", "KeyAndWorkersSocketsAreTheAgentsAlone"},
    {"HTTP /healthz and /readyz", "http/routes_test.cc",
     "HealthAndReadinessNeedNoTokenAndTellNothingElse"},
    {"HTTP /, /api/status, /api/diagnosis and /metrics", "agent/http_test.cc",
     "JobsAreSeenWithAnAdministratorsTokenAlone"},
};

TEST(MeshRules, EveryRowHasATest) {
  for (const Rule& rule : rules()) {
    const std::string door(rule.door);
    const bool is_call = std::ranges::find(kRows, door, &Row::name) != kRows.end();
    const auto trial = std::ranges::find(kTrials, door, &Trial::name);
    ASSERT_NE(is_call, trial != kTrials.end()) << door;
    if (is_call) continue;
    EXPECT_THAT(text_of(TUTTI_SOURCE_DIR "/tests/" + trial->file),
                HasSubstr(", " + trial->test + ") {"));
  }
}

TEST(MeshRules, EveryRowStandsInSecurityMd) {
  const std::string text = text_of(TUTTI_SOURCE_DIR "/SECURITY.md");
  size_t rows = 0;
  for (const Rule& rule : rules()) {
    const std::string row = "| " + std::string(rule.door) + " | " + std::string(rule.who) + " | " +
                            std::string(rule.proof) + " |\n";
    EXPECT_THAT(text, HasSubstr(row));
    ++rows;
  }
  EXPECT_EQ(rows, kRows.size() + kTrials.size());
}

TEST(MeshRules, APassHoldsForWhatItSaysAlone) {
  const v1::Pass good = pass_of("a");
  EXPECT_TRUE(check_pass(good, {"another", kMeshToken}).ok());
  EXPECT_EQ(check_pass(good, {"another"}).code(), Code::unauthenticated);
  EXPECT_EQ(check_pass(good, std::vector<std::string>()).code(), Code::unauthenticated);
  std::vector<v1::Pass> forged(6, good);
  forged[0].set_job("demo2");
  forged[1].set_uid(0);
  forged[2].set_subject("vision");
  forged[3].set_host("b");
  forged[4].clear_signature();
  forged[5].mutable_signature()->back() ^= 1;
  for (const v1::Pass& pass : forged)
    EXPECT_EQ(check_pass(pass, {kMeshToken}).code(), Code::unauthenticated)
        << pass.ShortDebugString();
  // The border between two fields is part of what is signed.
  v1::Pass moved = good;
  moved.set_subject("x\n1 a");
  moved.set_host("");
  EXPECT_FALSE(check_pass(moved, {kMeshToken}).ok());
}

// A signature travels without the certificate beside which a token for agents counts.
TEST(MeshRules, ACertifiedHostsAgentSignsWithItsOwnKeysAndBelievesNoOther) {
  Credentials certified = test_credentials();
  certified.own_key = "own";
  certified.certified_hosts = true;
  v1::Pass pass = pass_of("a");
  EXPECT_FALSE(check_pass(pass, certified).ok()) << "signed with the token";
  sign_pass(pass, certified.own_key);
  EXPECT_FALSE(check_pass(pass, certified).ok()) << "not with the pair of keys";
  sign_pass(pass, certified);
  EXPECT_TRUE(check_pass(pass, certified).ok());
  EXPECT_TRUE(check_certified_pass(pass, {"", "no key", public_pass_key("own")}).ok());
  for (const std::string& key : {std::string(), std::string("own"), public_pass_key("another")})
    EXPECT_EQ(check_certified_pass(pass, {key}).code(), Code::unauthenticated);
  v1::Pass forged = pass;
  forged.set_job("demo2");
  EXPECT_FALSE(check_pass(forged, certified).ok());
  forged = pass;
  forged.clear_signature();
  EXPECT_FALSE(check_pass(forged, certified).ok());
}

}  // namespace
}  // namespace tutti
