// Where the replicas of a process meet: who merges, and what becomes of those who do not come.
#include "client/faces/distribute/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>

namespace tutti::distribute {
namespace {

using testing::HasSubstr;

// Calls body(index) on a thread for each of two replicas, 3 and 5, and waits for both.
void on_two(const std::function<void(Rendezvous&, size_t)>& body) {
  Rendezvous rendezvous({3, 5});
  const std::jthread second([&] { body(rendezvous, 1); });
  body(rendezvous, 0);
}

Status never(const Status& met, const std::vector<void*>&) {
  EXPECT_FALSE(met.ok());
  return met;
}

TEST(Rendezvous, MergesOnceWithTheArgumentsOfAll) {
  std::atomic<int> merges = 0;
  on_two([&](Rendezvous& rendezvous, size_t index) {
    for (int round = 1; round <= 1000; ++round) {
      int own = round * (index == 0 ? 1 : 10);
      const Status status =
          rendezvous.meet(index, {"add", &own}, [&](const Status& met, const auto& arguments) {
            ++merges;
            EXPECT_TRUE(met.ok());
            int& first = *static_cast<int*>(arguments[0]);
            int& second = *static_cast<int*>(arguments[1]);
            first = second = first + second;
            return Status();
          });
      ASSERT_TRUE(status.ok());
      ASSERT_EQ(own, 11 * round);
    }
  });
  EXPECT_EQ(merges, 1000);
}

TEST(Rendezvous, TellsWhoseCallDiffers) {
  on_two([](Rendezvous& rendezvous, size_t index) {
    const Status status = rendezvous.meet(index, {index == 0 ? "add" : "join"}, never);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("replica 3 has 'add', replica 5 has 'join'"));
    const auto merge = [](const Status& met, const std::vector<void*>&) { return met; };
    EXPECT_TRUE(rendezvous.meet(index, {"add"}, merge).ok());
  });
}

TEST(Rendezvous, DoesNotWaitForThoseWhoHaveFinished) {
  on_two([](Rendezvous& rendezvous, size_t index) {
    if (index == 1) return rendezvous.finish(1, invalid_argument("no data"));
    for (int again = 0; again < 2; ++again) {
      const Status status = rendezvous.meet(0, {"add"}, never);
      EXPECT_EQ(status.code(), Code::failed_precondition);
      EXPECT_THAT(status.message(),
                  HasSubstr("replica 5 has failed (no data), while replica 3 waits in add"));
    }
    rendezvous.finish(0, failed_precondition("a consequence"));
    EXPECT_EQ(rendezvous.first_failure().message(), "no data");
  });
}

TEST(Rendezvous, TellsAllWhatTheMergeThrows) {
  on_two([](Rendezvous& rendezvous, size_t index) {
    const Status exhausted = rendezvous.meet(
        index, {"add"}, [](const Status&, const auto&) -> Status { throw std::bad_alloc(); });
    EXPECT_EQ(exhausted.code(), Code::resource_exhausted);
    const Status fault = rendezvous.meet(index, {"add"}, [](const Status&, const auto&) -> Status {
      throw std::runtime_error("broken");
    });
    EXPECT_EQ(fault.code(), Code::internal);
    EXPECT_THAT(fault.message(), HasSubstr("broken"));
  });
}

TEST(Rendezvous, GivesAllTheErrorOfOne) {
  on_two([](Rendezvous& rendezvous, size_t index) {
    const Status own = index == 1 ? invalid_argument("no tensor") : Status();
    const Status status = rendezvous.meet(index, {"add", nullptr, own}, never);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(status.message(), "replica 5: no tensor");
  });
}

constexpr auto kShort = std::chrono::milliseconds(20);

Status pass(const Status& met, const std::vector<void*>&) { return met; }

// Replica 5 misses two rounds. It gets their errors before it meets replica 3 again.
TEST(Rendezvous, DoesNotWaitForLongerThanTheTimeout) {
  std::atomic<bool> missed = false;
  on_two([&](Rendezvous& rendezvous, size_t index) {
    for (int round = 0; round < 2; ++round) {
      while (index == 1 && !missed) std::this_thread::yield();
      const auto timeout = index == 0 ? kShort : std::chrono::minutes(1);
      const Status status = rendezvous.meet(index, {"add", nullptr, {}, timeout}, never);
      EXPECT_EQ(status.code(), Code::deadline_exceeded);
      EXPECT_THAT(status.message(), HasSubstr("replica 3 waits in add"));
      EXPECT_THAT(status.message(), HasSubstr("not called in time: replica 5"));
    }
    missed = true;
    EXPECT_TRUE(rendezvous.meet(index, {"join"}, pass).ok());
  });
}

// Replica 5 comes, and later finishes, while the others' round goes on without it.
TEST(Rendezvous, LetsALateOneWaitForTheRoundThatMissedIt) {
  Rendezvous rendezvous({3, 4, 5});
  std::atomic<bool> merging = false, late_is_done = false;
  const auto others = [&](size_t index) {
    const Status status =
        rendezvous.meet(index, {"add", nullptr, {}, kShort}, [&](const Status& met, const auto&) {
          merging = true;
          while (!late_is_done) std::this_thread::yield();
          return met;
        });
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_EQ(rendezvous.meet(index, {"add"}, never).code(), Code::failed_precondition);
  };
  const std::jthread first(others, 0), second(others, 1);
  while (!merging) std::this_thread::yield();
  EXPECT_EQ(rendezvous.meet(2, {"add"}, never).code(), Code::deadline_exceeded);
  rendezvous.finish(2, {});
  late_is_done = true;
}

}  // namespace
}  // namespace tutti::distribute
