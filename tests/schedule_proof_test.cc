// Every schedule this room writes, proven: rank by rank and merged host by host.
#include <chrono>

#include "tests/schedule_plans.h"

namespace tutti {
namespace {

// Proves the plans and says how many.
int prove(const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    const Status steps = check(plan, schedule_of(plan));
    EXPECT_TRUE(steps.ok()) << describe(plan) << ": " << steps.message();
    const Status moves = check_moves(plan, moves_of_all(plan));
    EXPECT_TRUE(moves.ok()) << describe(plan) << ", merged: " << moves.message();
  }
  return static_cast<int>(plans.size());
}

TEST(ScheduleProof, OneHostOf1To64Ranks) {
  int proven = 0;
  for (int n = 1; n <= 64; ++n)
    for (const Strategy& strategy : kEveryStrategy)
      proven += prove(every_plan(hosts_of({n}), {strategy, kCentral}));
  EXPECT_GE(proven, 3500);
}

TEST(ScheduleProof, UpTo64HostsOfOneRank) {
  int proven = 0;
  for (int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 64})
    for (const Strategy& strategy : kEveryStrategy)
      proven += prove(every_plan(hosts_of(std::vector<int>(n, 1)), {kCentral, strategy}));
  EXPECT_GE(proven, 900);
}

TEST(ScheduleProof, TwoLevelsEvenAndUneven) {
  const std::vector<std::vector<int>> layouts = {
      {1, 1},    {2, 1},    {2, 2},       {3, 1},       {1, 3},  {5, 2, 1},    {1, 5, 2}, {4, 4},
      {2, 2, 2}, {1, 7, 1}, {4, 4, 4, 4}, {3, 3, 2, 1}, {63, 1}, {9, 1, 1, 9}, {1, 12, 3}};
  int proven = 0;
  for (const auto& sizes : layouts)
    for (const Strategies& pair : every_pair()) proven += prove(every_plan(hosts_of(sizes), pair));
  EXPECT_GE(proven, 5000);
}

TEST(ScheduleProof, EightHostsOfEight) {
  int proven = 0;
  for (const Strategies& pair : every_pair())
    proven += prove(every_plan(hosts_of(std::vector<int>(8, 8)), pair));
  EXPECT_GE(proven, 36 * 6);
}

TEST(ScheduleProof, RanksDealtInAnyOrderToHosts) {
  const std::vector<Hosts> layouts = {
      {{0, 2}, {1, 3}}, {{2, 3}, {0, 1}}, {{5}, {0, 3, 4}, {1, 2}}, {{1, 4, 6}, {0, 7}, {2, 3, 5}}};
  for (const Hosts& hosts : layouts)
    for (const Strategies& pair : every_pair()) prove(every_plan(hosts, pair));
}

TEST(ScheduleProof, FinishIsTakenOncePerChunkByReducersAlone) {
  for (const Strategies& pair : every_pair())
    for (const Plan& plan : every_plan(hosts_of({3, 2, 1}), pair)) {
      int finishes = 0;
      for (const auto& steps : schedule_of(plan))
        finishes += static_cast<int>(std::count_if(
            steps.begin(), steps.end(), [](const Step& s) { return s.kind == StepKind::finish; }));
      const bool combines =
          plan.collective != Collective::broadcast && plan.collective != Collective::all_gather;
      EXPECT_EQ(finishes, combines ? chunk_count(plan) : 0) << describe(plan);
    }
}

// The engine folds consecutive recv_reduces in one pass; which children they are from ascends.
TEST(ScheduleProof, ChildrenAreFoldedInAscendingOrder) {
  for (const Strategies& pair : every_pair())
    for (const Plan& plan : every_plan(hosts_of({5, 3, 4}), pair))
      for (const auto& moves : moves_of_all(plan))
        for (const Move& move : moves) {
          if (move.kind != MoveKind::fold) continue;
          EXPECT_TRUE(std::is_sorted(move.others.begin(), move.others.end())) << describe(plan);
        }
}

TEST(ScheduleProof, MovesBetweenHostsKeepTheirRanksOrder) {
  for (const Strategies& pair : every_pair())
    for (const Plan& plan : every_plan(hosts_of({3, 1, 2}), pair))
      for (const auto& ranks : plan.hosts) {
        const auto& moves = moves_of(plan, static_cast<int>(&ranks - plan.hosts.data()));
        for (int rank : ranks) {
          std::vector<Step> expected, found;
          for (const Step& step : steps_of(plan, rank))
            if (step.peer >= 0 && std::find(ranks.begin(), ranks.end(), step.peer) == ranks.end())
              expected.push_back(step);
          for (const Move& move : moves)
            if (move.rank == rank && move.peer >= 0)
              found.push_back({move.kind == MoveKind::send   ? StepKind::send
                               : move.kind == MoveKind::recv ? StepKind::recv
                                                             : StepKind::recv_reduce,
                               move.peer, move.chunk});
          EXPECT_EQ(found, expected) << describe(plan) << " rank " << rank;
        }
      }
}

// Merging changes no rank's order of reduction, so moves give the same bits as steps.
TEST(ScheduleProof, MovesReduceInTheOrderOfTheSteps) {
  for (const Strategies& pair : every_pair())
    for (const Plan& plan : every_plan(hosts_of({5, 1, 3}), pair)) {
      std::vector<std::vector<Step>> found(world_size(plan)), expected(world_size(plan));
      for (const auto& moves : moves_of_all(plan))
        for (const Move& move : moves) {
          if (move.kind == MoveKind::recv_reduce)
            found[move.rank].push_back({StepKind::recv_reduce, move.peer, move.chunk});
          for (int other : move.others)
            if (move.kind == MoveKind::fold)
              found[move.rank].push_back({StepKind::recv_reduce, other, move.chunk});
        }
      for (int rank = 0; rank < world_size(plan); ++rank)
        for (const Step& step : steps_of(plan, rank))
          if (step.kind == StepKind::recv_reduce) expected[rank].push_back(step);
      EXPECT_EQ(found, expected) << describe(plan);
    }
}

TEST(ScheduleProof, MovesOfARingOf1024HostsAreQuick) {
  const Plan plan =
      plan_of(Collective::all_reduce, {kRing, kRing}, hosts_of(std::vector<int>(1024, 1)));
  const auto start = std::chrono::steady_clock::now();
  const auto moves = moves_of(plan, 511);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(moves.size(), 4u * 1023 + 1);
  RecordProperty("moves_ms", std::to_string(took.count()));
  EXPECT_LT(took.count(), 100) << "10 ms unloaded and unsanitized";
}

}  // namespace
}  // namespace tutti
