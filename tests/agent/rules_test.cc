// Who may do what at the agent's Unix socket and in its directories.
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/stat.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// This process as another user, while it lives.
struct As {
  explicit As(uint32_t user, const std::vector<gid_t>& groups = {}) {
    EXPECT_EQ(setgroups(groups.size(), groups.data()), 0);
    EXPECT_EQ(setegid(user), 0);
    EXPECT_EQ(seteuid(user), 0);
  }
  ~As() {
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
    EXPECT_EQ(setgroups(0, nullptr), 0);
  }
};

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

struct AgentRules : AgentTest {
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to be several users";
  }
  v1::Welcome join_as(uint32_t user, const std::string& job, const std::string& token = "") {
    const As other(user);
    v1::Hello hello = hello_of(job);
    hello.set_token(token);
    return join(hello);
  }
  std::vector<std::string> jobs_seen_by(uint32_t user) {
    const As other(user);
    const auto reply = admin_status(address(), false, kPatienceMs);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    std::vector<std::string> jobs;
    if (reply.ok())
      for (const v1::WorkerReport& worker : reply->agents(0).workers())
        jobs.push_back(worker.job());
    return jobs;
  }
};

TEST_F(AgentRules, UsersSeeTheirOwnJobsAndMayNotAdministerAsRoot) {
  const pid_t agent = start();
  join_as(kNobody, "theirs");
  join("ours");
  EXPECT_EQ(jobs_seen_by(kNobody), std::vector<std::string>{"theirs"});
  EXPECT_EQ(jobs_seen_by(kDaemon), std::vector<std::string>{});
  EXPECT_EQ(jobs_seen_by(0), (std::vector<std::string>{"ours", "theirs"}));
  {
    const As nobody(kNobody);
    for (const Status& status :
         {admin_drain(address(), false, kPatienceMs), admin_stop(address(), true, kPatienceMs)}) {
      EXPECT_EQ(status.code(), Code::permission_denied) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("is for administrators, not for user 65534"));
    }
    // For a job that is not theirs they learn no more than of one that is not there.
    EXPECT_EQ(admin_set_strategy(address(), "ours", "ring", kPatienceMs).code(), Code::not_found);
  }
  EXPECT_EQ(kill(agent, 0), 0);
  EXPECT_EQ(join_as(kNobody, "theirs").code(), TUTTI_OK) << "it does not drain";
  EXPECT_TRUE(admin_drain(address(), false, kPatienceMs).ok());
  const std::string here = " (pid " + std::to_string(getpid()) + "): ";
  const std::string refused =
      "audit: user 65534" + here + "stop the agent and its jobs: PERMISSION_DENIED";
  EXPECT_TRUE(await([&] { return count_in_log(refused) == 1; })) << log();
  EXPECT_TRUE(await([&] { return count_in_log("audit: user 0" + here + "drain: OK") == 1; }))
      << log();
}

TEST_F(AgentRules, MembersOfTheAdminGroupMayAdministerAsRoot) {
  start({"--admin-group=games"});
  const group* games = getgrnam("games");
  ASSERT_NE(games, nullptr);
  {
    const As nobody(kNobody, {7, 8});
    EXPECT_EQ(admin_drain(address(), false, kPatienceMs).code(), Code::permission_denied);
  }
  const As member(kNobody, {7, games->gr_gid});
  EXPECT_EQ(admin_drain(address(), false, kPatienceMs).to_string(), "OK");
}

TEST_F(AgentRules, AnAdminGroupThatIsNotThereIsNamed) {
  EXPECT_EQ(exit_code(run({"--admin-group=no-such-group"})), 1);
  EXPECT_THAT(log(), HasSubstr("admin_group = 'no-such-group': there is no such group"));
}

TEST_F(AgentRules, AnAdministratorsTokenCountsThroughTheSocketAsRoot) {
  start({"--token-file=" + write_tokens("boss role=admin\n")});
  const As nobody(kNobody);
  EXPECT_EQ(admin_drain(address(), false, kPatienceMs).code(), Code::permission_denied);
  const Variable token("TUTTI_TOKEN", "boss");
  EXPECT_EQ(admin_drain(address(), false, kPatienceMs).to_string(), "OK");
}

TEST_F(AgentRules, UsersWithJobsOfOneNameHaveWorkersOfTheirOwnAsRoot) {
  const pid_t agent = start();
  const v1::Welcome theirs = join_as(kNobody, "demo");
  const v1::Welcome ours = join("demo");
  EXPECT_EQ(field(theirs, "uid"), std::to_string(kNobody));
  EXPECT_EQ(field(ours, "uid"), "0");
  EXPECT_NE(field(theirs, "pid"), field(ours, "pid"));
  EXPECT_EQ(field(join_as(kNobody, "demo"), "pid"), field(theirs, "pid"));
  end(agent, SIGKILL);
  start();
  EXPECT_TRUE(await([&] { return count_in_log("took over job \"demo\"") == 2; }));
  EXPECT_EQ(field(join_as(kNobody, "demo"), "pid"), field(theirs, "pid"));
  EXPECT_EQ(field(join("demo"), "pid"), field(ours, "pid"));
}

