// tutti_work_notify() and tutti_work_fd(): who learns that an operation has ended, when and where.
#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <future>

#include "tests/client/fixture.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

class NotifyTest : public ClientTest {
 protected:
  static constexpr std::chrono::seconds kPatience{20};

  // Starts an all_reduce of `x` that ends once every rank has called it.
  tutti_work* start(int rank, std::vector<float>& x) {
    tutti_work* work = nullptr;
    EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), x.size(), TUTTI_F32, TUTTI_SUM,
                               nullptr, &work),
              TUTTI_OK);
    return work;
  }
  // The other ranks' part in `operations` operations of `count` elements.
  void others(int operations, size_t count) {
    each([&](int rank) {
      for (int i = 0; rank != 0 && i < operations; ++i) {
        std::vector<float> x = input(rank, count);
        EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), count, TUTTI_F32, TUTTI_SUM,
                                   nullptr, nullptr),
                  TUTTI_OK);
      }
    });
  }
  static bool is_readable(int fd, int timeout_ms) {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, timeout_ms) == 1;
  }
};

// What a function learns when it is called.
struct Told {
  tutti_work* work = nullptr;
  const float* result = nullptr;
  std::promise<float> value;

  static void tell(void* argument) {
    Told& told = *static_cast<Told*>(argument);
    EXPECT_EQ(tutti_work_done(told.work), 1);
    const tutti_code code = tutti_work_wait(told.work, 0);
    told.value.set_value(code == TUTTI_OK ? told.result[1] : -static_cast<float>(code));
  }
};

TEST_F(NotifyTest, TheFunctionIsCalledWhenTheResultIsThere) {
  join_all();
  std::vector<float> x = input(0, 1000);
  Told told{start(0, x), x.data(), {}};
  std::future<float> value = told.value.get_future();
  ASSERT_EQ(tutti_work_notify(told.work, Told::tell, &told), TUTTI_OK);
  // Enough for a thread that does not wait for the operation.
  EXPECT_EQ(value.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  others(1, 1000);
  ASSERT_EQ(value.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(value.get(), summed(1));
  tutti_work_free(told.work);
}

TEST_F(NotifyTest, TheDescriptorIsReadableWhenTheResultIsThere) {
  join_all();
  std::vector<float> x = input(0, 1000);
  tutti_work* work = start(0, x);
  const int fd = tutti_work_fd(work);
  ASSERT_GE(fd, 0);
  EXPECT_FALSE(is_readable(fd, 0));
  others(1, 1000);
  ASSERT_TRUE(is_readable(fd, 20'000));
  EXPECT_EQ(x[1], summed(1));
  EXPECT_EQ(tutti_work_wait(work, 0), TUTTI_OK);
  EXPECT_EQ(tutti_work_fd(work), fd);
  EXPECT_TRUE(is_readable(fd, 0)) << "it stays so";
  tutti_work_free(work);
}

TEST_F(NotifyTest, FunctionsAreCalledInTheOrderOfTheCalls) {
  constexpr int kOperations = 50;
  join_all();
  struct Turn {
    std::vector<int>* order;
    std::promise<void>* all;
    int number;
    static void take(void* argument) {
      const Turn& turn = *static_cast<Turn*>(argument);
      turn.order->push_back(turn.number);
      if (turn.number + 1 == kOperations) turn.all->set_value();
    }
  };
  std::vector<int> order;
  std::promise<void> all;
  std::vector<std::vector<float>> tensors(kOperations, input(0, 10));
  std::vector<Turn> turns;
  for (int i = 0; i < kOperations; ++i) turns.push_back({&order, &all, i});
  std::vector<tutti_work*> works;
  for (int i = 0; i < kOperations; ++i) {
    works.push_back(start(0, tensors[static_cast<size_t>(i)]));
    ASSERT_EQ(tutti_work_notify(works.back(), Turn::take, &turns[static_cast<size_t>(i)]),
              TUTTI_OK);
  }
  others(kOperations, 10);
  ASSERT_EQ(all.get_future().wait_for(kPatience), std::future_status::ready);
  for (int i = 0; i < kOperations; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  for (tutti_work* work : works) tutti_work_free(work);
}

TEST_F(NotifyTest, AFreedHandleIsStillTold) {
  join_all();
  std::vector<float> x = input(0, 10);
  tutti_work* work = start(0, x);
  std::promise<void> told;
  const auto tell = [](void* argument) { static_cast<std::promise<void>*>(argument)->set_value(); };
  ASSERT_EQ(tutti_work_notify(work, tell, &told), TUTTI_OK);
  ASSERT_GE(tutti_work_fd(work), 0);
  tutti_work_free(work);
  others(1, 10);
  EXPECT_EQ(told.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(NotifyTest, ALeaveTellsToo) {
  join_all();
  std::vector<float> x = input(0, 1000);
  Told told{start(0, x), x.data(), {}};
  std::future<float> value = told.value.get_future();
  ASSERT_EQ(tutti_work_notify(told.work, Told::tell, &told), TUTTI_OK);
  ASSERT_EQ(tutti_leave(group(0)), TUTTI_OK);
  ASSERT_EQ(value.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(value.get(), -static_cast<float>(TUTTI_CANCELLED));
  tutti_work_free(told.work);
}

// The function frees the last handles of the job, on the library's thread.
TEST_F(NotifyTest, TheLastHandlesMayBeFreedInTheFunction) {
  join_all();
  struct Last {
    tutti_work* work;
    tutti_group* group;
    std::promise<void> freed;
    static void free(void* argument) {
      Last& last = *static_cast<Last*>(argument);
      tutti_work_free(last.work);
      tutti_group_free(last.group);
      last.freed.set_value();
    }
  };
  std::vector<float> x = input(0, 10);
  Last last{start(0, x), group(0), {}};
  ASSERT_EQ(tutti_work_notify(last.work, Last::free, &last), TUTTI_OK);
  others(1, 10);
  ASSERT_EQ(last.freed.get_future().wait_for(kPatience), std::future_status::ready);
  groups[0] = nullptr;
}

TEST_F(NotifyTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(tutti_work_notify(nullptr, Told::tell, nullptr), TUTTI_INVALID_ARGUMENT);
  EXPECT_THAT(tutti_last_error()->message, HasSubstr("the work is NULL"));
  EXPECT_EQ(tutti_work_fd(nullptr), -1);
  join_all();
  std::vector<float> x = input(0, 10);
  tutti_work* work = start(0, x);
  EXPECT_EQ(tutti_work_notify(work, nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
  EXPECT_THAT(tutti_last_error()->message, HasSubstr("no function"));
  others(1, 10);
  tutti_work_free(work);
}

// The thread is the parent's: a child would wait for ever.
TEST_F(NotifyTest, AForkedChildIsRefused) {
  join_all();
  std::vector<float> x = input(0, 10);
  tutti_work* work = start(0, x);
  ASSERT_GE(tutti_work_fd(work), 0);
  const pid_t child = fork();
  if (child == 0) _exit(tutti_work_notify(work, Told::tell, nullptr));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), TUTTI_FAILED_PRECONDITION);
  others(1, 10);
  tutti_work_free(work);
}

}  // namespace
}  // namespace tutti
