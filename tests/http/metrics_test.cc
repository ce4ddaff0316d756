// The text that Prometheus reads.
#include "daemon/http/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http/fixture.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kDemo = R"(host="a",job_name="demo",uid="1000",subject="")";

TEST(HttpMetrics, AreThoseOfTheReport) {
  const std::string text = metrics_text(example_node(), {}, {.named = true});
  const std::string demo = kDemo;
  for (const std::string& line : std::vector<std::string>{
           R"(tutti_build_info{host="a",version="1.2.3",protocol="0"} 1)",
           R"(tutti_agent_serving{host="a"} 1)", R"(tutti_agent_uptime_seconds{host="a"} 1.5)",
           R"(tutti_agent_descriptors{host="a"} 20)",
           R"(tutti_agent_descriptors_max{host="a"} 1024)", R"(tutti_jobs{host="a"} 1)",
           R"(tutti_segments{host="a"} 2)", R"(tutti_segment_bytes{host="a"} 8192)",
           R"(tutti_refused_callers_total{host="a",door="socket",code="UNAUTHENTICATED"} 3)",
           R"(tutti_user_ranks{host="a",uid="1000"} 2)",
           "tutti_job_info{" + demo + R"(,state="failed",strategy="ring"} 1)",
           "tutti_job_operations_total{" + demo + "} 20",
           "tutti_job_failures_total{" + demo + "} 1", "tutti_job_bytes_total{" + demo + "} 4096",
           "tutti_job_ranks_gone{" + demo + "} 1",
           "tutti_path_bytes_per_second{" + demo + R"(,from="a",to="b"} 1000000000)",
           "tutti_path_latency_seconds{" + demo + R"(,from="a",to="b"} 5e-05)",
           "tutti_operations_total{" + demo + R"(,rank="1"} 11)",
           "tutti_operation_bytes_total{" + demo + R"(,rank="0"} 512)"})
    EXPECT_THAT(text, HasSubstr("\n" + line + "\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tutti_operations_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tutti_job_epoch gauge\n"));
}

TEST(HttpMetrics, NameNoJobAndNoUserToThoseWhoMayNotSeeThem) {
  const std::string text = metrics_text(example_node(), {}, {.named = false});
  EXPECT_THAT(text, HasSubstr("\ntutti_jobs{host=\"a\"} 1\n"));
  for (const char* word : {"demo", "1000", "ring", "rank=", "tutti_user_"})
    EXPECT_THAT(text, Not(HasSubstr(word)));
}

