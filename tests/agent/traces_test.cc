// Which flight recorders an agent keeps, and which of them are the newest.
#include "daemon/agent/traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/agent/trace_report.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::Pass pass_of(const std::string& job, uint32_t uid = 1'000, const std::string& subject = "") {
  v1::Pass pass;
  pass.set_job(job);
  pass.set_uid(uid);
  pass.set_subject(subject);
  return pass;
}

// Memory of which so many bytes are in use.
Fd memory_of(size_t bytes = 0) {
  Fd memory(memfd_create("recorder", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(memory.get(), std::string(bytes, 'x').data(), bytes, 0), ssize_t(bytes));
  return memory;
}

struct AgentTraces : testing::Test {
  std::vector<uint32_t> kept(const std::string& job) const {
    std::vector<uint32_t> epochs;
    for (const KeptRecorder& one : traces.find(job)) epochs.push_back(one.epoch);
    return epochs;
  }
  std::vector<uint32_t> newest() const {
    std::vector<uint32_t> epochs;
    for (const KeptRecorder& one : newest_of(traces.find(""))) epochs.push_back(one.epoch);
    return epochs;
  }

  void run_and_end(const v1::Pass& pass, size_t bytes) {
    traces.add(pass, 1, memory_of(bytes));
    traces.end(pass);
  }
  std::vector<std::string> jobs() const {
    std::vector<std::string> names;
    for (const KeptRecorder& one : traces.find("")) names.push_back(one.pass.job());
    return names;
  }

  static constexpr uint64_t kEndedBytesMax = 1 << 20;
  Loop loop;
  Settings settings;
  Traces traces{loop, settings, kEndedBytesMax};
};

TEST_F(AgentTraces, TheTwoNewestEpochsOfAJobAreKept) {
  for (const uint32_t epoch : {5, 6, 7}) traces.add(pass_of("demo"), epoch, memory_of());
  EXPECT_THAT(kept("demo"), ElementsAre(6, 7));
  EXPECT_THAT(newest(), ElementsAre(7));
}

// The coordinator has lost its state.
TEST_F(AgentTraces, AJobWhoseEpochsBeginAgainIsNotTakenForItsEarlierRun) {
  traces.add(pass_of("demo"), 6, memory_of());
  traces.add(pass_of("demo"), 7, memory_of());
  traces.end(pass_of("demo"));
  EXPECT_THAT(newest(), IsEmpty());
  traces.add(pass_of("demo"), 1, memory_of());
  EXPECT_THAT(kept("demo"), ElementsAre(1));
  EXPECT_THAT(newest(), ElementsAre(1));
}

TEST_F(AgentTraces, WhatAnEarlierWorkerWroteDoesNotRunAgain) {
  traces.add(pass_of("demo"), 6, memory_of());
  traces.end(pass_of("demo"));
  traces.add(pass_of("demo"), 7, memory_of());
  const std::vector<KeptRecorder> found = traces.find("demo");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].ended);
  EXPECT_FALSE(found[1].ended);
}

TEST_F(AgentTraces, JobsOfSeveralSubjectsAreSeveral) {
  traces.add(pass_of("demo", 1'000, "ann"), 3, memory_of());
  traces.add(pass_of("demo", 1'000, "bob"), 4, memory_of());
  EXPECT_THAT(newest(), ElementsAre(3, 4));
}

TEST_F(AgentTraces, EndedJobsAreKeptUpToABoundOfBytes) {
  run_and_end(pass_of("theirs", 2'000), 256 << 10);
  for (const char* job : {"a", "b", "c"}) run_and_end(pass_of(job), 300 << 10);
  EXPECT_THAT(jobs(), ElementsAre("b", "c", "theirs")) << "the oldest of who has the most";
  run_and_end(pass_of("huge"), kEndedBytesMax + (4 << 10));
  EXPECT_THAT(jobs(), ElementsAre("theirs"));
}

TEST_F(AgentTraces, RunningJobsAreKeptWhateverTheyTake) {
  for (const char* job : {"a", "b", "c"}) traces.add(pass_of(job), 1, memory_of(kEndedBytesMax));
  run_and_end(pass_of("d"), 4 << 10);
  EXPECT_THAT(jobs(), ElementsAre("a", "b", "c", "d"));
}

// Over the network all are the same user.
TEST_F(AgentTraces, OfOneSubjectDoesNotDriveOutThoseOfAnother) {
  settings.trace_jobs = 2;
  run_and_end(pass_of("theirs", 0, "ann"), 0);
  for (const char* job : {"x", "y", "z"}) run_and_end(pass_of(job, 0, "bob"), 0);
  EXPECT_THAT(jobs(), ElementsAre("theirs", "z"));
}

void add_host(v1::TraceReply& reply, const std::string& host, const std::string& subject,
              uint32_t epoch, bool ended) {
  v1::HostTrace& trace = *reply.add_hosts();
  trace.set_host(host);
  trace.set_job("demo");
  trace.mutable_owner()->set_subject(subject);
  trace.set_epoch(epoch);
  trace.set_ended(ended);
}

std::vector<std::string> newest_in(v1::TraceReply reply) {
  keep_newest_epochs(reply);
  std::vector<std::string> left;
  for (const v1::HostTrace& one : reply.hosts())
    left.push_back(one.host() + std::to_string(one.epoch()));
  return left;
}

TEST(AgentNewestEpochs, AreThoseThatRunBeforeThoseWithTheLargestNumber) {
  v1::TraceReply reply;
  add_host(reply, "a", "", 1, false);
  add_host(reply, "b", "", 7, true);
  add_host(reply, "c", "", 1, true);
  EXPECT_THAT(newest_in(reply), ElementsAre("a1", "c1"));
}

TEST(AgentNewestEpochs, AreOfEachSubject) {
  v1::TraceReply reply;
  add_host(reply, "a", "ann", 2, true);
  add_host(reply, "a", "ann", 3, true);
  add_host(reply, "a", "bob", 1, true);
  EXPECT_THAT(newest_in(reply), ElementsAre("a3", "a1"));
}

}  // namespace
}  // namespace tutti
