// What a host runs: moves written by hand, of plans and of steps that no plan has yet.
#include <gmock/gmock.h>

#include "daemon/schedule/merge.h"
#include "tests/schedule_plans.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

Step send(int peer, int chunk = 0) { return {StepKind::send, peer, chunk}; }
Step recv(int peer, int chunk = 0) { return {StepKind::recv, peer, chunk}; }
Step reduce(int peer, int chunk = 0) { return {StepKind::recv_reduce, peer, chunk}; }
Move fold(int rank, std::vector<int> others) { return {MoveKind::fold, rank, -1, 0, 0, others}; }
Move spread(int rank, std::vector<int> others) {
  return {MoveKind::spread, rank, -1, 0, 0, others};
}

TEST(Moves, TwoHostsFoldExchangeAndSpread) {
  const Plan plan = plan_of(Collective::all_reduce, {kCentral, kCentral}, hosts_of({3, 1}));
  EXPECT_THAT(moves_of(plan, 0), ElementsAre(Move{MoveKind::fold, 0, -1, 0, 0, {1, 2}},
                                             Move{MoveKind::recv_reduce, 0, 3, 0, 0, {}},
                                             Move{MoveKind::finish, 0, -1, 0, 0, {}},
                                             Move{MoveKind::send, 0, 3, 0, 0, {}},
                                             Move{MoveKind::spread, 0, -1, 0, 0, {1, 2}}));
  EXPECT_THAT(moves_of(plan, 1), ElementsAre(Move{MoveKind::send, 3, 0, 0, 0, {}},
                                             Move{MoveKind::recv, 3, 0, 0, 0, {}}));
}

TEST(Moves, ARingBetweenTwoHostsCountsItsMessages) {
  const Plan plan = plan_of(Collective::all_reduce, {kCentral, kRing}, hosts_of({2, 1}));
  EXPECT_THAT(
      moves_of(plan, 0),
      ElementsAre(Move{MoveKind::fold, 0, -1, 0, 0, {1}}, Move{MoveKind::fold, 0, -1, 1, 0, {1}},
                  Move{MoveKind::send, 0, 2, 1, 0, {}}, Move{MoveKind::recv_reduce, 0, 2, 0, 0, {}},
                  Move{MoveKind::finish, 0, -1, 0, 0, {}}, Move{MoveKind::send, 0, 2, 0, 1, {}},
                  Move{MoveKind::recv, 0, 2, 1, 1, {}}, Move{MoveKind::spread, 0, -1, 0, 0, {1}},
                  Move{MoveKind::spread, 0, -1, 1, 0, {1}}));
}

// However deep the tree, each inner rank folds once and spreads once a chunk.
TEST(Moves, OneFoldAndOneSpreadForEachInnerRank) {
  const Plan plan = plan_of(Collective::all_reduce, {tree(2), kRing}, hosts_of({7, 7}));
  int folds = 0, spreads = 0;
  for (const Move& move : moves_of(plan, 1)) {
    folds += move.kind == MoveKind::fold;
    spreads += move.kind == MoveKind::spread;
    const bool is_local = move.kind == MoveKind::fold || move.kind == MoveKind::spread;
    EXPECT_EQ(move.others.size(), is_local ? 2u : 0u);
  }
  EXPECT_EQ(folds, 3 * chunk_count(plan));
  EXPECT_EQ(spreads, 3 * chunk_count(plan));
}

// Rank 0 folds 1 and 2; 2 must first hear from 3. One move all the same, in the order of the steps.
TEST(Merge, AFoldWaitsForAllItsRanks) {
  EXPECT_THAT(merge({0, 1, 2, 3},
                    {{reduce(1), reduce(2)}, {send(0)}, {reduce(3), send(0)}, {send(2)}}, 4, 1),
              ElementsAre(fold(2, {3}), fold(0, {1, 2})));
}

TEST(Merge, AFoldOfOneRankTwiceStaysTwo) {
  EXPECT_THAT(merge({0, 1}, {{reduce(1), reduce(1)}, {send(0), send(0)}}, 2, 1),
              ElementsAre(fold(0, {1}), fold(0, {1})));
}

// The second copy is of another value: between the two, rank 0 folds rank 3's.
TEST(Merge, ASpreadServesNoRankAfterItsValueChanged) {
  EXPECT_THAT(
      merge({0, 1, 2, 3}, {{send(1), reduce(3), send(2)}, {recv(0)}, {recv(0)}, {send(0)}}, 4, 1),
      ElementsAre(spread(0, {1}), fold(0, {3}), spread(0, {2})));
}

// Rank 2's own value is still wanted by rank 3 when rank 0's is spread to rank 1.
TEST(Merge, ASpreadServesNoRankWhoseValueIsInUseSince) {
  const auto moves = merge({0, 1, 2, 3},
                           {{send(1), send(2), send(3, 1)},
                            {recv(0)},
                            {send(3), recv(3, 1), recv(0)},
                            {recv(0, 1), reduce(2), send(2, 1)}},
                           4, 2);
  EXPECT_THAT(moves,
              ElementsAre(spread(0, {1}), Move{MoveKind::spread, 0, -1, 1, 0, {3}}, fold(3, {2}),
                          Move{MoveKind::spread, 3, -1, 1, 0, {2}}, spread(0, {2})));
}

// Rank 0's value is on its way to host 1; what comes from there says that it was taken.
TEST(Merge, ASpreadStaysBehindTheProofThatMemoryIsFree) {
  EXPECT_THAT(
      merge({0, 1, 2}, {{send(3), recv(3, 1), recv(2)}, {recv(2)}, {send(0), send(1)}}, 4, 2),
      ElementsAre(Move{MoveKind::send, 0, 3, 0, 0, {}}, spread(2, {1}),
                  Move{MoveKind::recv, 0, 3, 1, 0, {}}, spread(2, {0})));
}

// A rank that waits for another host holds up nobody who does not wait for it.
TEST(Merge, MessagesFromElsewhereComeLast) {
  EXPECT_THAT(merge({0, 1}, {{recv(2), send(1)}, {send(2), recv(0)}}, 3, 1),
              ElementsAre(Move{MoveKind::send, 1, 2, 0, 0, {}},
                          Move{MoveKind::recv, 0, 2, 0, 0, {}}, spread(0, {1})));
}

}  // namespace
}  // namespace tutti
