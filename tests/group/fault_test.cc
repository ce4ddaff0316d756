// Faults among hosts and the statuses of all ranks: disagreement, absence, death, lost hosts,
// hostile frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "daemon/group/control.h"
#include "tests/group/agreement.h"
#include "tests/worker/tensors.h"

namespace tutti {
namespace {

using testing::all_reduce_of;
using testing::Cluster;
using testing::ClusterHost;
using ::testing::HasSubstr;
using testing::Tensors;

class EpochFaultTest : public ::testing::Test {
 protected:
  Call call(uint64_t count, uint32_t timeout_ms = 0) {
    auto memory = std::make_shared<testing::Bytes>(count * 4);
    Call call;
    call.signature = all_reduce_of(count);
    call.in = call.out = memory->data();
    call.memory = memory;
    call.timeout_ms = timeout_ms;
    return call;
  }

  void leave(int rank, const Status& cause) {
    cluster_.host_of[rank]->run([&] { cluster_.host_of[rank]->epoch->leave(rank, cause); });
  }

  void expect_usable() {
    Tensors tensors(cluster_, all_reduce_of(1000));
    tensors.run_and_check();
  }

  Cluster cluster_{{2, 2}};
};

TEST_F(EpochFaultTest, DisagreementIsTheSameErrorForAllAndTheGroupGoesOn) {
  const std::vector<Status> statuses =
      cluster_.all([&](int rank) { return call(rank == 2 ? 5 : 4); });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_EQ(status, statuses[0]);
    EXPECT_THAT(status.message(), HasSubstr("f32[4]"));
    EXPECT_THAT(status.message(), HasSubstr("f32[5]"));
  }
  expect_usable();
}

TEST_F(EpochFaultTest, LateCallersOfAFailedOperationGetItsFailure) {
  auto first = cluster_.submit(0, call(4, 600'000));
  auto second = cluster_.submit(3, call(5, 600'000));
  const Status status = first.get();
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("f32[4]"), HasSubstr("f32[5]")));
  EXPECT_EQ(second.get(), status);
  EXPECT_EQ(cluster_.submit(1, call(4)).get(), status);
  EXPECT_EQ(cluster_.submit(2, call(4)).get(), status);
  expect_usable();
}

TEST_F(EpochFaultTest, AnAbsentRankIsNamedAtTheDeadline) {
  std::vector<std::future<Status>> waiting;
  for (const int rank : {0, 1, 3}) waiting.push_back(cluster_.submit(rank, call(4, 100)));
  for (auto& future : waiting) {
    const Status status = future.get();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_EQ(status.culprit(), (Culprit{2, "b"}));
    EXPECT_THAT(status.message(), HasSubstr("rank 2 (host b, pid 1002)"));
  }
  EXPECT_EQ(cluster_.submit(2, call(4)).get().code(), Code::deadline_exceeded);
  expect_usable();
}

TEST_F(EpochFaultTest, ATimeoutCountsFromTheRanksCall) {
  Call late = call(4, 600'000);
  late.started = Clock::now() - Millis(600'000);
  const Status status = cluster_.submit(0, std::move(late)).get();
  EXPECT_EQ(status.code(), Code::deadline_exceeded);
  for (const int rank : {1, 2, 3}) EXPECT_EQ(cluster_.submit(rank, call(4)).get(), status);
  expect_usable();
}

TEST_F(EpochFaultTest, ADeadRankFailsWhatItHadNotReachedAtOnce) {
  auto reached = cluster_.submit(3, call(4));
  std::vector<std::future<Status>> first, second;
  for (const int rank : {0, 1}) first.push_back(cluster_.submit(rank, call(4)));
  for (const int rank : {0, 1}) second.push_back(cluster_.submit(rank, call(4)));
  leave(3, unavailable("rank 3 (host b, pid 1003) died"));
  for (auto& future : second) {
    const Status status = future.get();
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_EQ(status.culprit(), (Culprit{3, "b"}));
    EXPECT_THAT(status.message(), HasSubstr("rank 3 (host b, pid 1003) died during all_reduce #1"));
  }
  EXPECT_TRUE(cluster_.submit(2, call(4)).get().ok());
  for (auto& future : first) EXPECT_TRUE(future.get().ok());
  EXPECT_EQ(cluster_.submit(2, call(4)).get().culprit().rank, 3);
}

// The first rank's operation fails before the other rank's host has made the group; the other rank
// gets the same status.
TEST_F(EpochFaultTest, AFailureOfASubgroupWaitsForThoseWhoMakeItLater) {
  for (const std::vector<uint32_t>& ranks : {std::vector<uint32_t>{0, 2}, {3, 1}}) {
    std::vector<Status> statuses;
    for (const uint32_t member : ranks) {
      const auto rank = static_cast<int>(member);
      ClusterHost& host = *cluster_.host_of[rank];
      Result<uint32_t> group = internal_error("");
      host.run([&] { group = host.epoch->subgroup(rank, ranks); });
      ASSERT_TRUE(group.ok());
      Call refused = call(4);
      if (statuses.empty()) refused.invalid = invalid_argument("nonsense", {rank, host.host});
      statuses.push_back(cluster_.submit(rank, refused, *group).get());
    }
    EXPECT_EQ(statuses[0].code(), Code::invalid_argument);
    EXPECT_EQ(statuses[1], statuses[0]);
  }
  expect_usable();
}

TEST_F(EpochFaultTest, GroupsHaveNumbersOfTheirOwnAndALimit) {
  std::set<uint32_t> numbers = {0};
  uint32_t made = 1;
  Status last;
  cluster_.hosts[0]->run([&] {
    for (; last.ok(); ++made) {
      const auto group = cluster_.hosts[0]->epoch->subgroup(0, {0, 1 + made % 3});
      last = group.status();
      EXPECT_TRUE(!group.ok() || numbers.insert(*group).second) << "a number came twice";
    }
  });
  EXPECT_EQ(last.code(), Code::resource_exhausted);
  EXPECT_EQ(numbers.size(), kGroupsMax);
  expect_usable();
}

// Ranks 0 and 1 are on one host.
TEST(GroupLimit, TheLastGroupIsForAllItsRanks) {
  Cluster cluster({2, 1});
  const auto make = [&](int rank) {
    Result<uint32_t> group = internal_error("");
    cluster.hosts[0]->run([&] { group = cluster.hosts[0]->epoch->subgroup(rank, {0, 1}); });
    return group;
  };
  std::vector<uint32_t> numbers;
  for (Result<uint32_t> group = make(0); group.ok(); group = make(0)) numbers.push_back(*group);
  EXPECT_EQ(numbers.size(), kGroupsMax - 1) << "and the whole job";
  for (const uint32_t number : numbers) {
    const Result<uint32_t> group = make(1);
    ASSERT_TRUE(group.ok()) << group.status().to_string();
    EXPECT_EQ(*group, number);
  }
  EXPECT_EQ(make(1).status().code(), Code::resource_exhausted);
}

TEST_F(EpochFaultTest, ARankThatLeftIsSaidToHaveLeft) {
  leave(1, {});
  const Status status = cluster_.submit(2, call(4)).get();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (host a, pid 1001) left"));
}

// A rank that leaves because another one died is listed after it on the leader's host.
TEST_F(EpochFaultTest, TheLeaderListsDeparturesInTheirOrder) {
  const auto departures = [this] {
    std::vector<std::string> departed;
    cluster_.hosts[0]->run([&] {
      for (const Departure& one : cluster_.hosts[0]->epoch->departures())
        departed.push_back(std::to_string(one.rank) + ": " + one.cause.message());
    });
    return departed;
  };
  leave(3, unavailable("rank 3 (host b, pid 1003) died"));
  EXPECT_EQ(cluster_.submit(0, call(4)).get().culprit().rank, 3);
  EXPECT_THAT(departures(), ::testing::ElementsAre("3: rank 3 (host b, pid 1003) died"));
  leave(0, {});
  EXPECT_EQ(cluster_.submit(2, call(4)).get().code(), Code::unavailable);
  leave(2, {});
  while (departures().size() < 3) std::this_thread::yield();
  EXPECT_THAT(departures(),
              ::testing::ElementsAre("3: rank 3 (host b, pid 1003) died", "0: ", "2: "));
}

TEST_F(EpochFaultTest, ALostHostEndsTheEpochForAllByName) {
  auto waiting = cluster_.submit(0, call(4));
  cluster_.hosts[1]->transport.reset();
  const Status status = waiting.get();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_EQ(status.culprit(), (Culprit{-1, "b"}));
  EXPECT_THAT(status.message(), HasSubstr("host b (ranks 2, 3)"));
  EXPECT_EQ(cluster_.submit(1, call(4)).get(), status);
  EXPECT_EQ(cluster_.submit(2, call(4)).get().code(), Code::unavailable);
}

TEST_F(EpochFaultTest, AnAbortIsReportedOnceToEveryHostAndUserOfTheEpoch) {
  auto waiting = cluster_.submit(0, call(4));
  const Status cause = unavailable("host b was stopped", {2, "b"});
  cluster_.hosts[1]->run([&] { cluster_.hosts[1]->epoch->abort(cause); });
  EXPECT_EQ(waiting.get(), cause);
  EXPECT_EQ(cluster_.submit(3, call(4)).get(), cause);
  for (const auto& host : cluster_.hosts)
    host->run([&] { EXPECT_EQ(host->ends, std::vector<Status>{cause}); });
}

TEST_F(EpochFaultTest, ACallOutOfOrderIsRefusedAndChangesNothing) {
  expect_usable();
  const Status status = cluster_.submit_as_numbered(1, call(4)).get();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("makes call #0 where #1 is its next"));
  EXPECT_EQ(status.culprit(), (Culprit{1, "a"}));
  expect_usable();
}

TEST_F(EpochFaultTest, HostsThatWaitForEachOtherByDifferentRootsAreNotifiedSoon) {
  std::vector<Status> statuses = cluster_.all([&](int rank) {
    Call asked = call(4, 60'000);
    asked.signature.collective = Collective::broadcast;
    asked.signature.root = rank < 2 ? 0 : 2;
    return asked;
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status, statuses[0]);
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_THAT(status.message(), HasSubstr("root=2"));
  }
  expect_usable();
}

// In two rounds, so that neither host completes it without the other.
const Signature kNext = {Collective::all_reduce,
                         Dtype::f32,
                         Op::sum,
                         3,
                         0,
                         {{StrategyKind::centralized, 0}, {StrategyKind::ring, 0}}};

// A frame of host b (rank 1) that is invalid in the `kind`-th way.
Outgoing hostile_data(int kind) {
  static const testing::Bytes bytes(12, std::byte{0xff});
  Outgoing frame;
  frame.header.epoch = kind == 0 ? 7 : 1;
  frame.header.group = kind == 1 ? 99 : 0;
  frame.header.from = kind == 2 ? 0 : kind == 3 ? 60'000 : 1;  // Rank 0 lives on the other host.
  frame.header.op_seq = 1;
  if (kind == 4) frame.header.kind = FrameKind::control;  // Not a Control.
  if (kind == 5) {  // Looks like the data that operation 1 waits for.
    frame.header.dtype = 200;
    frame.header.agreement =
        agreement_of(kNext, kNext.strategies, EpochOptions().slice_bytes, hash_of({0, 1}));
  }
  frame.bytes = bytes;
  return frame;
}

Outgoing hostile_control(int kind) {
  v1::ControlBatch batch;
  v1::Control& control = *batch.add_controls();
  if (kind == 6) control.mutable_abort()->set_code(0);  // Would complete what runs, as if well.
  if (kind == 7) control.mutable_gone()->set_rank(0);   // Word of another host's rank.
  if (kind == 8) control.mutable_fail()->set_code(3);   // A verdict, from who does not lead.
  if (kind == 9) control.mutable_adopt()->set_version(1);
  if (kind == 10) control.mutable_report()->set_reason(77);
  if (kind == 11) control.mutable_report()->mutable_signature()->set_dtype(77);
  if (kind == 12) control.mutable_announce();  // Of a group without members.
  if (kind == 13) control.mutable_rates()->add_rates()->set_from(77);
  return control_frame(1, batch);
}

// Each of these frames must end the epoch, by name, and never the process. (1: a frame of a group
// that no rank has made, beyond the limit of such frames.)
class HostileFrameTest : public ::testing::TestWithParam<int> {};

TEST_P(HostileFrameTest, EndsTheEpochByNameAndNothingElse) {
  testing::ClusterOptions options;
  options.epoch.early_bytes = 20;
  Cluster cluster({1, 1}, options);
  Tensors warm(cluster, all_reduce_of(10));
  warm.run_and_check();
  const LinkHello hello{"demo", 1, "b", "secret"};
  auto handler = std::make_shared<LoopHandler>(cluster.hosts[1]->loop);
  Outgoing frame = GetParam() < 6 ? hostile_data(GetParam()) : hostile_control(GetParam());
  auto link = cluster.hosts[1]->transport->connect(cluster.hosts[0]->address, hello, handler);
  std::promise<void> sent;
  frame.released = [&, kept = frame.released] { sent.set_value(); };
  ASSERT_TRUE(link->send(frame).ok());
  sent.get_future().wait();
  std::vector<std::future<Status>> futures;
  Tensors tensors(cluster, kNext);
  for (int rank = 0; rank < 2; ++rank) futures.push_back(cluster.submit(rank, tensors.call(rank)));
  for (auto& future : futures) {
    const Status status = future.get();
    EXPECT_EQ(status.code(), GetParam() == 5 ? Code::data_loss : Code::unavailable)
        << status.to_string();
  }
  handler->unbind();
  link->close(aborted("test ends"));
}

INSTANTIATE_TEST_SUITE_P(Frames, HostileFrameTest, ::testing::Range(0, 14));

// A frame with another agreement is never used, and may come too late to matter. The parameter is
// the rank that calls first: the leader can hold host b's answer against its data only if b has
// started the operation when it is asked.
class AgreementFrameTest : public ::testing::TestWithParam<int> {};

TEST_P(AgreementFrameTest, AFrameOfAnotherAgreementIsNeverUsed) {
  Cluster cluster({1, 1});
  Tensors warm(cluster, all_reduce_of(10));
  warm.run_and_check();
  auto handler = std::make_shared<LoopHandler>(cluster.hosts[1]->loop);
  const LinkHello hello{"demo", 1, "b", "secret"};
  auto link = cluster.hosts[1]->transport->connect(cluster.hosts[0]->address, hello, handler);
  Outgoing frame = hostile_data(99);
  std::promise<void> sent;
  frame.released = [&] { sent.set_value(); };
  ASSERT_TRUE(link->send(frame).ok());
  sent.get_future().wait();
  Tensors tensors(cluster, kNext);
  const int first = GetParam();
  std::future<Status> futures[2];
  futures[first] = cluster.submit(first, tensors.call(first));
  cluster.hosts[static_cast<size_t>(first)]->run([] {});  // It has taken the call.
  futures[1 - first] = cluster.submit(1 - first, tensors.call(1 - first));
  bool completed = true;
  for (auto& future : futures) {
    const Status end = future.get();
    completed &= end.ok();
    if (end.ok()) continue;
    if (first == 0 && end.code() == Code::failed_precondition) {
      EXPECT_EQ(end.culprit(), Culprit()) << end.to_string();
      EXPECT_THAT(end.message(), HasSubstr("another host asks for something else"));
      continue;
    }
    EXPECT_EQ(end.code(), Code::unavailable) << end.to_string();
    EXPECT_THAT(end.message(), HasSubstr("the worker of host b (ranks 1) is lost"));
  }
  if (completed) tensors.check();
  handler->unbind();
  link->close(aborted("test ends"));
}

INSTANTIATE_TEST_SUITE_P(FirstCaller, AgreementFrameTest, ::testing::Range(0, 2));

TEST(LinkRouterTest, ALinkWithoutTheSecretIsTurnedAway) {
  Cluster cluster({1, 1});
  for (const LinkHello& hello :
       {LinkHello{"demo", 1, "b", "guess"}, LinkHello{"demo", 1, "b", ""},
        LinkHello{"other", 1, "b", "secret"}, LinkHello{"demo", 0, "b", "secret"},
        LinkHello{"demo", 1, "z", "secret"}}) {
    auto handler = std::make_shared<LoopHandler>(cluster.hosts[1]->loop);
    std::promise<Status> closed;
    cluster.hosts[1]->run(
        [&] { handler->bind([](Frame) {}, [&](Status why) { closed.set_value(why); }); });
    auto link = cluster.hosts[1]->transport->connect(cluster.hosts[0]->address, hello, handler);
    const Status why = closed.get_future().get();
    EXPECT_FALSE(why.ok());
    cluster.hosts[1]->run([&] { handler->unbind(); });
  }
  Tensors tensors(cluster, all_reduce_of(10));
  tensors.run_and_check();
}

}  // namespace
}  // namespace tutti
