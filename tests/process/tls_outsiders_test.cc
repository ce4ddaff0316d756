// What hosts can do with tls = require that have the agents' token, but not a certificate of the
// mesh's authority. tests/control/tls_nodes_test.cc has what strangers can say to the coordinator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/tls_fixture.h"

namespace tutti {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr int kOutsiderJoinMs = 8'000;

class TlsOutsiders : public TlsMesh {
 protected:
  // A job of one rank on host a and one on the host of this agent; each rank's error, if any.
  std::string run_with(const std::string& name, const std::string& job, int timeout_ms) {
    const auto body = [timeout_ms](const RankContext& context) {
      Group group = context.join(timeout_ms);
      check_works(group);
    };
    std::vector<Trainer> trainers;
    trainers.emplace_back(RankContext{job, mesh_.host(0).socket, 0, 2}, body);
    trainers.emplace_back(RankContext{job, files_.root + "/home-" + name + "/sock", 1, 2}, body);
    return TestMesh::wait(trainers);
  }
};

// It has the agents' token, and trusts the mesh's authority, which has not issued its certificate.
TEST_F(TlsOutsiders, AHostOfAnotherAuthorityRunsNoRankUntilItHasTheRightCertificate) {
  const TestCa stranger("stranger");
  const std::string both = files_.ca.certificate() + stranger.certificate();
  const std::string log = start_agent("e", files_.mount("e", "DNS:e", stranger, both));
  ASSERT_THAT(await_text(log, "serves"), HasSubstr("serves"));
  const std::string reports = run_with("e", "job", kOutsiderJoinMs);
  EXPECT_THAT(reports, HasSubstr("rank 0: DEADLINE_EXCEEDED: job \"job\": rank 1 of 2 has not "
                                 "joined"));
  EXPECT_THAT(reports, HasSubstr("rank 1: UNAVAILABLE: rank 1 of job \"job\" cannot join: no agent "
                                 "of host e is registered"));
  files_.mount("e", "DNS:e", files_.ca, both);
  EXPECT_EQ(run_with("e", "job", kCallMs * 6), "") << text_of(log) << mesh_.log_tails();
}

// What its agent was allowed before does not count when it is no longer.
TEST_F(TlsOutsiders, AHostThatLosesItsCertificateLosesItsPartInJobs) {
  const TestCa stranger("stranger");
  const std::string both = files_.ca.certificate() + stranger.certificate();
  const std::string mounted = files_.mount("e", "DNS:e", files_.ca, both);
  ASSERT_THAT(await_text(start_agent("e", mounted), "serves"), HasSubstr("serves"));
  EXPECT_EQ(run_with("e", "before", kCallMs * 6), "");
  kill_agent("e");
  files_.mount("e", "DNS:e", stranger, both);
  ASSERT_THAT(await_text(start_agent("e", mounted), "serves"), HasSubstr("serves"));
  EXPECT_THAT(run_with("e", "after", kOutsiderJoinMs),
              HasSubstr("no agent of host e is registered"));
}

}  // namespace
}  // namespace tutti
