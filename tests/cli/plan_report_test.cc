// What `tutti plan` predicts and prints.
#include "daemon/cli/plan_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "daemon/base/settings.h"

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
  EXPECT_EQ(link_cost_of(HUGE_VAL, 100).status().code(), Code::invalid_argument);
  EXPECT_EQ(link_cost_of(50, HUGE_VAL).status().code(), Code::invalid_argument);
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

TEST(PlanReport, AHostHasTheThreadsThatItsWorkerWouldHave) {
  const auto cost = [](int cores, const std::string& streams, int hosts, int per_host) {
    return host_cost_of({.cores = cores, .streams = streams}, hosts, per_host);
  };
  EXPECT_EQ(cost(32, "auto", 2, 8).streams, 4);
  EXPECT_EQ(cost(8, "auto", 2, 8).streams, 2);
  EXPECT_EQ(cost(4, "auto", 2, 8).streams, 0) << "the worker's own thread";
  EXPECT_EQ(cost(4, "1", 2, 8).streams, 0);
  EXPECT_EQ(cost(4, "16", 2, 8).streams, 16);
  EXPECT_EQ(cost(4, "auto", 2, 8).folding_ranks, 8);
  EXPECT_EQ(cost(3, "auto", 2, 8).folding_ranks, 0);
  EXPECT_EQ(cost(3, "auto", 1, 8).folding_ranks, 8) << "on one host ranks always fold";
  EXPECT_EQ(cost(32, "auto", 2, 1).folding_ranks, 0) << "a rank alone does not";
  const HostCost rates =
      host_cost_of({.cores = 2, .stream_gbps = 40, .fold_gbps = 80, .memory_gbps = 800}, 2, 1);
  EXPECT_DOUBLE_EQ(rates.copy_byte_us, 0.0002);
  EXPECT_DOUBLE_EQ(rates.fold_byte_us, 0.0001);
  EXPECT_DOUBLE_EQ(rates.memory_byte_us, 0.00001);
  EXPECT_EQ(rates.cores, 2);
}

TEST(PlanReport, HostsThatCannotBeAreRefusedByTheirOption) {
  EXPECT_TRUE(check_host({}).ok());
  EXPECT_EQ(check_host({.streams = "3"}).message(), "--streams 3: expected auto, 1, 2, 4, 8 or 16");
  EXPECT_EQ(check_host({.fold_gbps = 0}).message(), "--fold-gbps 0: must be above 0, and finite");
  for (const double gbps : {-1.0, 1e-320, HUGE_VAL})
    EXPECT_EQ(check_host({.memory_gbps = gbps}).code(), Code::invalid_argument) << gbps;
}

TEST(PlanReport, SlicesAreThoseOfTheSettings) {
  PlanQuestion question = example_question();
  question.hosts = {64};
  question.link = *link_cost_of(10, 400);
  const std::vector<PlanRow> rows = plan_rows(question);
  const Strategy chain{StrategyKind::tree, 1};  // Whose time is that of its slices in flight.
  const auto row = std::ranges::find(rows, chain, &PlanRow::strategy);
  ASSERT_NE(row, rows.end());
  const Workload work{question.collective, question.bytes, 64, 128};
  const Settings settings;
  const Pipeline pipeline{static_cast<uint64_t>(settings.slice_bytes),
                          static_cast<int>(settings.slices_in_flight)};
  const Prediction expected = predict(work, traffic_of(work, chain), question.link,
                                      host_cost_of(question.host, 64, 2), pipeline);
  EXPECT_DOUBLE_EQ(row->prediction.us, expected.us);
}

TEST(PlanReport, GainsAreWhatTheOptionsWouldPredict) {
  PlanQuestion question = example_question();
  question.per_host = 8;
  question.link = *link_cost_of(10, 400);
  question.host.cores = 8;
  question.host.streams = "1";
  const std::vector<PlanGain> gains = plan_gains(question);
  ASSERT_EQ(gains.size(), 1u) << "more cores fold no faster while one stream copies";
  EXPECT_EQ(gains[0].option, "--streams 2") << "more would not help: the cores are used up";
  question.host.streams = "2";
  const PlanRow best = plan_rows(question)[2];
  EXPECT_DOUBLE_EQ(gains[0].us, best.prediction.start_us + best.prediction.us);
  question.host.streams = "4";
  const std::vector<PlanGain> more = plan_gains(question);
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].option, "--cores 16");
  question.host.cores = 16;
  question.host.streams = "1";
  ASSERT_FALSE(plan_gains(question).empty());
  EXPECT_EQ(plan_gains(question)[0].option, "--streams 4") << "more than by 2, and not by 8";
  question.link = *link_cost_of(10, 1);
  EXPECT_TRUE(plan_gains(question).empty()) << "the wire is the bound";
}

TEST(PlanReport, TextIsOneTable) {
  const PlanRow row{
      4, 8, {StrategyKind::ring}, {56, 123'400, 6, 96.0 * (1 << 20), Bound::wire}, true};
  EXPECT_EQ(plan_text(example_question(), {row}),
            "all_reduce of 64 MiB, 2 ranks a host; links of 50 us and 10 Gbit/s, as given\n"
            "hosts of 32 cores, 4 data streams of 40 Gbit/s; waiting ranks fold 80 Gbit/s each; "
            "memory of 800 Gbit/s\n"
            "\n"
            "HOSTS  RANKS  STRATEGY  TIME(ms)  BOUND  ROUNDS  SENT(MiB)\n"
            "    4      8  ring         123.5  wire        6         96  *\n"
            "* best; BOUND: what most of the time goes to; SENT: by the host that sends most; all "
            "predicted\n");
}

TEST(PlanReport, OnOneHostWaitingRanksFoldWhateverTheCores) {
  PlanQuestion question = example_question();
  question.host.cores = 2;
  const auto says = [&](const std::string& what) {
    return plan_text(question, plan_rows(question)).find(what) != std::string::npos;
  };
  EXPECT_TRUE(says("the worker folds 80 Gbit/s"));
  question.hosts = {1};
  EXPECT_TRUE(says("waiting ranks fold 80 Gbit/s each"));
}

TEST(PlanReport, TextEndsWithWhatMoreWouldGive) {
  PlanQuestion question = example_question();
  question.link = *link_cost_of(10, 400);
  question.host.streams = "1";
  const std::string text = plan_text(question, plan_rows(question));
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_TRUE(last.starts_with("the best on 4 hosts would take ")) << last;
  EXPECT_TRUE(last.ends_with(" ms with --streams 2\n")) << last;
}

TEST(PlanReport, JsonIsOneObject) {
  const PlanRow row{4, 8, {StrategyKind::ring}, {10, 90, 6, 1024}, true};
  EXPECT_EQ(plan_json(example_question(), {row}),
            R"({"op":"all_reduce","bytes":67108864,"per_host":2,"link_us":50,"link_gbps":10,)"
            R"("cores":32,"streams":4,"stream_gbps":40,"fold_gbps":80,"memory_gbps":800,)"
            R"("plans":[{"hosts":4,"ranks":8,"strategy":"ring","predicted_us":100,)"
            R"("bound":"worker","rounds":6,"sent_bytes":1024,"best":true}]})");
}

}  // namespace
}  // namespace tutti
