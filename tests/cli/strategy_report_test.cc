// What `tutti strategy JOB` prints.
#include "daemon/cli/strategy_report.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

v1::StatusReply tuned_status() {
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

TEST(StrategyReport, TheLeadersWorkerIsTheOneThatKnows) {
  const v1::StatusReply status = tuned_status();
  ASSERT_NE(find_leader(status, "demo"), nullptr);
  EXPECT_EQ(find_leader(status, "demo")->epoch(), 2u);
  EXPECT_EQ(find_leader(status, "other"), nullptr);
}

TEST(StrategyReport, TextIsTwoTables) {
  const v1::StatusReply status = tuned_status();
  EXPECT_EQ(strategy_text(*find_leader(status, "demo")),
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

TEST(StrategyReport, SaysThatNothingWasMeasuredYet) {
  v1::WorkerReport leader;
  leader.set_job("demo");
  leader.set_strategy("ring");
  EXPECT_EQ(strategy_text(leader),
            "job demo, epoch 0, strategy ring\n\nno operation between hosts yet\n\n"
            "no link measured yet\n");
}

TEST(StrategyReport, JsonIsOneObject) {
  const v1::StatusReply status = tuned_status();
  const std::string json = strategy_json(*find_leader(status, "demo"));
  EXPECT_TRUE(
      json.starts_with(R"({"job":"demo","epoch":2,"strategy":"auto","strategies":[{"op":)"
                       R"("all_reduce","bytes":65536,"hosts":2,"ranks":4,"strategy":"ring",)"
                       R"("predicted_us":210,"measured_us":250.25,"samples":9,"chosen":true})"))
      << json;
  EXPECT_TRUE(json.ends_with(R"("links":[{"from":"a","to":"b","latency_us":31.5,"GBs":2}]})"))
      << json;
}

}  // namespace
}  // namespace tutti
