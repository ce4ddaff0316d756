// Collectives with counts for each rank, or each pair of ranks, with real agents, workers and
// processes, on one host and over several.
#include "tests/support/uneven.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/process/board_fixture.h"

namespace tutti {
namespace {

using namespace testing;

// How a rank calls.
struct Call {
  Memory memory = Memory::ordinary;
  bool async = false;
  bool in_place = false;
  std::string strategy;
};

// One rank's part of an operation on f32.
class UnevenPart {
 public:
  UnevenPart(Group& group, const Uneven& uneven, const Call& call)
      : group_(group),
        uneven_(uneven),
        call_(call),
        given_(uneven.input(group.rank())),
        want_(uneven.output(group.rank())),
        in_(group, std::max(given_.size(), in_place() ? want_.size() : 0) * 4, is_shared(false)),
        out_(group, in_place() ? 0 : want_.size() * 4, is_shared(true)) {
    for (size_t i = 0; i < given_.size(); ++i) put_as(in() + 4 * i, static_cast<float>(given_[i]));
  }

  void run() {
    tutti_work* work = nullptr;
    tutti_options options = tutti_defaults();
    if (!call_.strategy.empty()) options.strategy = call_.strategy.c_str();
    Error::check(start(options, call_.async ? &work : nullptr));
    if (work != nullptr) Work(work).wait();
    for (size_t i = 0; i < want_.size(); ++i)
      if (const double got = get_as<float>(out() + 4 * i); got != want_[i])
        check(false, std::string(name_of(uneven_.collective)) + " rank " +
                         std::to_string(group_.rank()) + ": element " + std::to_string(i) + " is " +
                         std::to_string(got) + ", not " + std::to_string(want_[i]));
  }

 private:
  bool in_place() const { return call_.in_place && !uneven_.is_exchange(); }
  bool is_shared(bool output) const {
    if (call_.memory == Memory::by_rank) return group_.rank() % 2 == 1;
    if (call_.memory == Memory::by_side) return output;
    return call_.memory == Memory::shared;
  }
  // For this rank's block among those of the larger side.
  size_t own_block() const {
    size_t before = 0;
    for (int r = 0; r < group_.rank(); ++r) before += uneven_.counts[static_cast<size_t>(r)];
    return in_place() ? before * 4 : 0;
  }
  std::byte* in() const {
    return in_.data() + (uneven_.collective == Collective::all_gather ? own_block() : 0);
  }
  std::byte* out() const {
    if (!in_place()) return out_.data();
    return in_.data() + (uneven_.collective == Collective::reduce_scatter ? own_block() : 0);
  }

  tutti_code start(const tutti_options& options, tutti_work** work) {
    if (uneven_.collective == Collective::all_gather)
      return tutti_all_gather_v(group_.get(), in(), out(), uneven_.counts.data(), TUTTI_F32,
                                &options, work);
    if (uneven_.collective == Collective::reduce_scatter)
      return tutti_reduce_scatter_v(group_.get(), in(), out(), uneven_.counts.data(), TUTTI_F32,
                                    TUTTI_SUM, &options, work);
    const Counts sent = uneven_.sent(group_.rank());
    const Counts received = uneven_.received(group_.rank());
    return tutti_all_to_all_v(group_.get(), in(), sent.data(), out(), received.data(), TUTTI_F32,
                              &options, work);
  }

  Group& group_;
  const Uneven uneven_;
  const Call call_;
  const Values given_;
  const Values want_;
  Tensor in_;
  Tensor out_;
};

void every_case(Group& group, size_t large, const std::vector<std::string>& strategies) {
  for (const Uneven& uneven : uneven_cases(group.world_size(), large))
    for (const Memory memory : kMemories)
      for (const bool async : {false, true})
        for (const bool in_place : {false, true})
          for (const std::string& strategy : strategies)
            UnevenPart(group, uneven, {memory, async, in_place, strategy}).run();
}

TEST(UnevenMesh, ValuesOnOneHost) {
  TestMesh mesh(1);
  for (int ranks = 1; ranks <= 4; ++ranks)
    EXPECT_EQ(mesh.run("job", {ranks},
                       [](const RankContext& context) {
                         Group group = context.join();
                         every_case(group, 5000, {"", "tree:2"});
                         every_case(group, 100'003, {""});
                       }),
              "")
        << ranks << " ranks";
}

TEST(UnevenMesh, ValuesOverHosts) {
  TestMesh mesh(3);
  const std::vector<std::string> strategies = {"ring", "centralized", "tree:2"};
  int number = 0;
  // Jobs of their own: that a rank has ended on one host may be heard of after it joins on another.
  for (const std::vector<int>& ranks : {std::vector{1, 1, 0}, {2, 1, 0}, {1, 2, 1}, {0, 1, 3}})
    EXPECT_EQ(mesh.run("job " + std::to_string(number++), ranks,
                       [&](const RankContext& context) {
                         Group group = context.join();
                         every_case(group, 3000, strategies);
                       }),
              "");
}

// More than one slice of the engine, and blocks that end in different slices.
TEST(UnevenMesh, LargeBlocksOverHosts) {
  TestMesh mesh(2);
  EXPECT_EQ(
      mesh.run("job", {2, 1},
               [&](const RankContext& context) {
                 Group group = context.join();
                 for (const Uneven& uneven : uneven_cases(3, 700'003))
                   for (const char* strategy : {"ring", "centralized"})
                     UnevenPart(group, uneven, {Memory::by_rank, false, false, strategy}).run();
               }),
      "");
}

// ---- Wrong calls: the same failure on every rank, and the group stays usable ----

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
