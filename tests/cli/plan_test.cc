// What `tutti plan`, `tutti explain` and `tutti bench --compare` print.
#include <gtest/gtest.h>

#include "daemon/bench/bench.h"
#include "daemon/cli/explain_report.h"
#include "daemon/cli/plan_report.h"

namespace tutti {
namespace {

PlanQuestion example_question() {
  PlanQuestion question;
  question.bytes = uint64_t{64} << 20;
  question.hosts = {2, 4};
  question.per_host = 2;
  question.link = *link_cost_of(50, 10);
  question.source = "as given";
  return question;
}

TEST(CliPlan, LinksAreCostsOfAMessageAndAByte) {
  EXPECT_EQ(*link_cost_of(50, 100), (LinkCost{50, 0.00008}));
  EXPECT_EQ(link_cost_of(0, 100).status().code(), Code::invalid_argument);
  EXPECT_EQ(link_cost_of(50, -1).status().code(), Code::invalid_argument);
}

TEST(CliPlan, TheUsualHostsAreEightToFourThousand) {
  const std::vector<int> counts = usual_host_counts();
  EXPECT_EQ(counts.front(), 8);
  EXPECT_EQ(counts.back(), 4096);
  EXPECT_EQ(counts.size(), 10u);
}

TEST(CliPlan, MarksTheBestOfEachNumberOfHosts) {
  const std::vector<PlanRow> rows = plan_rows(example_question());
  ASSERT_EQ(rows.size(), 2u + 4u);
  EXPECT_EQ(rows[0].hosts, 2);
  EXPECT_EQ(rows[2].hosts, 4);
  EXPECT_EQ(rows[2].ranks, 8);
  EXPECT_EQ(rows[2].strategy.kind, StrategyKind::ring);
  EXPECT_EQ(rows[2].prediction.rounds, 6);
  EXPECT_EQ(rows[2].prediction.sent_bytes, 96.0 * (1 << 20));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].best, i == 0 || i == 2);
    if (rows[i].best) continue;
    EXPECT_GE(rows[i].prediction.us, rows[i - 1].prediction.us);
  }
}

TEST(CliPlan, TextIsOneTable) {
  const PlanRow row{4, 8, {StrategyKind::ring}, {56, 123'400, 6, 96.0 * (1 << 20)}, true};
  EXPECT_EQ(plan_text(example_question(), {row}),
            "all_reduce of 64 MiB, 2 ranks a host; links of 50 us and 10 Gbit/s, as given\n"
            "\n"
            "HOSTS  RANKS  STRATEGY  TIME(ms)  ROUNDS  SENT(MiB)\n"
            "    4      8  ring         123.5       6         96  *\n"
            "* best; SENT: between hosts, by the host that sends most; times are predictions\n");
}

TEST(CliPlan, JsonIsOneObject) {
  const PlanRow row{4, 8, {StrategyKind::ring}, {10, 90, 6, 1024}, true};
  EXPECT_EQ(plan_json(example_question(), {row}),
            R"({"op":"all_reduce","bytes":67108864,"per_host":2,"link_us":50,"link_gbps":10,)"
            R"("plans":[{"hosts":4,"ranks":8,"strategy":"ring","predicted_us":100,"rounds":6,)"
            R"("sent_bytes":1024,"best":true}]})");
}

v1::StatusReply example_status() {
  v1::StatusReply reply;
  v1::AgentReport& member = *reply.add_agents();
  member.add_workers()->set_job("demo");
  v1::WorkerReport& leader = *reply.add_agents()->add_workers();
  leader.set_job("demo");
  leader.set_epoch(2);
  leader.set_strategy("auto");
  v1::StrategyTime& ring = *leader.mutable_tuning()->add_times();
  ring.set_bytes(65536);
  ring.set_hosts(2);
  ring.set_ranks(4);
  ring.set_strategy("ring");
  ring.set_predicted_us(210);
  ring.set_measured_us(250.25);
  ring.set_samples(9);
  ring.set_chosen(true);
  v1::StrategyTime& star = *leader.mutable_tuning()->add_times();
  star = ring;
  star.set_strategy("centralized");
  star.set_measured_us(0);
  star.set_samples(0);
  star.set_chosen(false);
  v1::LinkTime& link = *leader.mutable_tuning()->add_links();
  link.set_from("a");
  link.set_to("b");
  link.set_message_us(31.5);
  link.set_byte_us(0.0005);
  return reply;
}

TEST(CliExplain, TheLeadersWorkerIsTheOneThatKnows) {
  const v1::StatusReply status = example_status();
  ASSERT_NE(find_leader(status, "demo"), nullptr);
  EXPECT_EQ(find_leader(status, "demo")->epoch(), 2u);
  EXPECT_EQ(find_leader(status, "other"), nullptr);
}

TEST(CliExplain, TextIsTwoTables) {
  const v1::StatusReply status = example_status();
  EXPECT_EQ(explain_text(*find_leader(status, "demo")),
            "job demo, epoch 2, strategy auto\n"
            "\n"
            "OP          SIZE    HOSTS  RANKS  STRATEGY     PREDICTED(us)  MEASURED(us)  SAMPLES  "
            "AUTO\n"
            "all_reduce  64 KiB      2      4  ring                   210         250.2        9  "
            "*\n"
            "all_reduce  64 KiB      2      4  centralized            210             -        0\n"
            "* what auto takes now; SIZE: up to this many bytes\n"
            "\n"
            "FROM  TO  LATENCY(us)  GB/s\n"
            "a     b         31.50     2\n");
}

TEST(CliExplain, SaysThatNothingWasMeasuredYet) {
  v1::WorkerReport leader;
  leader.set_job("demo");
  leader.set_strategy("ring");
  EXPECT_EQ(explain_text(leader),
            "job demo, epoch 0, strategy ring\n\nno operation between hosts yet\n\n"
            "no link measured yet\n");
}

TEST(CliExplain, JsonIsOneObject) {
  const v1::StatusReply status = example_status();
  const std::string json = explain_json(*find_leader(status, "demo"));
  EXPECT_TRUE(
      json.starts_with(R"({"job":"demo","epoch":2,"strategy":"auto","strategies":[{"op":)"
                       R"("all_reduce","bytes":65536,"hosts":2,"ranks":4,"strategy":"ring",)"
                       R"("predicted_us":210,"measured_us":250.25,"samples":9,"chosen":true})"))
      << json;
  EXPECT_TRUE(json.ends_with(R"("links":[{"from":"a","to":"b","latency_us":31.5,"GBs":2}]})"))
      << json;
}

TEST(CliBench, AComparisonShowsTheFirstOverTheBestOfTheOthers) {
  CompareRow row;
  row.bench = bench_case(Collective::all_reduce, Dtype::f32, Op::sum, 4096, 4);
  row.hosts = 2;
  row.strategies = {"auto", "ring", "tree:2"};
  row.p50_us = {110, 200, 100};
  EXPECT_EQ(bench_heading(row),
            "# all_reduce, 4 ranks on 2 hosts: time (us) of each strategy, in turn\n"
            "         size        count         auto         ring       tree:2         best    "
            "auto/best       #wrong\n");
  EXPECT_EQ(
      bench_line(row),
      "         4096         1024          110          200          100       tree:2         "
      "1.10            0\n");
  EXPECT_EQ(bench_json(row),
            R"({"op":"all_reduce","hosts":2,"per_host":2,"bytes":4096,"p50_us":{"auto":110,)"
            R"("ring":200,"tree:2":100},"best":"tree:2","ratio":1.1,"wrong":0})"
            "\n");
}

}  // namespace
}  // namespace tutti
