// The event loop: timers, posted tasks and descriptors, in their order.
#include "daemon/base/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <thread>

namespace tutti {
namespace {

// Far enough for the slowest machine; no test waits so long unless it fails.
TimePoint far() { return Clock::now() + std::chrono::seconds(60); }

Fd make_eventfd(int value) { return Fd(eventfd(value, EFD_CLOEXEC | EFD_NONBLOCK)); }

TEST(Loop, TimersRunInOrderOfTimeThenOfSetting) {
  Loop loop;
  std::string order;
  const TimePoint now = Clock::now();
  loop.at(now + Millis(20), [&] { order += "d"; });
  loop.at(now + Millis(5), [&] { order += "b"; });
  loop.at(now + Millis(5), [&] { order += "c"; });
  loop.at(now - Millis(5), [&] { order += "a"; });
  loop.at(now + Millis(25), [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(order, "abcd");
}

TEST(Loop, NoTimerRunsBeforeItsTimeHoweverOftenTheLoopTurns) {
  Loop loop;
  const Fd ready = make_eventfd(1);
  ASSERT_TRUE(loop.watch(ready.get(), EPOLLIN, [](uint32_t) {}).ok());
  const TimePoint when = Clock::now() + Millis(15);
  TimePoint ran;
  loop.at(when, [&] {
    ran = Clock::now();
    loop.stop();
  });
  loop.run();
  EXPECT_GE(ran, when);
}

TEST(Loop, ACancelledTimerNeverRuns) {
  Loop loop;
  std::string order;
  const TimePoint now = Clock::now();
  const Loop::TimerId second = loop.at(now + Millis(2), [&] { order += "2"; });
  const Loop::TimerId first = loop.at(now, [&] {
    order += "1";
    loop.cancel(second);
  });
  loop.at(now + Millis(4), [&] {
    loop.cancel(first);  // It ran.
    loop.cancel(0);
    loop.cancel(second);
    loop.stop();
  });
  loop.run();
  EXPECT_EQ(order, "1");
}

TEST(Loop, ATimerMaySetAnother) {
  Loop loop;
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds == 5) return loop.stop();
    loop.at(Clock::now() + Millis(1), again);
  };
  loop.at(Clock::now(), again);
  loop.run();
  EXPECT_EQ(rounds, 5);
}

TEST(Loop, PostedTasksRunInOrderOnTheLoopsThread) {
  Loop loop;
  std::vector<int> seen;
  std::thread::id where;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) loop.post([&seen, i] { seen.push_back(i); });
    loop.post([&] { where = std::this_thread::get_id(); });
    loop.stop();
  });
  loop.run();
  other.join();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(Loop, ManyThreadsMayPost) {
  Loop loop;
  int sum = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        loop.post([&] {
          if (++sum == 4000) loop.stop();
        });
    });
  loop.run();
  EXPECT_EQ(sum, 4000);
}

TEST(Loop, APostWakesALoopThatSleeps) {
  Loop loop;
  int ran = 0;
  const std::jthread other([&] { loop.post([&] { ran = 1; }); });
  while (ran == 0) loop.run_once(far());
  EXPECT_EQ(ran, 1);
}

TEST(Loop, ATaskMayPostAnother) {
  Loop loop;
  std::string order;
  loop.post([&] {
    order += "a";
    loop.post([&] {
      order += "c";
      loop.stop();
    });
    order += "b";
  });
  loop.run();
  EXPECT_EQ(order, "abc");
}

TEST(Loop, ATurnEndsAtItsTimeWithNothingToDo) {
  Loop loop;
  const TimePoint until = Clock::now() + Millis(10);
  loop.run_once(until);
  EXPECT_GE(Clock::now(), until);
}

TEST(Loop, CallsWhileADescriptorIsReady) {
  Loop loop;
  const Fd fd = make_eventfd(1);
  int calls = 0;
  ASSERT_TRUE(loop.watch(fd.get(), EPOLLIN,
                         [&](uint32_t events) {
                           EXPECT_EQ(events, static_cast<uint32_t>(EPOLLIN));
                           ++calls;
                         })
                  .ok());
  loop.run_once(far());
  loop.run_once(far());
  EXPECT_EQ(calls, 2) << "readiness is a level, not an edge";
  eventfd_t value = 0;
  eventfd_read(fd.get(), &value);
  loop.run_once(Clock::now());
  EXPECT_EQ(calls, 2);
}

TEST(Loop, WatchingAgainReplaces) {
  Loop loop;
  const Fd fd = make_eventfd(1);
  std::string order;
  ASSERT_TRUE(loop.watch(fd.get(), EPOLLIN, [&](uint32_t) { order += "a"; }).ok());
  ASSERT_TRUE(loop.watch(fd.get(), EPOLLOUT,
                         [&](uint32_t events) {
                           EXPECT_EQ(events, static_cast<uint32_t>(EPOLLOUT));
                           order += "b";
                         })
                  .ok());
  loop.run_once(far());
  EXPECT_EQ(order, "b");
}

TEST(Loop, AnUnwatchedDescriptorIsSilentEvenInTheSameTurn) {
  Loop loop;
  const Fd one = make_eventfd(1);
  const Fd two = make_eventfd(1);
  int calls = 0;
  const auto watch_either = [&](const Fd& self, const Fd& other) {
    return loop.watch(self.get(), EPOLLIN, [&](uint32_t) {
      ++calls;
      loop.unwatch(other.get());
    });
  };
  ASSERT_TRUE(watch_either(one, two).ok());
  ASSERT_TRUE(watch_either(two, one).ok());
  loop.run_once(far());
  EXPECT_EQ(calls, 1);
}