TEST_F(AgentRules, AWorkerThatShowsNoPassOfThisHostIsNotTakenOver) {
  const pid_t agent = start();
  join("forge");
  join("demo");
  end(agent, SIGKILL);
  start();
  EXPECT_TRUE(await([&] { return count_in_log("shows no pass of this agent") == 1; }));
  EXPECT_EQ(count_in_log("took over job"), 1u);
  const v1::Welcome refused = join("forge", 1);
  EXPECT_EQ(refused.code(), TUTTI_UNAVAILABLE) << refused.message();
}

TEST_F(AgentRules, AWorkerCannotSayThatItIsAnothersAsRoot) {
  start();
  join_as(kNobody, "lie");
  EXPECT_EQ(jobs_seen_by(kNobody), std::vector<std::string>{"lie"});
  const auto reply = admin_status(address(), true, kPatienceMs);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->agents(0).workers(0).job(), "lie");
  EXPECT_EQ(reply->agents(0).workers(0).uid(), kNobody);
}

TEST_F(AgentRules, TokensDecideWhoJoinsWhichJobAsRoot) {
  start(
      {"--token-file=" +
       write_tokens("a role=trainer jobs=train-* subject=vision\nb role=trainer\nc role=agent\n")});
  EXPECT_EQ(join_as(kNobody, "train-1", "a").code(), TUTTI_OK);
  EXPECT_EQ(join_as(kNobody, "demo", "a").code(), TUTTI_PERMISSION_DENIED);
  EXPECT_EQ(join_as(kNobody, "demo", "b").code(), TUTTI_OK);
  EXPECT_EQ(join_as(kNobody, "demo", "c").code(), TUTTI_UNAUTHENTICATED);
  EXPECT_EQ(join_as(kNobody, "demo").code(), TUTTI_UNAUTHENTICATED);
  // Another subject of the same user has another job, and worker.
  EXPECT_NE(field(join_as(kNobody, "train-1", "b"), "pid"),
            field(join_as(kNobody, "train-1", "a"), "pid"));
}

TEST_F(AgentRules, ATokenFileThatCannotBeReadIsNamedWithItsLine) {
  const std::string path = write_tokens("# ours\nsesame role=king\n");
  EXPECT_EQ(exit_code(run({"--token-file=" + path})), 2);
  EXPECT_THAT(log(), HasSubstr(path + ":2: 'king' is no role"));
  EXPECT_EQ(log().find("sesame"), std::string::npos);
}

TEST_F(AgentRules, AUserHasNoMoreJobsThanAllowedAndOthersGoOnAsRoot) {
  start({"--user-jobs-max=3"});
  std::vector<v1::Welcome> jobs;
  for (int i = 0; i < 10; ++i) jobs.push_back(join_as(kNobody, "job" + std::to_string(i)));
  for (size_t i = 0; i < jobs.size(); ++i)
    EXPECT_EQ(jobs[i].code(), i < 3 ? TUTTI_OK : TUTTI_RESOURCE_EXHAUSTED) << i;
  EXPECT_THAT(jobs[3].message(), HasSubstr("user 65534 has 3 jobs on host a"));
  EXPECT_EQ(jobs_seen_by(kNobody).size(), 3u);
  EXPECT_EQ(join_as(kNobody, "job0").code(), TUTTI_OK) << "of a job that there is";
  EXPECT_EQ(join_as(kDaemon, "job5").code(), TUTTI_OK);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(join("ours" + std::to_string(i)).code(), TUTTI_OK);
  kill(std::stoi(field(jobs[0], "pid")), SIGKILL);
  EXPECT_TRUE(await([&] { return join_as(kNobody, "job7").code() == TUTTI_OK; }));
}

TEST_F(AgentRules, AUserHasNoMoreRanksThanAllowedAsRoot) {
  start({"--user-ranks-max=2"});
  EXPECT_EQ(join_as(kNobody, "red").code(), TUTTI_OK);
  EXPECT_EQ(join_as(kNobody, "blue").code(), TUTTI_OK);
  EXPECT_EQ(join_as(kNobody, "red").code(), TUTTI_RESOURCE_EXHAUSTED);
  EXPECT_EQ(join_as(kDaemon, "red").code(), TUTTI_OK);
  const As nobody(kNobody);
  const auto reply = admin_status(address(), true, kPatienceMs);
  ASSERT_TRUE(reply.ok());
  ASSERT_EQ(reply->agents(0).users_size(), 1) << "of others they see nothing";
  EXPECT_EQ(reply->agents(0).users(0).ranks(), 2u);
  EXPECT_EQ(reply->agents(0).users(0).ranks_max(), 2u);
}

TEST_F(AgentRules, TheNodeHasNoMoreJobsThanAllowed) {
  start({"--jobs-max=2"});
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(join("job" + std::to_string(i)).code(), i < 2 ? TUTTI_OK : TUTTI_RESOURCE_EXHAUSTED);
}

