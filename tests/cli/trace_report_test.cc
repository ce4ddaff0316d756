// The outputs of `tutti trace`: a table, JSON, trace events and torch's dumps.
#include "daemon/cli/trace_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>

#include "daemon/diagnosis/diagnosis.h"
#include "proto/board.h"
#include "proto/tutti_types.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kStartNs = 1'700'000'000'000'000'000;

v1::TracedOperation call(uint64_t number, uint64_t begun_us, int64_t duration_us = -1,
                         uint32_t code = TUTTI_OK) {
  v1::TracedOperation operation;
  operation.set_index(number);
  operation.set_number(number);
  operation.set_collective(TUTTI_ALL_REDUCE);
  operation.set_dtype(TUTTI_F32);
  operation.set_count(1000);
  operation.set_bytes(4000);
  operation.set_begun_ns(kStartNs + begun_us * 1'000);
  if (duration_us < 0) return operation;
  operation.set_ended(true);
  operation.set_duration_ns(static_cast<uint64_t>(duration_us) * 1'000);
  operation.set_code(code);
  return operation;
}

void add_rank(v1::HostTrace& host, uint32_t rank, const std::vector<v1::TracedOperation>& calls) {
  v1::RankTrace& own = *host.add_ranks();
  own.set_rank(rank);
  own.set_recorded(calls.size());
  for (const v1::TracedOperation& operation : calls) *own.add_operations() = operation;
  host.mutable_groups(0)->add_ranks(rank);
}

v1::HostTrace& add_host(v1::TraceReply& reply, const std::string& name) {
  v1::HostTrace& host = *reply.add_hosts();
  host.set_host(name);
  host.set_job("demo");
  host.set_epoch(1);
  host.set_world_size(3);
  host.add_groups()->set_size(3);
  return host;
}

// Ranks 0 and 1 on host a, 2 on b. Call 0 is done, 1 disagrees, and 2 waits for rank 2.
v1::TraceReply example() {
  v1::TraceReply reply;
  v1::HostTrace& a = add_host(reply, "a");
  v1::HostTrace& b = add_host(reply, "b");
  v1::TracedOperation other = call(1, 500, 30, TUTTI_FAILED_PRECONDITION);
  other.set_count(999);
  add_rank(a, 0, {call(0, 0, 200), call(1, 500, 40, TUTTI_FAILED_PRECONDITION), call(2, 900)});
  add_rank(a, 1, {call(0, 50, 145), call(1, 501, 40, TUTTI_FAILED_PRECONDITION), call(2, 910)});
  add_rank(b, 2, {call(0, 75, 120), other});
  v1::TracedOperation global = call(0, 60, 100);
  global.set_local_strategy(TUTTI_RING);
  global.set_global_strategy(TUTTI_TREE | 4 << 4);
  *a.add_among_hosts() = global;
  return reply;
}

TEST(TraceReport, PutsTogetherWhatRanksAndHostsRecorded) {
  const v1::TraceReply reply = example();
  const auto operations = operations_of(reply);
  ASSERT_EQ(operations.size(), 3u);
  const TracedAcrossRanks& done = operations[0];
  EXPECT_EQ(done.ranks.size(), 3u);
  EXPECT_EQ(done.hosts.size(), 1u);
  EXPECT_EQ(done.last()->rank, 2u);
  EXPECT_EQ(done.last()->late_ns, 75'000u);
  EXPECT_EQ(done.duration_ns(), 200'000u);
  EXPECT_EQ(done.code(), uint32_t{TUTTI_OK});
  EXPECT_FALSE(done.disagrees());
  EXPECT_TRUE(operations[1].disagrees());
  EXPECT_EQ(operations[1].code(), uint32_t{TUTTI_FAILED_PRECONDITION});
  EXPECT_FALSE(operations[2].ended());
  EXPECT_FALSE(operations[2].duration_ns().has_value());
  EXPECT_THAT(operations[2].missing, ElementsAre(2));
}

TEST(TraceReport, StrategiesAndDevicesMayDisagree) {
  for (const bool device : {false, true}) {
    v1::TraceReply reply = example();
    v1::TracedOperation& own = *reply.mutable_hosts(1)->mutable_ranks(0)->mutable_operations(0);
    if (device)
      own.set_flags(kRequestDevice);
    else
      own.set_global_strategy(TUTTI_RING);
    EXPECT_TRUE(operations_of(reply)[0].disagrees()) << device;
    for (v1::HostTrace& host : *reply.mutable_hosts())
      for (v1::RankTrace& rank : *host.mutable_ranks())
        rank.mutable_operations(0)->set_collective(TUTTI_BARRIER);
    EXPECT_FALSE(operations_of(reply)[0].disagrees()) << "a barrier has neither";
  }
}

TEST(TraceReport, ARankWhoseOlderCallsAreNotShownIsNotMissing) {
  v1::TraceReply reply = example();
  v1::RankTrace& late = *reply.mutable_hosts(1)->mutable_ranks(0);
  late.clear_operations();
  late.set_recorded(2);
  for (const TracedAcrossRanks& operation : operations_of(reply))
    EXPECT_THAT(operation.missing, ElementsAre()) << "nothing is known of it";
  late.set_recorded(0);
  for (const TracedAcrossRanks& operation : operations_of(reply))
    EXPECT_THAT(operation.missing, ElementsAre(2)) << "it never called";
}

TEST(TraceReport, TheTableHasALineForEachOperation) {
  setenv("TZ", "UTC", 1);
  const std::string text = trace_text(example(), 0);
  EXPECT_THAT(text, HasSubstr("22:13:20.000000"));
  const auto line = [&](int index) {
    std::string rest = text;
    for (int i = 0; i < index; ++i) rest = rest.substr(rest.find('\n') + 1);
    return std::regex_replace(rest.substr(0, rest.find('\n')), std::regex(" +"), " ");
  };
  EXPECT_EQ(line(0),
            "TIME EPOCH GROUP CALL COLLECTIVE DTYPE COUNT STRATEGY LAST LATE_US HOSTS_US US "
            "OUTCOME");
  EXPECT_EQ(line(1), "22:13:20.000000 1 0 0 all_reduce sum f32 1000 ring,tree:4 2 75 100 200 OK");
  EXPECT_EQ(line(2),
            "22:13:20.000500 1 0 1 all_reduce sum f32 1000 auto 1 1 - 41 FAILED_PRECONDITION "
            "(ranks disagree)");
  EXPECT_EQ(line(3), "22:13:20.000900 1 0 2 all_reduce sum f32 1000 auto 1 10 - - waits for 2");
  EXPECT_THAT(trace_text(example(), 1), Not(HasSubstr("disagree")));
}

// A refused call has no tensor, so it differs from the others without a disagreement.
TEST(TraceReport, ARefusedCallIsNoDisagreement) {
  v1::TraceReply reply = example();
  v1::TracedOperation& refused = *reply.mutable_hosts(1)->mutable_ranks(0)->mutable_operations(1);
  refused.set_flags(kRequestRefused);
  EXPECT_THAT(trace_text(reply, 0),
              AllOf(HasSubstr("FAILED_PRECONDITION"), Not(HasSubstr("disagree"))));
}

TEST(TraceReport, SaysWhatIsMissing) {
  v1::TraceReply reply = example();
  reply.mutable_hosts(1)->set_cut(true);
  reply.add_missing()->set_host("c");
  reply.mutable_missing(0)->set_state("unreachable: no route");
  EXPECT_THAT(trace_text(reply, 0), HasSubstr("host b has more than a reply may hold"));
  EXPECT_THAT(trace_text(reply, 0), HasSubstr("host c is missing: unreachable: no route"));
  EXPECT_THAT(trace_json(reply, 0), HasSubstr("\"state\":\"unreachable: no route\""));
  reply.mutable_missing(0)->clear_host();
  EXPECT_THAT(trace_text(reply, 0), HasSubstr("\nevery other host is missing: unreachable"));
}

TEST(TraceReport, JsonHasEveryRanksPart) {
  const std::string json = trace_json(example(), 0);
  EXPECT_THAT(json, HasSubstr("{\"host\":\"a\",\"job\":\"demo\",\"uid\":0,\"epoch\":1,"
                              "\"world_size\":3,\"ended\":false,\"cut\":false}"));
  EXPECT_THAT(json, HasSubstr("{\"rank\":2,\"host\":\"b\",\"count\":999,\"begun_ns\":"
                              "1700000000000500000,\"ended\":true,\"duration_ns\":30000,"
                              "\"code\":\"FAILED_PRECONDITION\"}"));
  EXPECT_THAT(json, HasSubstr("\"waits_for\":[2]"));
}

// One event of the chrome trace, cut out of its line.
struct Event {
  std::string phase;
  double ts = 0;
  double dur = 0;
};

std::map<std::pair<int, int>, std::vector<Event>> tracks_of(const std::string& json) {
  static const std::regex kEvent(
      "\\{\"ph\":\"([XB])\",\"cat\":\"operation\",\"name\":\"[^\"]*\",\"pid\":(\\d+),\"tid\":(\\d+)"
      ","
      "\"ts\":([0-9.]+)(?:,\"dur\":([0-9.]+))?");
  std::map<std::pair<int, int>, std::vector<Event>> tracks;
  for (std::sregex_iterator at(json.begin(), json.end(), kEvent), end; at != end; ++at) {
    const std::smatch& match = *at;
    tracks[{std::stoi(match[2]), std::stoi(match[3])}].push_back(
        {match[1], std::stod(match[4]), match[5].matched ? std::stod(match[5]) : 1e18});
  }
  return tracks;
}

TEST(TraceReport, EventsOfATrackNeverOverlap) {
  v1::TraceReply reply = example();
  add_rank(*reply.mutable_hosts(0), 5,
           {call(10, 100, 50), call(11, 110, 100), call(12, 120, 10), call(13, 160, 5),
            call(14, 170), call(15, 400, 1)});
  const auto tracks = tracks_of(trace_chrome(reply));
  size_t events = 0;
  for (const auto& [track, own] : tracks) {
    double end = 0;
    for (const Event& event : own) {
      EXPECT_GE(event.ts, end) << track.first << " " << track.second;
      end = event.ts + event.dur;
      ++events;
    }
  }
  EXPECT_EQ(events, 3u + 3u + 2u + 1u + 6u);
  // Among hosts, ranks 0 and 1, three lanes of rank 5; and rank 2 of the other host.
  EXPECT_EQ(tracks.size(), 1u + 2u + 3u + 1u);
  EXPECT_EQ((tracks.at({2, 1}).front().ts), 75.0);
}

TEST(TraceReport, TorchsDumpsAreOnesOfEachRank) {
  const auto dumps = trace_torch(example());
  ASSERT_EQ(dumps.size(), 3u);
  for (const auto& [rank, dump] : dumps) {
    EXPECT_EQ(dump.substr(0, 2), "\x80\x02");
    EXPECT_EQ(dump.back(), '.');
    EXPECT_THAT(dump, HasSubstr("c10d:all_reduce"));
    EXPECT_THAT(dump, HasSubstr("[0, 1, 2]"));
  }
  EXPECT_THAT(dumps.at(0), HasSubstr("scheduled"));
  EXPECT_THAT(dumps.at(2), HasSubstr("completed"));
}

// Another user's job of this name that has ended, of a higher epoch.
v1::TraceReply ended_job_of(uint32_t uid) {
  v1::TraceReply reply;
  v1::HostTrace& host = add_host(reply, "z");
  host.mutable_owner()->set_uid(uid);
  host.set_epoch(7);
  host.set_ended(true);
  v1::TracedOperation barrier = call(0, 5, 5);
  barrier.set_collective(TUTTI_BARRIER);
  add_rank(host, 0, {barrier});
  add_rank(host, 9, {barrier});
  return reply;
}

TEST(TraceReport, TorchsDumpsAreOfTheRunningJobAlone) {
  v1::TraceReply reply = ended_job_of(1001);
  reply.MergeFrom(example());
  EXPECT_EQ(owners_of(reply).size(), 1u);
  EXPECT_EQ(trace_torch(reply), trace_torch(example()));
}

TEST(TraceReport, TorchsDumpsOfOneEpochHaveNoOtherUsersRanks) {
  v1::TraceReply other = ended_job_of(1001);
  other.mutable_hosts(0)->set_epoch(1);
  v1::TraceReply reply = other;
  reply.MergeFrom(example());
  EXPECT_EQ(trace_torch(reply), trace_torch(example()));
}

TEST(TraceReport, OwnersOfSeveralRunningJobsAreNamed) {
  v1::TraceReply reply = ended_job_of(1001);
  reply.mutable_hosts(0)->set_ended(false);
  reply.mutable_hosts(0)->mutable_owner()->set_subject("alice");
  reply.MergeFrom(example());
  EXPECT_THAT(owners_of(reply), ElementsAre(JobOwner{0, ""}, JobOwner{1001, "alice"}));
  EXPECT_EQ(describe(JobOwner{1001, "alice"}), "user 1001 (alice)");
}

TEST(TraceReport, JsonNamesTheHostOfEachOwnersRank) {
  v1::TraceReply reply = ended_job_of(1001);
  reply.mutable_hosts(0)->set_epoch(1);
  reply.MergeFrom(example());
  EXPECT_THAT(trace_json(reply, 0), HasSubstr("{\"rank\":0,\"host\":\"z\","));
  EXPECT_THAT(trace_json(reply, 0), HasSubstr("{\"rank\":0,\"host\":\"a\","));
}

}  // namespace
}  // namespace tutti
