// Invalid arguments and hostile clients over real processes: each gets a named error, and nothing
// leaks.
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/process/board_fixture.h"
#include "tests/support/await.h"
#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace testing;

void expect_code(tutti_code code, tutti_code wanted, const std::string& part) {
  check(code == wanted, "code " + std::to_string(code) + " for " + part);
  const std::string message = tutti_last_error()->message;
  check(message.find(part) != std::string::npos, "'" + message + "' does not say '" + part + "'");
}

// Each mistake is made in one call, by all ranks or by one.
void mistakes(Group& group) {
  float x[4] = {};
  int32_t whole[4] = {};
  const auto dtype = static_cast<tutti_dtype>(99);
  const auto op = static_cast<tutti_op>(99);
  expect_code(tutti_all_reduce(group.get(), x, x, 4, dtype, TUTTI_SUM, nullptr, nullptr),
              TUTTI_INVALID_ARGUMENT, "dtype");
  expect_code(tutti_all_reduce(group.get(), x, x, 4, TUTTI_F32, op, nullptr, nullptr),
              TUTTI_INVALID_ARGUMENT, "op");
  expect_code(
      tutti_all_reduce(group.get(), whole, whole, 4, TUTTI_I32, TUTTI_MEAN, nullptr, nullptr),
      TUTTI_INVALID_ARGUMENT, "MEAN needs a floating-point dtype");
  expect_code(
      tutti_all_reduce(group.get(), x, x, UINT64_MAX / 2, TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
      TUTTI_INVALID_ARGUMENT, "");
  expect_code(tutti_broadcast(group.get(), x, 4, TUTTI_F32, -1, nullptr, nullptr),
              TUTTI_INVALID_ARGUMENT, "root");
  check(failure_of([&] {
          group.all_reduce(std::span<float>(x), sum, {.strategy = "star"});
        }).code == TUTTI_INVALID_ARGUMENT,
        "star");
  const uint32_t stranger[] = {static_cast<uint32_t>(group.rank()), 77};
  check(failure_of([&] { (void)group.subgroup(stranger); }).code == TUTTI_INVALID_ARGUMENT,
        "rank 77");
  check_works(group);
}

void full_board(Group& group, const std::string& sign) {
  constexpr int kMost = 256;
  if (group.rank() == 0) {
    std::vector<std::vector<float>> tensors;
    std::vector<Work> works;
    tensors.reserve(kMost + 1);
    for (int i = 0; i <= kMost; ++i) {
      if (i == kMost)
        write_line("full " + std::to_string(i));  // The next call waits for the other rank.
      tensors.emplace_back(1);
      works.push_back(group.all_reduce_async(std::span(tensors.back())));
    }
    check(std::filesystem::exists(sign), "there was no room before");
    for (Work& work : works) work.wait();
  } else {
    while (!std::filesystem::exists(sign)) poll(nullptr, 0, 5);
    for (int i = 0; i <= kMost; ++i) {
      float one = 1;
      group.all_reduce(std::span<float>(&one, 1));
    }
  }
  check_works(group);
}

class BadInputTest : public ::testing::Test {
 protected:
  SharedCounters signals_;
  TestMesh mesh_{2};
};

TEST_F(BadInputTest, MistakesAreNamedAndNothingIsLost) {
  std::vector<Trainer> trainers = mesh_.start("job", {1, 1}, [this](const RankContext& context) {
    Group group = context.join();
    write_line("joined");
    signals_.wait_for(0, 1);
    mistakes(group);
    const int descriptors = open_descriptors();
    const int mappings = mappings_of(getpid());
    write_line("warm");
    for (int i = 0; i < 50; ++i) mistakes(group);
    check(open_descriptors() == descriptors, "descriptors of the trainer");
    // Sanitizers hold back freed memory; one leaked mapping per round would be 50.
    check(mappings_of(getpid()) <= mappings + 16, "mappings of the trainer");
    write_line("done");
    pause();
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "joined") << trainer.wait();
  const auto worker = static_cast<pid_t>(worker_report(mesh_, 1, "job").pid());
  signals_[0] = 1;  // Not before: while it reports it has a descriptor more.
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "warm") << trainer.wait();
  const int descriptors = open_descriptors(worker);
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "done") << trainer.wait();
  EXPECT_EQ(open_descriptors(worker), descriptors);
}

// The other host gets refused text in a message; a malformed one must not end the epoch.
TEST_F(BadInputTest, WordsThatAreNoTextAreRefusedLikeAnyOthers) {
  std::string cut = "xx";  // The library cuts it inside a character.
  for (int i = 0; i < 400; ++i) cut += "\u00e9";
  const std::vector<std::string> words = {"\xff\xfe", "\xc3", "\xed\xa0\x80", cut};
  EXPECT_EQ(mesh_.run("job", {2, 2},
                      [&](const RankContext& context) {
                        Group group = context.join();
                        for (const std::string& word : words) {
                          for (const int bad : {0, 3}) {
                            const Error error = failure_of([&] {
                              testing::all_reduce_of(
                                  group, 10, {.strategy = context.rank == bad ? word : "ring"});
                            });
                            check(error.code == TUTTI_INVALID_ARGUMENT, error.what());
                            check(error.rank == bad || context.rank == bad, error.what());
                          }
                        }
                        check_works(group);
                      }),
            "");
}

