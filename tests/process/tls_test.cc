// Agents with tls = require: jobs, certificates that are renewed meanwhile, and those with none,
// or another's.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>

#include "tests/process/tls_fixture.h"

namespace tutti {
namespace {

using namespace testing;
using ::testing::HasSubstr;

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
  EXPECT_THAT(await_text(start_agent("d", another), "refuses this agent: "),
              HasSubstr("an agent calls itself host d, but its certificate is for DNS c, IP "
                        "127.0.0.1, CN c"));
  const TestCa stranger("stranger");
  const std::string strange = files_.mount("e", "DNS:e", stranger, stranger.certificate());
  EXPECT_THAT(await_text(start_agent("e", strange), "cannot speak with each other: "),
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