// Ranks 0 and 1 of "demo"; rank 1 is the late one.
RecordedJob example_recorded() {
  RecordedJob job;
  job.pass.set_job("demo");
  job.pass.set_uid(1'000);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    trace::Rank& own = job.trace.ranks.emplace_back();
    own.rank = rank;
    for (uint64_t number = 0; number < 5; ++number)
      own.operations.push_back(
          {.number = number, .begun_ns = 1'000'000'000 * number + rank * number * 1'000'000});
  }
  trace::Rank& first = job.trace.ranks[0];
  trace::Totals& totals = first.totals[static_cast<size_t>(Collective::all_reduce)][1];
  totals.durations[0] = 3;  // Below 2,048 ns.
  totals.durations[2] = 4;
  totals.durations[kDurationBuckets - 1] = 1;
  totals.duration_ns = 2'500'000'000;
  totals.bytes = 8 * 5'000;
  first.ended[TUTTI_OK] = 8;
  first.ended[TUTTI_UNAVAILABLE] = 2;
  return job;
}

TEST(HttpMetrics, OfTheRecorderAreHistogramsFailuresAndLateness) {
  const std::vector<RecordedJob> recorded = {example_recorded()};
  const std::string text = metrics_text(example_node(), recorded, {.named = true});
  const std::string rank0 = std::string(kDemo) + R"(,rank="0")";
  const std::string sized = rank0 + R"(,collective="all_reduce",size="256KiB")";
  const std::string name = "tutti_operation_duration_seconds";
  for (const std::string& line :
       {name + "_count{" + sized + "} 8", name + "_sum{" + sized + "} 2.5",
        name + "_bucket{" + sized + ",le=\"2.048e-06\"} 3",
        name + "_bucket{" + sized + ",le=\"3.2768e-05\"} 7",
        name + "_bucket{" + sized + ",le=\"+Inf\"} 8",
        "tutti_collective_bytes_total{" + sized + "} 40000",
        "tutti_operation_failures_total{" + rank0 + ",code=\"UNAVAILABLE\"} 2",
        "tutti_rank_lateness_seconds{" + rank0 + "} 0",
        "tutti_rank_lateness_seconds{" + std::string(kDemo) + ",rank=\"1\"} 0.002"})
    EXPECT_THAT(text, HasSubstr("\n" + line + "\n"));
  EXPECT_THAT(text, Not(HasSubstr("broadcast"))) << "what was not called has no series";
  EXPECT_THAT(text, Not(HasSubstr("code=\"OK\"")));
  EXPECT_THAT(metrics_text(example_node(), recorded, {.named = false}), Not(HasSubstr(name)));
}

TEST(HttpMetrics, OfTheRecorderEndWithTheJob) {
  v1::AgentReport node = example_node();
  node.clear_workers();
  EXPECT_THAT(metrics_text(node, std::vector<RecordedJob>{example_recorded()}, {.named = true}),
              Not(HasSubstr("demo")));
}

TEST(HttpMetrics, OfEndedJobsAreGone) {
  v1::AgentReport node = example_node();
  node.clear_workers();
  EXPECT_THAT(metrics_text(node, {}, {.named = true}), Not(HasSubstr("demo")));
}

// Users choose the names of jobs.
TEST(HttpMetrics, HostileNamesStayWithinTheirLabel) {
  v1::AgentReport node = example_node();
  node.mutable_workers(0)->set_job("a\"} 7\ntutti_jobs{host=\"b\\");
  const std::string text = metrics_text(node, {}, {.named = true});
  EXPECT_THAT(text, HasSubstr(R"(job_name="a\"} 7\ntutti_jobs{host=\"b\\",uid=)"));
  EXPECT_THAT(text, Not(HasSubstr("\ntutti_jobs{host=\"b")));
}

TEST(HttpMetrics, ASeriesStandsOnce) {
  v1::AgentReport node = example_node();
  *node.add_workers() = node.workers(0);
  const std::string text = metrics_text(node, {}, {.named = true});
  const std::string line = "\ntutti_job_epoch{" + std::string(kDemo) + "}";
  const size_t first = text.find(line);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find(line, first + 1), std::string::npos);
}

// It has joined again, and its handle of the failed epoch is still open.
TEST(HttpMetrics, ARankWithTwoHandlesHasTheSeriesOfTheNewerOne) {
  v1::AgentReport node = example_node();
  v1::WorkerReport& job = *node.mutable_workers(0);
  job.mutable_ranks(1)->set_epoch(2);
  v1::RankReport& older = *job.add_ranks();
  older = job.ranks(1);
  older.set_epoch(1);
  older.set_operations(7);
  const std::string text = metrics_text(node, {}, {.named = true});
  EXPECT_THAT(text,
              HasSubstr("tutti_operations_total{" + std::string(kDemo) + ",rank=\"1\"} 11\n"));
  EXPECT_THAT(text, Not(HasSubstr(",rank=\"1\"} 7\n")));
  EXPECT_THAT(text, HasSubstr("tutti_job_ranks{" + std::string(kDemo) + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("tutti_segments{host=\"a\"} 3\n"));
}

// One node has thousands of series else, where ranks, collectives and sizes multiply.
TEST(HttpMetrics, WithoutRanksAreSumsOverThem) {
  RecordedJob job = example_recorded();
  job.trace.ranks[1].totals = job.trace.ranks[0].totals;
  const std::vector<RecordedJob> recorded = {job};
  const auto count = [&](bool per_rank) {
    const std::string text =
        metrics_text(example_node(), recorded, {.named = true, .per_rank = per_rank});
    const size_t at = text.find("tutti_operation_duration_seconds_count");
    EXPECT_EQ(text.find("rank=\"") != std::string::npos, per_rank);
    const std::string line = text.substr(at, text.find('\n', at) - at);
    return std::stoi(line.substr(line.rfind(' ')));
  };
  EXPECT_GT(count(true), 0);
  EXPECT_EQ(count(false), 2 * count(true));
}

TEST(HttpMetrics, BoundsOfBucketsAreShort) {
  const std::vector<RecordedJob> recorded = {example_recorded()};
  const std::string text = metrics_text(example_node(), recorded, {.named = true});
  EXPECT_THAT(text, HasSubstr("le=\"8.192e-06\""));
  EXPECT_THAT(text, HasSubstr("le=\"+Inf\""));
}

// A user chooses the name; a label must not be taken for a bound.
TEST(HttpMetrics, NamesOfJobsThatLookLikeBoundsStayAsTheyAre) {
  RecordedJob job = example_recorded();
  v1::AgentReport node = example_node();
  for (const std::string name : {"le=", "a,le=", "x le=\"5", "le=\"1e3\"} 1"}) {
    job.pass.set_job(name);
    node.mutable_workers(0)->set_job(name);
    node.mutable_workers(0)->mutable_pass()->set_job(name);
    std::string escaped;
    for (const char c : name) escaped += c == '"' ? std::string("\\\"") : std::string(1, c);
    const std::vector<RecordedJob> recorded = {job};
    const std::string text = metrics_text(node, recorded, {.named = true});
    EXPECT_THAT(text, HasSubstr("tutti_job_ranks{host=\"a\",job_name=\"" + escaped +
                                "\",uid=\"1000\",subject=\"\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("job_name=\"" + escaped +
                                "\",uid=\"1000\",subject=\"\",rank=\"0\","
                                "collective=\"all_reduce\",size=\"256KiB\",le=\"8.192e-06\"}"));
  }
}

TEST(HttpMetrics, AnAgentThatReachesNotWhatItNeedsTakesNoJoins) {
  v1::AgentReport node = example_node();
  node.set_coordinator_state("unreachable for 12 s: wrong token");
  const std::string text = metrics_text(node, {}, {.is_ready = false});
  EXPECT_THAT(text, HasSubstr("\ntutti_agent_serving{host=\"a\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_coordinator_reachable{host=\"a\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_etcd_reachable{host=\"a\"} 1\n"));
}

TEST(HttpMetrics, WhatIsFoundOfJobsAndNodesIsAMetric) {
  v1::StatusReply status;
  *status.add_agents() = example_node();
  v1::AgentReport& lost = *status.add_agents();
  lost.set_host("b");
  lost.set_state("unreachable: timeout");
  const std::string text = findings_text(status, diagnose_mesh(status, {}), true);
  EXPECT_THAT(text, HasSubstr("\ntutti_node_failed{node=\"a\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_node_failed{node=\"b\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_node_agents{node=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_node_clock_offset_seconds{node=\"a\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tutti_job_verdict{job_name=\"demo\",uid=\"1000\",subject=\"\","
                              "verdict=\"not_joined\"} 1\n"));
  const std::string anonymous = findings_text(status, diagnose_mesh(status, {}), false);
  EXPECT_THAT(anonymous, HasSubstr("\ntutti_node_failed{node=\"b\"} 1\n"));
  EXPECT_THAT(anonymous, Not(HasSubstr("demo")));
}

TEST(HttpMetrics, NodesOfOneNameAreOneSeries) {
  v1::StatusReply status;
  for (const int64_t ahead_ms : {0, -31'500, 2'000, 90'000}) {
    v1::AgentReport& agent = *status.add_agents();
    agent.set_host(ahead_ms == 0 ? "a" : "b");
    agent.set_coordinator(ahead_ms == 0);
    agent.set_state("serving");
    agent.set_time_ms(1'700'000'000'000 + ahead_ms);
    agent.set_lost(ahead_ms == 90'000);
  }
  const std::string text = findings_text(status, diagnose_mesh(status, {}), true);
  EXPECT_THAT(text, HasSubstr("\ntutti_node_agents{node=\"b\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_node_clock_offset_seconds{node=\"b\"} -31.5\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_node_failed{node=\"b\"} 1\n")) << "one is lost";
}

TEST(HttpMetrics, TellWhichNodeCoordinatesAloneByAnothersName) {
  v1::StatusReply status;
  for (const char* host : {"a", "b"}) status.add_agents()->set_host(host);
  MeshDiagnosis mesh = diagnose_mesh(status, {});
  EXPECT_THAT(findings_text(status, mesh, false),
              HasSubstr("\ntutti_node_coordinates_alone{node=\"a\"} 0\n"));
  mesh.doubtful_coordinator = "a";
  const std::string text = findings_text(status, mesh, false);
  EXPECT_THAT(text, HasSubstr("\ntutti_node_coordinates_alone{node=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\ntutti_node_coordinates_alone{node=\"b\"} 0\n"));
}

TEST(HttpMetrics, TellByWhichNameAnAgentCoordinates) {
  v1::AgentReport node = example_node();
  node.set_coordinator_setting("head:7601");
  EXPECT_THAT(metrics_text(node, {}, {}),
              HasSubstr("\ntutti_agent_coordinator{host=\"a\",coordinator=\"head:7601\"} 1\n"));
}

}  // namespace
}  // namespace tutti
