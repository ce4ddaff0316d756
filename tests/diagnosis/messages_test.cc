// The verdict of `tutti explain` where ranks exchange messages, or wait for ranks that wait
// themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/group_number.h"
#include "daemon/diagnosis/job_view.h"
#include "tests/diagnosis/made_up_job.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The rank is in a message from one rank to another, this long.
v1::TracedOperation& in_message(Job& job, int rank, int from, int to, uint64_t ago_ns) {
  const uint32_t group = channel_number({from, to}, 1);
  job.add_group(rank / 2, group, {static_cast<uint32_t>(rank)}, 2);
  v1::TracedOperation& call = job.call(rank, 0, ago_ns);
  call.set_group(group);
  call.set_collective(static_cast<uint32_t>(Collective::broadcast));
  return call;
}

// Both workers end, and rank 1 has gone for this reason; 0: it left.
void end_with_cause_of_rank_1(Job& job, int code) {
  for (v1::AgentReport& agent : *job.status.mutable_agents()) {
    v1::EndedJob& ended = *agent.add_ended();
    ended.set_time_ms(kNow / kMillisecond);
    *ended.mutable_last() = agent.workers(0);
    ended.mutable_last()->clear_ranks();
    v1::Departures& gone = *ended.mutable_last()->mutable_departures();
    gone.set_epoch(1);
    v1::Departure& departure = *gone.add_first();
    departure.set_rank(1);
    departure.set_host("a");
    departure.mutable_cause()->set_code(code);
    agent.clear_workers();
  }
}

// Each may have asked long before it needs the message.
TEST(MessageDiagnosis, WhoHasAskedForAMessageIsNotSaidToWait) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  in_message(job, 0, 3, 0, 13 * kSecond);
  in_message(job, 3, 0, 3, 12 * kSecond);
  in_message(job, 1, 1, 2, 12 * kSecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::idle);
  EXPECT_EQ(found.sentence,
            "all 4 ranks have joined; no rank has called anything for 12 s; rank 0 asked rank 3 "
            "for a message 13 s ago, rank 1 offered rank 2 a message 12 s ago");
  EXPECT_THAT(found.evidence, ElementsAre("rank 3 asked rank 0 for a message 12 s ago",
                                          "the last operation was 12 s ago"));
}

// Nor is the one that they are to be exchanged with, where its host says nothing.
TEST(MessageDiagnosis, NobodyIsAccusedWhereOneEndDoesNotTell) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  in_message(job, 1, 2, 1, 12 * kSecond);
  job.trace.mutable_hosts()->DeleteSubrange(1, 1);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::idle);
  EXPECT_THAT(found.sentence, HasSubstr("; no rank is known to have called anything for 12 s; rank "
                                        "1 asked rank 2 for a message 12 s ago"));
}

TEST(MessageDiagnosis, MessagesOfASubgroupAccuseNobodyToo) {
  for (const bool is_parent_known : {true, false}) {
    Job job;
    job.all_run(5, kMillisecond, 14 * kSecond);
    const uint32_t channel = channel_number({0, 1}, 78);
    if (is_parent_known) job.add_group(0, 77, {0, 1}, 3);
    job.add_group(0, channel, {0, 1}, 2);
    v1::TracedOperation& call = job.call(1, 2, 12 * kSecond);
    call.set_group(channel);
    call.set_collective(static_cast<uint32_t>(Collective::broadcast));
    const Diagnosis found = job.verdict();
    EXPECT_EQ(found.verdict, Verdict::idle);
    EXPECT_THAT(found.sentence,
                HasSubstr(is_parent_known ? "; rank 1 asked rank 0 for a message 12 s ago"
                                          : "; rank 1 called broadcast #2 of group " +
                                                std::to_string(channel) + " 12 s ago"));
  }
}

// The program has caught it, and computes.
TEST(MessageDiagnosis, ASendThatTimedOutIsNobodysFault) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  v1::TracedOperation& send = in_message(job, 1, 1, 2, 12 * kSecond);
  send.set_ended(true);
  send.set_duration_ns(5 * kSecond);
  send.set_code(static_cast<uint32_t>(Code::deadline_exceeded));
  EXPECT_EQ(job.verdict().verdict, Verdict::idle);
  end_with_cause_of_rank_1(job, 0);
  EXPECT_EQ(job.verdict().verdict, Verdict::operation_failed);
  EXPECT_THAT(job.verdict().sentence, Not(HasSubstr("took no part")));
}

