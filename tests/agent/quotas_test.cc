// What users may have of a node.
#include "daemon/agent/quotas.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr uint32_t kOwn = 500;
constexpr uint32_t kAnn = 1000;
constexpr uint32_t kBob = 1001;

struct AgentQuotas : testing::Test {
  AgentQuotas() {
    settings.host = "a";
    settings.jobs_max = 6;
    settings.user_jobs_max = 3;
    settings.user_ranks_max = 10;
    settings.user_memory_bytes = 3 << 20;
  }
  void count_jobs(uint32_t uid, int jobs) {
    for (int i = 0; i < jobs; ++i) quotas.count_job(uid, 1, 0);
  }
  void expect_refused(uint32_t uid, bool starts_job, const std::string& what) const {
    const Status status = quotas.check_join(uid, starts_job);
    EXPECT_EQ(status.code(), Code::resource_exhausted);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(status.message(), HasSubstr("host a"));
  }
  Settings settings;
  Quotas quotas{settings, kOwn};
};

TEST_F(AgentQuotas, OfJobsAreForEachUser) {
  count_jobs(kAnn, 2);
  EXPECT_TRUE(quotas.check_join(kAnn, true).ok());
  count_jobs(kAnn, 1);
  expect_refused(kAnn, true,
                 "user 1000 has 3 jobs on host a, as much as its setting user_jobs_max");
  EXPECT_TRUE(quotas.check_join(kAnn, false).ok());
  EXPECT_TRUE(quotas.check_join(kBob, true).ok());
}

TEST_F(AgentQuotas, OfTheNodeAreForAll) {
  count_jobs(kAnn, 3);
  count_jobs(kOwn, 2);
  EXPECT_TRUE(quotas.check_join(kBob, true).ok());
  count_jobs(0, 1);
  for (const uint32_t uid : {kBob, kOwn, uint32_t{0}})
    expect_refused(uid, true, "6 jobs, as many as its setting jobs_max");
  EXPECT_TRUE(quotas.check_join(kBob, false).ok());
}

TEST_F(AgentQuotas, OfRanksAreForEachUserOverAllJobs) {
  quotas.count_job(kAnn, 4, 0);
  quotas.count_job(kBob, 9, 0);
  quotas.count_job(kAnn, 5, 0);
  EXPECT_TRUE(quotas.check_join(kAnn, true).ok());
  quotas.count_job(kAnn, 1, 0);
  expect_refused(kAnn, false,
                 "user 1000 has 10 ranks on host a, as much as its setting user_ranks");
  EXPECT_TRUE(quotas.check_join(kBob, false).ok());
}

TEST_F(AgentQuotas, OfMemoryAreForEachUserOverAllJobs) {
  quotas.count_job(kAnn, 1, 2 << 20);
  quotas.count_job(kBob, 1, 2 << 20);
  EXPECT_TRUE(quotas.check_join(kAnn, false).ok());
  quotas.count_job(kAnn, 1, 1 << 20);
  expect_refused(kAnn, false,
                 "has segments of 3 MiB on host a, as much as its setting user_memory");
  EXPECT_TRUE(quotas.check_join(kBob, false).ok());
}

TEST_F(AgentQuotas, AreNotForRootNorForTheAgentsUser) {
  for (const uint32_t uid : {kOwn, uint32_t{0}}) {
    quotas.count_job(uid, 99, 9 << 20);
    EXPECT_TRUE(quotas.check_join(uid, true).ok());
  }
}

TEST_F(AgentQuotas, AreReportedBesideTheirLimits) {
  quotas.count_job(kAnn, 2, 5);
  quotas.count_job(kAnn, 3, 7);
  quotas.count_job(0, 1, 1);
  v1::AgentReport report;
  quotas.report(report);
  ASSERT_EQ(report.users_size(), 2);
  EXPECT_EQ(report.users(0).uid(), 0u);
  EXPECT_EQ(report.users(0).jobs_max() + report.users(0).ranks_max(), 0u);
  const v1::UserReport& ann = report.users(1);
  EXPECT_EQ(ann.uid(), kAnn);
  EXPECT_EQ(ann.jobs(), 2u);
  EXPECT_EQ(ann.jobs_max(), 3u);
  EXPECT_EQ(ann.ranks(), 5u);
  EXPECT_EQ(ann.ranks_max(), 10u);
  EXPECT_EQ(ann.memory_bytes(), 12u);
  EXPECT_EQ(ann.memory_bytes_max(), uint64_t{3} << 20);
}

}  // namespace
}  // namespace tutti