TEST_F(BadInputTest, AFullBoardPushesBack) {
  const std::string sign = mesh_.host(0).socket + ".full";
  std::vector<Trainer> trainers = mesh_.start("job", {1, 1}, [&](const RankContext& context) {
    Group group = context.join();
    full_board(group, sign);
  });
  EXPECT_EQ(trainers[0].read_line(), "full 256");
  std::ofstream(sign) << "full";
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(BadInputTest, APeerThatNeverJoinsIsNamed) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, [](const RankContext& context) {
    if (context.rank >= 2) return;
    const Error error = failure_of([&] { (void)context.join(500); });
    check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
    check_contains(error, "ranks 2, 3 of 4 have not joined");
    check(error.rank == 2, "the culprit");
  });
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.mesh().log_tails();
  EXPECT_EQ(mesh_.run("job", {2, 2},
                      [](const RankContext& context) {
                        Group group = context.join();
                        check_works(group);
                      }),
            "");
}

TEST_F(BadInputTest, ASecondJoinOfARankThatStillWaitsHarmsNotTheFirst) {
  const Trainer::Body join_and_work = [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
  };
  const RankContext zero{"job", mesh_.host(0).socket, 0, 2};
  Trainer first(zero, join_and_work);
  await([&] { return worker_report(mesh_, 0, "job").ranks_size() != 0; });
  Trainer second(zero, [](const RankContext& context) {
    const Error error = failure_of([&] { (void)context.join(5'000); });
    check(error.code == TUTTI_ALREADY_EXISTS, error.what());
    check_contains(error, "rank 0");
  });
  EXPECT_EQ(second.wait(), "");
  Trainer other(RankContext{"job", mesh_.host(1).socket, 1, 2}, join_and_work);
  EXPECT_EQ(first.wait(), "");
  EXPECT_EQ(other.wait(), "");
}

TEST_F(BadInputTest, TheJoinsTimeoutIsTheOperationsDefault) {
  EXPECT_EQ(
      mesh_.run("job", {1, 1},
                [](const RankContext& context) {
                  Group group = context.join(3'000);
                  if (context.rank == 0) {
                    const Error error = failure_of([&] { group.barrier(); });
                    check_contains(error, "timed out after 3000 ms");
                    check(error.rank == 1, "the culprit");
                  } else {
                    poll(nullptr, 0, 5'000);  // Late for the other's deadline, whenever it began.
                    check(failure_of([&] { group.barrier(); }).code == TUTTI_DEADLINE_EXCEEDED,
                          "late");
                  }
                }),
      "");
}

TEST_F(BadInputTest, AnAgentThatIsNotThereIsExplained) {
  EXPECT_EQ(mesh_.run("job", {1},
                      [](const RankContext& given) {
                        RankContext context = given;
                        context.socket += ".nowhere";
                        const Error error = failure_of([&] { (void)context.join(1'000); });
                        check(error.code == TUTTI_UNAVAILABLE, error.what());
                        check_contains(error, context.socket);
                        check_contains(error, "tuttid");
                      }),
            "");
}

TEST_F(BadInputTest, ARankThatNeverCallsIsNamedAndTheGroupGoesOn) {
  EXPECT_EQ(
      mesh_.run("job", {2, 2},
                [](const RankContext& context) {
                  Group group = context.join();
                  const std::vector<uint32_t> ranks = {0, 1, 2, 3};
                  Group signal = group.subgroup(ranks);
                  const auto late = [&] { group.barrier({.timeout = std::chrono::seconds(2)}); };
                  if (context.rank == 3) signal.barrier();  // Calls once the others have given up.
                  const Error error = failure_of(late);
                  check(error.code == TUTTI_DEADLINE_EXCEEDED && error.rank == 3, error.what());
                  check_contains(error, "rank 3 (host b, pid ");
                  if (context.rank != 3) signal.barrier();
                  check_works(group);
                }),
      "");
}

TEST_F(BadInputTest, AdminMistakesAreNamed) {
  const std::string address = mesh_.host(0).address;
  EXPECT_EQ(admin_set_strategy(address, "nobody", "ring", 5'000).code(), Code::not_found);
  EXPECT_EQ(admin_set_strategy(address, "nobody", "star", 5'000).code(), Code::invalid_argument);
  EXPECT_EQ(admin_status("127.0.0.1:1", true, 1'000).status().code(), Code::unavailable);
}

}  // namespace
}  // namespace tutti
