// Acceptance checks about errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

class Faults : public TwoHostsTest {};

TEST_F(Faults, TreeOfArityZeroIsRefusedAndNothingElse) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const char* text : {"tree:0", "ring,tree:0", "{\"Tree\":0}"}) {
                    const Error error =
                        failure_of([&] { all_reduce_of(group, 4, {.strategy = text}); });
                    check(error.code == TUTTI_INVALID_ARGUMENT, error.what());
                    check_contains(error, "arity must be >= 1");
                  }
                  check_works(group);
                }),
            "");
}

TEST_F(Faults, StrategyTexts) {
  EXPECT_EQ(
      run({1, 1},
          [](const RankContext& context) {
            Group group = context.join();
            for (const char* text : {"tree:3", "{\"Tree\":3}", "ring", "\"Ring\"", "Centralized",
                                     "centralized", "auto", "tree:2,ring"})
              all_reduce_of(group, 5, {.strategy = text});
            for (const char* text : {"tree", "tree:-1", "star", "tree:", "ring,", "ring,ring,ring"})
              check(failure_of([&] { all_reduce_of(group, 5, {.strategy = text}); }).code ==
                        TUTTI_INVALID_ARGUMENT,
                    text);
            check_works(group);
          }),
      "");
}

// Rank 0 and the others make different calls: all get the same named error, and the group stays
// usable.
void disagree(Group& group, const std::function<void()>& mine, const std::string& a,
              const std::string& b) {
  const Error error = failure_of(mine);
  check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
  check(error.rank == -1 && error.host.empty(), "neither of the two is blamed");
  check_contains(error, a);
  check_contains(error, b);
  check_works(group);
}

TEST_F(Faults, EveryKindOfMismatchIsReportedToBoth) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  const bool first = context.rank == 0;
                  std::vector<float> x(5);
                  std::vector<int32_t> whole(4);
                  const std::span<float> four(x.data(), 4);
                  disagree(
                      group, [&] { group.all_reduce(first ? four : std::span(x)); }, "[4]", "[5]");
                  disagree(
                      group,
                      [&] { first ? group.all_reduce(four) : group.all_reduce(std::span(whole)); },
                      "f32", "i32");
                  disagree(
                      group, [&] { group.all_reduce(four, first ? sum : mean); }, "sum", "mean");
                  disagree(
                      group, [&] { first ? group.all_reduce(four) : group.broadcast(four, 0); },
                      "all_reduce", "broadcast");
                  disagree(
                      group,
                      [&] { group.all_reduce(four, sum, {.strategy = first ? "ring" : "tree:2"}); },
                      "ring", "tree:2");
                }),
            "");
}

TEST_F(Faults, LaterArrivalsAtAMismatchGetItToo) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, [](const RankContext& context) {
    Group group = context.join();
    check(failure_of([&] { all_reduce_of(group, context.rank == 1 ? 5 : 4); }).code ==
              TUTTI_FAILED_PRECONDITION,
          "a mismatch");
    check_works(group);
  });
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(Faults, ReduceToARoot) {
  EXPECT_EQ(
      run({2, 2},
          [](const RankContext& context) {
            Group group = context.join();
            for (const char* strategy : {"centralized", "tree:2", "ring"}) {
              std::vector<float> x = {static_cast<float>(context.rank)};
              group.reduce(std::span(x), 2, sum, {.strategy = strategy});
              check(x[0] == (context.rank == 2 ? 6.0f : static_cast<float>(context.rank)),
                    strategy);
            }
            std::vector<float> x(1);
            check(failure_of([&] { group.reduce(std::span(x), 9); }).code == TUTTI_INVALID_ARGUMENT,
                  "root 9");
            check(failure_of([&] { group.reduce(std::span(x), context.rank % 2); }).code ==
                      TUTTI_FAILED_PRECONDITION,
                  "differing roots");
            check_works(group);
          }),
      "");
}

TEST_F(Faults, BroadcastHasOneProvider) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  Group group = context.join();
                  std::vector<float> x = {0, 0};
                  if (context.rank == 3) x = {7, 8};
                  group.broadcast(std::span(x), 3);
                  check(x[0] == 7 && x[1] == 8, "the root's values");
                  // Half of the ranks name root 0, the others root 1.
                  const Error two =
                      failure_of([&] { group.broadcast(std::span(x), context.rank < 2 ? 0 : 1); });
                  check(two.code == TUTTI_FAILED_PRECONDITION, two.what());
                  check_contains(two, "root=0");
                  check_contains(two, "root=1");
                  check_works(group);
                }),
            "");
}

TEST_F(Faults, MembershipMistakes) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  const Error twice = failure_of([&] { (void)context.join(2'000); });
                  check(twice.code == TUTTI_ALREADY_EXISTS, twice.what());
                  RankContext larger = context;
                  larger.world_size = 3;
                  larger.rank = 2;
                  check(failure_of([&] { (void)larger.join(2'000); }).code != TUTTI_OK,
                        "other world size");
                  larger.rank = 3;
                  check(
                      failure_of([&] { (void)larger.join(2'000); }).code == TUTTI_INVALID_ARGUMENT,
                      "a rank out of range");
                  check_works(group);
                  group.barrier();
                  group.leave();
                  check(failure_of([&] { group.leave(); }).code == TUTTI_FAILED_PRECONDITION,
                        "leave twice");
                  check(failure_of([&] { group.barrier(); }).code == TUTTI_FAILED_PRECONDITION,
                        "an operation after leave");
                }),
            "");
}

// Both get it at once, whichever came first, with both sizes.
TEST_F(Faults, WorldSizesThatDiffer) {
  const std::vector<int> layouts[] = {{1, 1}, {2, 0}};  // On two hosts, and on one.
  for (const std::vector<int>& layout : layouts) {
    std::vector<Trainer> trainers = mesh_.start("job", layout, [](const RankContext& given) {
      RankContext context = given;
      if (context.rank == 1) context.world_size = 3;
      const auto begin = std::chrono::steady_clock::now();
      const Error error = failure_of([&] { (void)context.join(60'000); });
      check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30), "at once");
      check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
      check_contains(error, "2 for rank 0 (host a, pid ");
      check_contains(error, "3 for rank 1 (host ");
    });
    EXPECT_EQ(TestMesh::wait(trainers), "");
  }
}

// The machine's own agent may have a token, or settings that only root may read.
TEST_F(Faults, AnEphemeralMeshReadsNoSettingsFileOfTheMachine) {
  std::ifstream file("/proc/" + std::to_string(mesh_.host(0).agent) + "/cmdline");
  const std::string command{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(command.find("--config=/dev/null"), std::string::npos) << command;
}

}  // namespace
}  // namespace tutti
