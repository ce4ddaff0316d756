// Verdicts on links, and on the pace of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/diagnosis/diagnosis.h"
#include "tests/diagnosis/made_up_job.h"

namespace tutti::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMsUs = 1'000;

// Hosts a and b, whose workers have links to each other and to c, and a host c.
class LinkDiagnosis : public ::testing::Test {
 protected:
  LinkDiagnosis() {
    job_.all_run(50, 100 * kMillisecond, 50 * kMillisecond);
    v1::AgentReport& agent = *job_.status.add_agents();
    agent = job_.status.agents(0);
    agent.set_host("c");
    job_.worker(2).clear_ranks();
  }
  // In the last five seconds.
  v1::LinkPace& add(int from, const std::string& to, uint64_t mib, uint64_t busy_ms,
                    uint64_t usual_mib = 0) {
    v1::LinkPace& pace = *job_.worker(from).add_links();
    pace.set_to(to);
    pace.set_window_us(5'000 * kMsUs);
    pace.set_acked_bytes(mib * kMiB);
    pace.set_busy_us(busy_ms * kMsUs);
    pace.set_usual_bytes_per_second(usual_mib * kMiB);
    return pace;
  }
  Verdict verdict() const { return job_.verdict().verdict; }

  Job job_;
};

TEST_F(LinkDiagnosis, ALinkThatWasFasterIsNamed) {
  v1::LinkPace& slow = add(0, "b", 6, 5'000, 430);
  slow.set_retransmits(28);
  slow.set_round_trip_us(68'000);
  add(1, "a", 6, 0, 430);
  const Diagnosis found = job_.verdict();
  EXPECT_EQ(found.verdict, Verdict::slow_link);
  EXPECT_EQ(found.sentence,
            "link a->b moves 1.20 MiB/s while it has something to send, usually 430 MiB/s");
  EXPECT_THAT(found.evidence,
              ElementsAre("link a->b: 6 MiB in 5 s of the last 5 s, usually 430 MiB/s; 28 segments "
                          "sent again, round trip 68 ms"));
}

TEST_F(LinkDiagnosis, AFallOfLessThanToAQuarterIsNone) {
  add(0, "b", 500, 5'000, 390);
  EXPECT_EQ(verdict(), Verdict::running);
  add(0, "c", 500, 5'000, 401);
  EXPECT_EQ(verdict(), Verdict::slow_link);
}

TEST_F(LinkDiagnosis, ALinkThatIsHardlyBusyIsNotJudged) {
  add(0, "b", 1, 240, 430);
  EXPECT_EQ(verdict(), Verdict::running);
}

TEST_F(LinkDiagnosis, NeitherIsOneWhoseTimeRoundTripsExplain) {
  add(0, "b", 1, 5'000, 430).set_latency_us(4'900 * kMsUs);
  EXPECT_EQ(verdict(), Verdict::running);
}

TEST_F(LinkDiagnosis, WhatWorkersWaitForProcessorsIsNoTimeOfTheNetwork) {
  v1::LinkPace& slow = add(0, "b", 60, 4'000, 100);
  v1::LinkPace& other_end = add(1, "a", 60, 0, 100);
  slow.set_waited_us(1'500 * kMsUs);
  other_end.set_waited_us(1'400 * kMsUs);
  EXPECT_EQ(verdict(), Verdict::slow_link);  // 60 MiB in 2.5 s.
  slow.set_waited_us(1'700 * kMsUs);
  EXPECT_EQ(verdict(), Verdict::running);
  slow.set_waited_us(0);
  other_end.set_waited_us(1'700 * kMsUs);
  EXPECT_EQ(verdict(), Verdict::running);
}

TEST_F(LinkDiagnosis, NeitherIsOneOfAWorkerThatDoesNotAnswer) {
  add(0, "b", 6, 5'000, 430);
  job_.worker(0).set_silent(true);
  EXPECT_EQ(verdict(), Verdict::running);
}

TEST_F(LinkDiagnosis, ALinkThatWasNeverFastIsComparedWithOthersThatMoveAsMuch) {
  add(0, "b", 50, 5'000, 10);
  add(0, "c", 50, 400, 119);
  EXPECT_EQ(verdict(), Verdict::running) << "one other is no measure";
  add(1, "c", 50, 480, 100);
  const Diagnosis found = job_.verdict();
  EXPECT_EQ(found.verdict, Verdict::slow_link);
  EXPECT_EQ(found.sentence,
            "link a->b moves 10 MiB/s while it has something to send, others 100 MiB/s");
}

TEST_F(LinkDiagnosis, OthersThatMoveLessAreNoMeasure) {
  add(0, "b", 50, 5'000, 10);
  for (const int from : {1, 2}) add(from, "a", 30, 0);
  EXPECT_EQ(verdict(), Verdict::running);
}

TEST_F(LinkDiagnosis, ASlowHostSlowsAllItsLinks) {
  for (const auto& [from, to] : {std::pair(0, "b"), {1, "a"}}) add(from, to, 50, 480);
  for (const auto& [from, to] : {std::pair(0, "c"), {1, "c"}, {2, "a"}, {2, "b"}})
    add(from, to, 50, 5'000);
  const Diagnosis found = job_.verdict();
  EXPECT_EQ(found.verdict, Verdict::slow_link);
  EXPECT_EQ(found.evidence.size(), 4u);
}

TEST(PaceOfAJob, IsThatOfTheLastSeconds) {
  Job job;
  job.all_run(900, 20 * kMillisecond, 10 * kMillisecond);
  EXPECT_EQ(job.verdict().sentence, "all 4 ranks have joined and run 50 operations a second");
}

TEST(PaceOfAJob, AFallIsReportedAndIsNoFault) {
  Job job;
  for (int rank = 0; rank < 4; ++rank) {
    for (uint64_t i = 0; i < 900; ++i)
      job.ended(rank, i, 8 * kSecond + (899 - i) * 20 * kMillisecond, kMillisecond);
    for (uint64_t i = 0; i < 8; ++i)
      job.ended(rank, 900 + i, kSecond / 2 + (7 - i) * kSecond, kMillisecond);
  }
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::running);
  EXPECT_THAT(found.sentence,
              StartsWith("all 4 ranks have joined and run 1 operations a second, "));
  EXPECT_THAT(found.sentence, ::testing::EndsWith(" before"));
}

}  // namespace
}  // namespace tutti::testing
