// Wrong calls of collectives with counts for each rank, or each pair of ranks: the same failure on
// every rank, and the group stays usable. Values: tests/process/values_test.cc.
#include <gtest/gtest.h>

#include "tests/process/task.h"

namespace tutti {
namespace {

using namespace testing;

void expect_failure(Group& group, tutti_code code, const std::string& words, tutti_code got) {
  check(got == code, std::string("the code is ") + tutti_code_name(got));
  const std::string message = tutti_last_error()->message;
  check(message.find(words) != std::string::npos, message);
  check_works(group);
}

TEST(UnevenMesh, RanksThatDisagreeAreNotified) {
  TestMesh mesh(2);
  for (const std::vector<int>& ranks : {std::vector{3, 0}, {2, 1}})
    EXPECT_EQ(
        mesh.run("job " + std::to_string(ranks[0]), ranks,
                 [&](const RankContext& context) {
                   Group group = context.join();
                   std::vector<float> x(100), y(100);
                   Counts counts = {1, 2, 3};
                   if (group.rank() == 2) counts = {1, 3, 2};
                   expect_failure(group, TUTTI_FAILED_PRECONDITION, "with counts (layout ",
                                  tutti_all_gather_v(group.get(), x.data(), y.data(), counts.data(),
                                                     TUTTI_F32, nullptr, nullptr));
                   Counts equal = {2, 2, 2};
                   const Counts told = group.rank() == 1 ? Counts{2, 2, 5} : equal;
                   expect_failure(group, TUTTI_FAILED_PRECONDITION,
                                  "rank 1 sends 5 elements to rank 2, which expects 2",
                                  tutti_all_to_all_v(group.get(), x.data(), told.data(), y.data(),
                                                     equal.data(), TUTTI_F32, nullptr, nullptr));
                   expect_failure(group, TUTTI_FAILED_PRECONDITION, "all_gather f32[3]",
                                  group.rank() == 0
                                      ? tutti_all_gather(group.get(), x.data(), y.data(), 3,
                                                         TUTTI_F32, nullptr, nullptr)
                                      : tutti_all_gather_v(group.get(), x.data(), y.data(),
                                                           Counts{3, 3, 3}.data(), TUTTI_F32,
                                                           nullptr, nullptr));
                 }),
        "");
}

// Rank 0 awaits no element of rank 1, which has another opinion of what rank 0 sends.
TEST(UnevenMesh, RanksThatDisagreeAreNotifiedWhereNoDataComes) {
  TestMesh mesh(2);
  EXPECT_EQ(mesh.run("job", {1, 1},
                     [&](const RankContext& context) {
                       Group group = context.join();
                       for (const size_t other : {4u, 0u}) {
                         std::vector<float> x(5), y(5);
                         const Counts counts = {group.rank() == 0 ? 5 : other, 0};
                         expect_failure(
                             group, TUTTI_FAILED_PRECONDITION, "with counts (layout ",
                             tutti_all_gather_v(group.get(), x.data(), y.data(), counts.data(),
                                                TUTTI_F32, nullptr, nullptr));
                       }
                     }),
            "");
}

TEST(UnevenMesh, ACallRefusedOnOneRankFailsOnAll) {
  TestMesh mesh(1);
  EXPECT_EQ(mesh.run("job", {2},
                     [&](const RankContext& context) {
                       Group group = context.join();
                       std::vector<float> x(100), y(100);
                       const Counts counts = {1, 2};
                       const size_t* given = group.rank() == 1 ? nullptr : counts.data();
                       const auto code = TUTTI_INVALID_ARGUMENT;
                       expect_failure(group, code, "counts is NULL",
                                      tutti_all_gather_v(group.get(), x.data(), y.data(), given,
                                                         TUTTI_F32, nullptr, nullptr));
                       expect_failure(group, code, "counts is NULL",
                                      tutti_all_to_all_v(group.get(), x.data(), given, y.data(),
                                                         given, TUTTI_F32, nullptr, nullptr));
                       const float* in = group.rank() == 1 ? nullptr : x.data();
                       expect_failure(
                           group, code, "a buffer is NULL though the sum of the counts",
                           tutti_reduce_scatter_v(group.get(), in, y.data(), counts.data(),
                                                  TUTTI_F32, TUTTI_SUM, nullptr, nullptr));
                       const Counts huge = {SIZE_MAX, SIZE_MAX};
                       expect_failure(group, code, "is more than any memory holds",
                                      tutti_all_gather_v(group.get(), x.data(), y.data(),
                                                         huge.data(), TUTTI_F32, nullptr, nullptr));
                     }),
            "");
}

// The rest of the time is for the second operation.
TEST(UnevenMesh, ARankThatDoesNotCallIsNamed) {
  TestMesh mesh(1);
  EXPECT_EQ(mesh.run("job", {2},
                     [&](const RankContext& context) {
                       Group group = context.join();
                       if (group.rank() == 1) return;
                       std::vector<float> x(2), y(2);
                       const Counts ones = {1, 1};
                       const tutti_code code =
                           tutti_all_to_all_v(group.get(), x.data(), ones.data(), y.data(),
                                              ones.data(), TUTTI_F32, nullptr, nullptr);
                       check(code == TUTTI_UNAVAILABLE || code == TUTTI_FAILED_PRECONDITION,
                             tutti_code_name(code));
                       check(tutti_last_error()->rank == 1, tutti_last_error()->message);
                     }),
            "");
}

}  // namespace
}  // namespace tutti