TEST_F(AgentRules, KeyAndWorkersSocketsAreTheAgentsAlone) {
  const pid_t agent = start();
  join("demo");
  EXPECT_EQ(mode_of(home + "/run/mesh.key"), 0600u);
  EXPECT_EQ(mode_of(home + "/run/workers"), 0700u);
  const std::string key = text_of(home + "/run/mesh.key");
  EXPECT_EQ(key.size(), 64u);
  end(agent, SIGKILL);
  start();
  EXPECT_EQ(text_of(home + "/run/mesh.key"), key) << "it outlives the agent";
}

TEST_F(AgentRules, ARunDirOfAnotherUserOrWithLinksIsRefusedAsRoot) {
  const std::string theirs = home + "/theirs";
  std::filesystem::create_directory(theirs);
  ASSERT_EQ(chown(theirs.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(exit_code(run({"--run-dir=" + theirs})), 1);
  EXPECT_THAT(log(), HasSubstr(theirs + " belongs to user 65534"));
  const std::string open = home + "/open";  // As /tmp is; it stays as it was.
  std::filesystem::create_directory(open);
  std::filesystem::permissions(open, std::filesystem::perms(01777));
  EXPECT_EQ(exit_code(run({"--run-dir=" + open})), 1);
  EXPECT_THAT(log(), HasSubstr("others may write to " + open));
  EXPECT_EQ(mode_of(open), 01777u);
  const std::string linked = home + "/linked";
  std::filesystem::create_directory(linked);
  std::filesystem::create_directory_symlink(theirs, linked + "/workers");
  EXPECT_EQ(exit_code(run({"--run-dir=" + linked})), 1);
  EXPECT_THAT(log(), HasSubstr(linked + "/workers is a link"));
}

TEST_F(AgentRules, AKeyThatWasCutShortIsNamed) {
  std::filesystem::create_directory(home + "/run");
  std::ofstream(home + "/run/mesh.key") << "abc";
  std::filesystem::permissions(home + "/run/mesh.key", std::filesystem::perms(0600));
  EXPECT_EQ(exit_code(run({})), 1);
  EXPECT_THAT(log(), HasSubstr("the key " + home + "/run/mesh.key cannot be used"));
}

TEST_F(AgentRules, AFloodOfRequestsByAUserLeavesRoomForAdministratorsAsRoot) {
  start();
  std::vector<TrainerSocket> flood;
  {
    const As nobody(kNobody);
    v1::Hello hello;
    hello.set_version(kProtocolVersion);
    v1::AdminRequest request;
    request.mutable_status();
    hello.set_admin(request.SerializeAsString());
    for (int i = 0; i < 200; ++i) flood.emplace_back(socket()).greet(hello);
  }
  EXPECT_TRUE(admin_status(address(), false, kPatienceMs).ok());
  for (TrainerSocket& one : flood) EXPECT_TRUE(one.welcome().has_value()) << "answered or refused";
}

TEST_F(AgentRules, NamesThatNoTerminalMayShowAreRefusedInTrueWords) {
  start();
  const std::map<std::string, std::string> names = {
      {"red\x1b[31m", "holds a control character"},
      {"two\nlines", "holds a control character"},
      {std::string("cut\0here", 8), "holds a control character"},
      {"c1\xc2\x9b", "holds a control character"},
      {"turned\xe2\x80\xae", "or one that turns the direction of text"},
      {"latin\xe9", "is not UTF-8"},
      {std::string(129, 'x'), "is longer than 128 bytes"},
      {"", "the job has no name"}};
  for (const auto& [name, why] : names) {
    const v1::Welcome refused = join(name);
    EXPECT_EQ(refused.code(), TUTTI_INVALID_ARGUMENT) << name;
    EXPECT_THAT(refused.message(), HasSubstr(why));
  }
  EXPECT_EQ(join("k\xc3\xb6ln \xe6\x97\xa5").code(), TUTTI_OK);
  for (const std::string host : {"a\x1b[31m", "b\xe2\x80\xae", "c\xff"}) {
    EXPECT_EQ(exit_code(run({"--host=" + host, "--run-dir=" + home + "/other"})), 2);
    EXPECT_THAT(log(), HasSubstr("the host's name "));
    EXPECT_EQ(log().find(host), std::string::npos);
  }
}

TEST_F(AgentRules, RequestsThatCannotBeReadAreInvalid) {
  start();
  v1::Hello hello;
  hello.set_version(kProtocolVersion);
  for (const std::string bytes : {"\xff\xff\xff", "\x7a\x00"}) {
    hello.set_admin(bytes);
    EXPECT_EQ(join(hello).code(), TUTTI_INVALID_ARGUMENT);
  }
  hello.set_version(kProtocolVersion + 1);
  EXPECT_EQ(join(hello).code(), TUTTI_FAILED_PRECONDITION);
}

}  // namespace
}  // namespace tutti
