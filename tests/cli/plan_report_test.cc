// What `tutti plan` predicts and prints.
#include "daemon/cli/plan_report.h"

#include <gtest/gtest.h>

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

TEST(PlanReport, LinksAreCostsOfAMessageAndAByte) {
  EXPECT_EQ(*link_cost_of(50, 100), (LinkCost{50, 0.00008}));
  EXPECT_EQ(link_cost_of(0, 100).status().code(), Code::invalid_argument);
  EXPECT_EQ(link_cost_of(50, -1).status().code(), Code::invalid_argument);
}

TEST(PlanReport, TheUsualHostsAreEightToFourThousand) {
  const std::vector<int> counts = usual_host_counts();
  EXPECT_EQ(counts.front(), 8);
  EXPECT_EQ(counts.back(), 4096);
  EXPECT_EQ(counts.size(), 10u);
}

TEST(PlanReport, MarksTheBestOfEachNumberOfHosts) {
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

TEST(PlanReport, TextIsOneTable) {
  const PlanRow row{4, 8, {StrategyKind::ring}, {56, 123'400, 6, 96.0 * (1 << 20)}, true};
  EXPECT_EQ(plan_text(example_question(), {row}),
            "all_reduce of 64 MiB, 2 ranks a host; links of 50 us and 10 Gbit/s, as given\n"
            "\n"
            "HOSTS  RANKS  STRATEGY  TIME(ms)  ROUNDS  SENT(MiB)\n"
            "    4      8  ring         123.5       6         96  *\n"
            "* best; SENT: between hosts, by the host that sends most; times are predictions\n");
}

TEST(PlanReport, JsonIsOneObject) {
  const PlanRow row{4, 8, {StrategyKind::ring}, {10, 90, 6, 1024}, true};
  EXPECT_EQ(plan_json(example_question(), {row}),
            R"({"op":"all_reduce","bytes":67108864,"per_host":2,"link_us":50,"link_gbps":10,)"
            R"("plans":[{"hosts":4,"ranks":8,"strategy":"ring","predicted_us":100,"rounds":6,)"
            R"("sent_bytes":1024,"best":true}]})");
}

}  // namespace
}  // namespace tutti
