// The agreement of hosts in simulated time: random histories of small jobs, each from its seed.
//   TUTTI_SIMULATION_HISTORIES=N   so many histories (default below)
//   TUTTI_SIMULATION_SEED=S        this one history, with its trace
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>

#include "tests/group/simulated_job.h"

namespace tutti::simulated {
namespace {

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The first seed in [from, to) whose history breaks a promise, or nothing.
std::optional<uint64_t> first_wrong(uint64_t from, uint64_t to, const Tampering& tampering,
                                    std::string& what, Job::Counts& sum) {
  for (uint64_t seed = from; seed < to; ++seed) {
    const Script script = draw(seed);
    Job job(script, seed, tampering);
    what = job.run();
    sum.ok += job.counts().ok;
    sum.failed += job.counts().failed;
    sum.epochs_ended += job.counts().epochs_ended != 0;
    sum.events += job.counts().events / 100;
    if (!what.empty()) return seed;
  }
  return std::nullopt;
}

std::string trace_of(uint64_t seed, const Tampering& tampering = {}) {
  const Script script = draw(seed);
  Job job(script, seed, tampering, true);
  const std::string what = job.run();
  std::string text = describe(script);
  for (const std::string& line : job.trace()) text += line + "\n";
  return text + (what.empty() ? "all is well" : what) +
         "\nreplay: TUTTI_SIMULATION_SEED=" + std::to_string(seed) +
         " group_test --gtest_filter=GroupSimulationTest.*\n";
}

TEST(GroupSimulationTest, RandomHistoriesKeepThePromises) {
  if (const uint64_t seed = number_from("TUTTI_SIMULATION_SEED", 0)) {
    std::cout << trace_of(seed);
    return;
  }
  const uint64_t histories = number_from("TUTTI_SIMULATION_HISTORIES", 100'000);
  std::string what;
  Job::Counts sum;
  const auto before = std::chrono::steady_clock::now();
  const std::optional<uint64_t> seed = first_wrong(1, histories + 1, {}, what, sum);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  std::cout << histories << " histories in " << took.count() << " s: " << sum.ok << " calls OK, "
            << sum.failed << " failed, " << sum.epochs_ended << " epochs ended, " << sum.events
            << "00 events\n";
  EXPECT_FALSE(seed) << trace_of(*seed);
}

// ---- Injected faults must be found ----

struct Fault {
  const char* name;
  Tampering tampering;
};

// Changes one kind of message on its way.
template <class Kind>
Tampering change(std::function<bool(int to, Kind& message)> how) {
  Tampering tampering;
  tampering.message = [how](int, int to, Message& message) {
    Kind* const kind = std::get_if<Kind>(&message);
    return kind == nullptr || how(to, *kind);
  };
  return tampering;
}

template <class Kind>
Tampering order(std::function<bool(int host, Kind& action)> how) {
  Tampering tampering;
  tampering.action = [how](int host, Action& action) {
    Kind* const kind = std::get_if<Kind>(&action);
    return kind == nullptr || how(host, *kind);
  };
  return tampering;
}

Tampering drop_reports(Report::Reason reason) {
  return change<Report>([reason](int, Report& report) { return report.reason != reason; });
}

bool blame_another(int, Fail& fail) {
  Culprit culprit = fail.status.culprit();
  if (culprit.rank >= 0) culprit.rank = culprit.rank == 0 ? 1 : culprit.rank - 1;
  fail.status = Status(fail.status.code(), fail.status.message(), culprit);
  return true;
}

bool tell_host_1_otherwise(int to, Fail& fail) {
  if (to == 1) fail.status = Status(fail.status.code(), "another verdict", fail.status.culprit());
  return true;
}

bool one_call_more(int, RankGone& gone) {
  for (auto& [group, bound] : gone.calls) ++bound;
  return true;
}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"NoQuery", change<Query>([](int, Query&) { return false; })},
      {"QueryNotToHost1", change<Query>([](int to, Query&) { return to != 1; })},
      {"BlamesAnother", change<Fail>(blame_another)},
      {"TwoVerdicts", change<Fail>(tell_host_1_otherwise)},
      {"FailNotToHost1", change<Fail>([](int to, Fail&) { return to != 1; })},
      {"GoneNotToHost1", change<RankGone>([](int to, RankGone&) { return to != 1; })},
      {"OneCallMoreOfTheGone", change<RankGone>(one_call_more)},
      {"FenceForgotten", change<Adopt>([](int to, Adopt& adopt) {
         adopt.from += to == 1;
         return true;
       })},
      {"NoRefusals", drop_reports(Report::Reason::refusal)},
      {"NobodyComparesAnything", change<Report>([](int, Report& report) {
         return report.reason != Report::Reason::mismatch &&
                report.reason != Report::Reason::waiting;
       })},
      {"NoLateness", drop_reports(Report::Reason::late)},
      {"NothingCompared", drop_reports(Report::Reason::waiting)},
      {"AgreementNotCompared", order<Start>([](int, Start& start) {
         start.agreement = 7;
         return true;
       })},
      {"AnotherStrategyOnHost1", order<Start>([](int host, Start& start) {
         if (host == 1) start.strategies.global = {StrategyKind::tree, 3};
         return true;
       })},
      {"CancelForgotten", order<Cancel>([](int, Cancel&) { return false; })},
      {"AnswersForgotten", order<Complete>([](int host, Complete&) { return host != 1; })},
      {"OkForAll", order<Complete>([](int, Complete& complete) {
         complete.status = {};
         return true;
       })},
  };
  return all;
}

class FaultTest : public ::testing::TestWithParam<size_t> {};

TEST_P(FaultTest, IsFound) {
  const Fault& fault = faults()[GetParam()];
  std::string what;
  Job::Counts sum;
  const auto seed = first_wrong(1, 20'000, fault.tampering, what, sum);
  ASSERT_TRUE(seed) << fault.name << " goes unnoticed";
  std::cout << fault.name << " is found by seed " << *seed << ": " << what << "\n";
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultTest, ::testing::Range(size_t{0}, faults().size()),
                         [](const auto& info) { return faults()[info.param].name; });

}  // namespace
}  // namespace tutti::simulated