// The message may be why; that it has not called the operation is sure.
TEST(MessageDiagnosis, WhoIsBehindMayHaveAskedForAMessage) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  in_message(job, 0, 1, 0, 13 * kSecond);
  for (const int rank : {1, 2, 3}) job.call(rank, 5, 12 * kSecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::behind);
  EXPECT_EQ(found.sentence, "rank 0 (host a, pid 100) is 1 operation behind, last seen 13 s ago");
  EXPECT_THAT(found.evidence, Contains("rank 0 asked rank 1 for a message 13 s ago"));
}

TEST(MessageDiagnosis, AMomentInReceiveIsNothing) {
  Job job;
  job.all_run(50, 10 * kMillisecond, 950 * kMillisecond);
  in_message(job, 1, 2, 1, 900 * kMillisecond);
  EXPECT_EQ(job.verdict().verdict, Verdict::running);
}

// Groups and ranks that a recorder made up.
TEST(MessageDiagnosis, NotAllMadeUpMessagesAreLookedAt) {
  Job job;
  for (int host : {0, 1}) job.traced(host).set_world_size(UINT16_MAX);
  for (uint32_t rank = 4; rank < 4'000; ++rank) job.worker(0).add_ranks()->set_rank(rank);
  for (v1::RankReport& rank : *job.worker(0).mutable_ranks()) {
    rank.set_epoch(1);
    rank.set_pid(7);
  }
  for (uint32_t group = 1; group < 1'000; ++group) {
    job.add_group(0, group, {0}, group % 2 == 0 ? 2 : 3);
    v1::TracedOperation& call = job.call(0, 0, 12 * kSecond);
    call.set_group(group);
    call.set_collective(static_cast<uint32_t>(Collective::broadcast));
  }
  JobOwner owner;
  const JobView view = view_job("demo", owner, job.status, job.trace);
  EXPECT_EQ(open_messages(view).size(), 64U);
}

// Its host has begun to move what it has asked for. A program may leave without it.
TEST(MessageDiagnosis, AMessageThatIsStillAskedForDoesNotCutAJobShort) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  const uint32_t group = in_message(job, 1, 2, 1, 12 * kSecond).group();
  job.among_hosts(0, 0, 12 * kSecond).set_group(group);
  end_with_cause_of_rank_1(job, 0);
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
}

TEST(MessageDiagnosis, AFailedMessageIsNamedByItsRanks) {
  for (const int rank : {1, 2}) {
    Job job;
    job.all_run(5, kMillisecond, 14 * kSecond);
    v1::TracedOperation& failed = in_message(job, rank, 1, 2, 10 * kSecond);
    failed.set_ended(true);
    failed.set_duration_ns(kSecond);
    failed.set_code(static_cast<uint32_t>(Code::unavailable));
    job.worker(1).mutable_departures()->set_epoch(1);
    job.worker(1).mutable_departures()->add_ranks(3);
    EXPECT_EQ(job.verdict().sentence,
              std::string("rank 3 (host b, pid 103) is gone, and ") +
                  (rank == 1 ? "send to rank 2 of rank 1" : "recv from rank 1 of rank 2") +
                  ", which needed it, failed with UNAVAILABLE");
  }
}

// Rank 0 waits for 1, which waits for 2. That one has an operation of its own under way, which all
// of its ranks have called.
TEST(MessageDiagnosis, TheLastOfAChainIsNamedThoughDataOfItIsUnderWay) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  const auto in_group = [&](uint32_t group, int rank, uint64_t ago) {
    job.call(rank, 0, ago).set_group(group);
  };
  job.add_group(0, 7, {0, 1}, 2);
  for (const int host : {0, 1}) job.add_group(host, 8, {1U + host}, 2);
  job.add_group(1, 9, {2, 3}, 2);
  in_group(7, 0, 12 * kSecond);
  in_group(8, 1, 12 * kSecond);
  for (const int rank : {2, 3}) in_group(9, rank, 13 * kSecond);
  EXPECT_EQ(job.verdict().sentence,
            "rank 2 (host b, pid 102) is 1 operation behind, last seen 13 s ago");
}

}  // namespace
}  // namespace tutti::testing
