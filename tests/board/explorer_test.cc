// Explores every interleaving of model.h for two and three ranks and the worker, where ranks die or
// stop at every step. Mutants, one for each rule, prove the explorer.
#include "tests/board/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

namespace tutti::board::model {
namespace {

using ::testing::HasSubstr;

struct Named {
  const char* name;
  Setup setup;
};
void PrintTo(const Named& named, std::ostream* to) { *to << named.name; }

constexpr Deadlines kLate = Deadlines::late;

const Named kSetups[] = {
    {"Folding", {.ops = 1, .mortal = 3}},
    {"FoldingTwoBlocks", {.ops = 1, .blocks = 2, .mortal = 1}},
    {"Alone", {.ops = 1, .alone = true, .mortal = 3}},
    {"NothingToFold", {.ops = 2, .blocks = 0, .mortal = 3, .impatient = 1}},
    {"Sleepers", {.ops = 1, .sleepers = true}},
    {"WorkerDecides", {.ops = 1, .mortal = 1, .diverted = true}},
    {"WorkerDecidesTwo",
     {.ops = 2, .pipelined = true, .mortal = 1, .impatient = 0, .diverted = true}},
    {"Disagreement", {.ops = 2, .mortal = 1, .impatient = 2, .disagree_at = 0}},
    {"TwoInOrder", {.ops = 2, .mortal = 1}},
    {"TwoAtOnce", {.ops = 2, .pipelined = true}},
    {"SlotUsedAgain", {.ops = 3, .impatient = 2}},
    {"SlotUsedAgainAtOnce", {.ops = 3, .pipelined = true, .mortal = 1, .impatient = 0}},
    {"Deadlines", {.ops = 1, .mortal = 1, .deadlines = Deadlines::any, .impatient = 0}},
    {"DeadlinesAlone", {.ops = 1, .alone = true, .deadlines = Deadlines::any}},
    {"DeadlinesOfTwo", {.ops = 2, .deadlines = kLate, .slow = 1, .impatient = 0}},
    {"DeadlinesOfThree", {.ops = 3, .blocks = 0, .deadlines = kLate, .slow = 1, .impatient = 0}},
    {"ThreeRanks", {.ranks = 3, .ops = 1, .impatient = 1}},
    {"ThreeRanksDying", {.ranks = 3, .ops = 1, .mortal = 1, .impatient = 0}},
    {"ThreeRanksAlone", {.ranks = 3, .ops = 1, .alone = true, .mortal = 1, .impatient = 0}},
    {"ThreeRanksTwoBlocks", {.ranks = 3, .ops = 1, .blocks = 2, .impatient = 0}},
    {"ThreeRanksTwice", {.ranks = 3, .ops = 2, .impatient = 0}},
};

class BoardExplorerTest : public testing::TestWithParam<Named> {};

TEST_P(BoardExplorerTest, NoInterleavingBreaksAPromise) {
  const Finding finding = Explorer(GetParam().setup).explore();
  std::cout << GetParam().name << ": " << finding.states << " states, " << finding.steps
            << " steps\n";
  RecordProperty("states", std::to_string(finding.states));
  EXPECT_EQ(finding.what, "") << finding.trace;
  EXPECT_GT(finding.states, 1000u) << "it explores nothing";
}

INSTANTIATE_TEST_SUITE_P(Setups, BoardExplorerTest, testing::ValuesIn(kSetups),
                         [](const auto& of) { return of.param.name; });

// ---- Mutants ----

struct Mutant {
  const char* name;
  Fault fault;
  const char* harm;
  Setup setup;
};
void PrintTo(const Mutant& mutant, std::ostream* to) { *to << mutant.name; }

constexpr Setup kDying = {.ops = 1, .mortal = 1, .impatient = 1};
constexpr Setup kStopping = {.ops = 1, .deadlines = kLate, .impatient = 0};
constexpr Setup kReuse = {.ops = 3, .pipelined = true, .impatient = 1};
constexpr Setup kFailedReuse = {
    .ops = 3, .deadlines = kLate, .slow = 1, .impatient = 0, .disagree_at = 0};
constexpr const char* kHang = "a hang";
constexpr const char* kAfterFailure = "an output changes after its failure was seen";

const Mutant kMutants[] = {
    {"ArrivalsAreNotCompared", Fault::arrivals_are_not_compared, "request", kReuse},
    {"WordsByStore", Fault::words_by_store, "a verdict changes", kDying},
    {"ClaimsByStore", Fault::claims_by_store, "a block is folded twice", kDying},
    {"CountsByStore", Fault::counts_by_store, kHang, {.ops = 1, .blocks = 2, .impatient = 0}},
    {"CountsResetTwice", Fault::counts_reset_twice, kHang, kDying},
    {"CountsWithoutTurns",
     Fault::counts_without_generations,
     "OK before all blocks were folded",
     {.ops = 3, .alone = true, .impatient = 0}},
    {"ClaimsOpenEarly", Fault::claims_open_early, "a block is folded twice", kDying},
    {"ClaimsOpenOverAStop", Fault::claims_open_over_a_stop, kAfterFailure, kStopping},
    {"StopLeavesUnopened", Fault::stop_leaves_unopened, kAfterFailure, kStopping},
    {"HoldingAfterTheClaim", Fault::holding_after_the_claim, kAfterFailure, kStopping},
    {"AloneWithoutHolding",
     Fault::alone_without_holding,
     kAfterFailure,
     {.ops = 1, .alone = true, .deadlines = kLate, .impatient = 0}},
    {"LetsGoBeforeCounting", Fault::lets_go_before_counting, kHang, kDying},
    {"HoldersAreNotAwaited", Fault::holders_are_not_awaited, kAfterFailure, kStopping},
    {"EpochGoesOn", Fault::epoch_goes_on, kAfterFailure, kStopping},
    {"CompletedByLastAlone", Fault::completed_by_last_alone, kHang, {.ops = 1, .diverted = true}},
    {"SettledIsNotAsked", Fault::settled_is_not_asked, "before all have settled", kReuse},
    {"SettlesAtArrival", Fault::settles_at_arrival, "writes to another operation's slot", kReuse},
    {"SettlesBeforeTheFailure", Fault::settles_before_the_failure, "no failure, or another's",
     kFailedReuse},
    {"DeadNeverSettle", Fault::dead_never_settle, "a slot is never settled", kDying},
    {"FailureAfterTheWord", Fault::failure_after_the_word, "no failure, or another's", kDying},
    {"RanksDecideIsNotRead", Fault::ranks_decide_is_not_read, kHang, kDying},
    {"StaleRanksDecide", Fault::stale_ranks_decide, "though the worker wants to", kFailedReuse},
    {"NoDiversion", Fault::no_diversion, kHang, kDying},
    {"WaitingNeverCalls",
     Fault::waiting_never_calls,
     "a hang until a deadline",
     {.ops = 1, .diverted = true}},
};

class BoardMutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(BoardMutantTest, IsFoundForTheHarmItDoes) {
  model::Setup setup = GetParam().setup;
  setup.fault = GetParam().fault;
  const Finding finding = Explorer(setup).explore();
  EXPECT_THAT(finding.what, HasSubstr(GetParam().harm)) << finding.trace;
  EXPECT_NE(finding.trace, "");
}

INSTANTIATE_TEST_SUITE_P(Faults, BoardMutantTest, testing::ValuesIn(kMutants),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace tutti::board::model