TEST(Loop, ANewDescriptorGetsNoEventOfAnEarlierOne) {
  Loop loop;
  Fd one = make_eventfd(1);
  Fd two = make_eventfd(1);
  const Fd idle = make_eventfd(0);
  int calls = 0;
  int wrong = 0;
  const auto watch_either = [&](Fd& self, Fd& other) {
    return loop.watch(self.get(), EPOLLIN, [&](uint32_t) {
      ++calls;
      const int number = other.get();
      loop.unwatch(number);
      other.reset();
      other = Fd(fcntl(idle.get(), F_DUPFD_CLOEXEC, number));
      ASSERT_EQ(other.get(), number);
      ASSERT_TRUE(loop.watch(number, EPOLLIN, [&](uint32_t) { ++wrong; }).ok());
    });
  };
  ASSERT_TRUE(watch_either(one, two).ok());
  ASSERT_TRUE(watch_either(two, one).ok());
  loop.run_once(far());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(wrong, 0);
}

TEST(Loop, AWatchThatReplacesAnotherHasTheEdgeOnce) {
  Loop loop;
  const Fd one = make_eventfd(1);
  const Fd two = make_eventfd(1);
  int replaced = 0;
  int seen = 0;
  const auto watch_either = [&](const Fd& self, const Fd& other) {
    return loop.watch(self.get(), EPOLLIN | EPOLLET, [&](uint32_t) {
      ++replaced;
      const auto count = [&](uint32_t) { ++seen; };
      ASSERT_TRUE(loop.watch(other.get(), EPOLLIN | EPOLLET, count).ok());
    });
  };
  ASSERT_TRUE(watch_either(one, two).ok());
  ASSERT_TRUE(watch_either(two, one).ok());
  loop.run_once(far());
  EXPECT_EQ(replaced, 1);
  EXPECT_EQ(seen, 0);
  loop.run_once(far());
  loop.run_once(Clock::now());
  EXPECT_EQ(seen, 1);
}

TEST(Loop, ATurnWithinATurnLeavesTheOuterOnesEventsAlone) {
  Loop loop;
  std::vector<Fd> fds;
  for (int i = 0; i < 5; ++i) fds.push_back(make_eventfd(i < 2 ? 1 : 0));
  std::vector<int> calls(fds.size());
  const auto called = [&](size_t which) {
    if (++calls[which] > 1 || which >= 2 || calls[0] + calls[1] > 1) return;
    for (size_t i = 2; i < fds.size(); ++i) eventfd_write(fds[i].get(), 1);
    loop.run_once(Clock::now());
  };
  for (size_t i = 0; i < fds.size(); ++i)  // By edges: what is lost does not come again.
    ASSERT_TRUE(loop.watch(fds[i].get(), EPOLLIN | EPOLLET, [&, i](uint32_t) { called(i); }).ok());
  loop.run_once(Clock::now());
  EXPECT_EQ(calls, std::vector<int>(fds.size(), 1));
}

TEST(Loop, ACallbackMayUnwatchItselfAndWatchAnother) {
  Loop loop;
  const Fd one = make_eventfd(1);
  const Fd two = make_eventfd(1);
  std::string order;
  ASSERT_TRUE(loop.watch(one.get(), EPOLLIN,
                         [&](uint32_t) {
                           const std::string kept(64,
                                                  'x');  // The callback outlives its own removal.
                           loop.unwatch(one.get());
                           order += "one" + kept.substr(64);
                           EXPECT_TRUE(loop.watch(two.get(), EPOLLIN,
                                                  [&](uint32_t) {
                                                    order += "two";
                                                    loop.stop();
                                                  })
                                           .ok());
                         })
                  .ok());
  loop.run();
  EXPECT_EQ(order, "onetwo");
}

TEST(Loop, WatchingNonsenseIsAnError) {
  Loop loop;
  const Status status = loop.watch(-1, EPOLLIN, [](uint32_t) {});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("cannot watch descriptor"), std::string::npos);
  loop.unwatch(-1);
  loop.unwatch(12345);
}

TEST(Loop, AwakeItSeesWhatASleeperSees) {
  Loop loop;
  loop.stay_awake([] { return std::chrono::hours(1); });
  const Fd ready(eventfd(1, EFD_CLOEXEC));
  int seen = 0;
  ASSERT_TRUE(loop.watch(ready.get(), EPOLLIN,
                         [&](uint32_t) {
                           loop.unwatch(ready.get());
                           ++seen;
                         })
                  .ok());
  loop.at(Clock::now() + Millis(20), [&] { ++seen; });
  std::thread poster([&] { loop.post([&] { ++seen; }); });
  loop.at(Clock::now() + Millis(40), [&] { loop.stop(); });
  loop.run();
  poster.join();
  EXPECT_EQ(seen, 3);
  const TimePoint until = Clock::now() + Millis(10);
  loop.run_once(until);
  EXPECT_GE(Clock::now() + Millis(1), until);
}

double cpu_ms_of_this_thread() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

// Whether anybody waits changes from one event to the next.
TEST(Loop, HowLongToStayAwakeIsAskedEachTime) {
  Loop loop;
  Micros awake = std::chrono::hours(1);
  loop.stay_awake([&] { return awake; });
  const Fd ready = make_eventfd(1);
  ASSERT_TRUE(loop.watch(ready.get(), EPOLLIN, [&](uint32_t) { loop.unwatch(ready.get()); }).ok());
  loop.run_once(far());
  awake = Micros(0);
  const double before = cpu_ms_of_this_thread();
  loop.run_once(Clock::now() + Millis(200));
  EXPECT_LT(cpu_ms_of_this_thread() - before, 20);
}

TEST(Loop, TasksLeftWhenTheLoopEndsAreDropped) {
  bool ran = false;
  {
    Loop loop;
    loop.stop();
    loop.run();
    loop.post([&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace tutti
