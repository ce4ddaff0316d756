// burn's collective API among the peers of one process: values, order and errors.
#include "client/faces/burn/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "tests/burn/peers.h"
#include "tests/support/memory_limit.h"

namespace tutti::burn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr auto kSum = ReduceOperation::sum;
constexpr auto kMean = ReduceOperation::mean;

// Registers the peers, calls body for each on its thread, and finishes them.
void on_peers(Collective& collective, const CollectiveConfig& config,
              const std::function<void(PeerId)>& body) {
  on_threads(ids_below(config.num_devices), [&](PeerId id) {
    const Status status = collective.register_peer(id, config);
    ASSERT_TRUE(status.ok()) << status.to_string();
    body(id);
    const Status finished = collective.finish_collective(id);
    EXPECT_TRUE(finished.ok()) << finished.to_string();
  });
}

void expect_error(const Status& status, CollectiveError error, const std::string& text = "") {
  EXPECT_THAT(status.message(), AllOf(StartsWith(name_of(error) + ": "), HasSubstr(text)));
  EXPECT_FALSE(status.ok());
}

std::vector<float> sum_of(Collective& collective, PeerId id, const Values<>& values,
                          ReduceOperation op = kSum) {
  const Result<Tensor> result = collective.all_reduce(id, values.view(), op);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  if (!result.ok()) return {};
  EXPECT_EQ(result->shape(), values.shape);
  return numbers_of(*result);
}

TEST(AllReduce, SumsAndMeansOfFourUnderEveryStrategy) {
  for (const Strategy& strategy : kStrategies) {
    SCOPED_TRACE(to_string(strategy));
    Collective collective;
    on_peers(collective, config_of(4, strategy), [&](PeerId id) {
      const auto r = static_cast<float>(id);
      const Values<> values = list({r, r + 1, r + 2, r + 3});
      EXPECT_THAT(sum_of(collective, id, values), ElementsAre(6, 10, 14, 18));
      EXPECT_THAT(sum_of(collective, id, values, kMean), ElementsAre(1.5, 2.5, 3.5, 4.5));
    });
  }
}

TEST(AllReduce, OfOnePeerIsTheIdentity) {
  for (const Strategy& strategy : kStrategies) {
    Collective collective;
    on_peers(collective, config_of(1, strategy), [&](PeerId id) {
      const Values<> values = list({1.1F, -0.0F, 0.0F, -std::nanf("")});
      for (const ReduceOperation op : {kSum, kMean}) {
        const std::vector<float> same = sum_of(collective, id, values, op);
        ASSERT_EQ(same.size(), 4);
        EXPECT_EQ(std::memcmp(same.data(), values.numbers.data(), 3 * sizeof(float)), 0);
        EXPECT_TRUE(std::isnan(same[3]));
      }
    });
  }
}

struct Size {
  uint32_t peers;
  Shape shape;
};

TEST(AllReduce, OfFewerElementsThanPeersAndUnevenOnes) {
  for (const Size& size : {Size{3, {3}}, Size{4, {3}}, Size{4, {5}}, Size{8, {9}}, Size{3, {4}},
                           Size{6, {13}}, Size{4, {2, 2}}, Size{3, {0}}, Size{3, {0, 5}},
                           Size{3, {7, 5}}, Size{5, {}}, Size{240, {3}}})
    for (const Strategy& strategy : kStrategies) {
      SCOPED_TRACE(to_string(strategy) + " " + faces::to_string(size.shape));
      Collective collective;
      const auto count = *faces::count_of(size.shape, Dtype::f32);
      on_peers(collective, config_of(size.peers, strategy), [&](PeerId id) {
        Values<> values = {std::vector<float>(count), size.shape};
        std::vector<float> want(count);
        for (size_t i = 0; i < count; ++i) {
          values.numbers[i] = static_cast<float>(i + id);
          want[i] = static_cast<float>(i * size.peers + size.peers * (size.peers - 1) / 2);
        }
        EXPECT_EQ(sum_of(collective, id, values), want);
      });
    }
}

TEST(AllReduce, GivesTheSameBitsToAllAndInEveryRun) {
  for (const Strategy& strategy : kStrategies) {
    std::vector<float> first;
    for (int run = 0; run < 4; ++run) {
      std::vector<std::vector<float>> results(7);
      Collective collective;
      on_peers(collective, config_of(7, strategy), [&](PeerId id) {
        Values<> values = list(std::vector<float>(5000));
        for (size_t i = 0; i < 5000; ++i)
          values.numbers[i] = std::sin(static_cast<float>(i * 7 + id)) * 1e3F;
        results[id] = sum_of(collective, id, values);
      });
      if (run == 0) first = results[0];
      for (const std::vector<float>& result : results) EXPECT_EQ(result, first);
    }
  }
}

TEST(AllReduce, OfOtherDtypes) {
  Collective collective;
  on_peers(collective, config_of(2), [&](PeerId id) {
    const Values<uint16_t> large = {{0x7b53}, {1}, Dtype::f16};  // 60000: twice that is no f16.
    const auto mean = collective.all_reduce(id, large.view(), kMean);
    EXPECT_THAT(numbers_of<uint16_t>(*mean), ElementsAre(0x7b53));
    const Values<int32_t> integer = {{7}, {1}, Dtype::i32};
    EXPECT_THAT(numbers_of<int32_t>(*collective.all_reduce(id, integer.view(), kSum)),
                ElementsAre(14));
    expect_error(collective.all_reduce(id, integer.view(), kMean).status(), CollectiveError::other,
                 "MEAN needs a floating dtype");
    const Values<uint8_t> yes = {{1}, {1}, Dtype::boolean};
    expect_error(collective.all_reduce(id, yes.view(), kSum).status(), CollectiveError::other,
                 "SUM of bools");
    EXPECT_THAT(numbers_of<uint8_t>(
                    *collective.broadcast(id, id == 0 ? std::optional(yes.view()) : std::nullopt)),
                ElementsAre(1));
  });
}

TEST(AllReduce, ManyInARow) {
  Collective collective;
  on_peers(collective, config_of(3), [&](PeerId id) {
    for (size_t size : {1, 1000, 3, 4096, 0, 100'000})
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(sum_of(collective, id, list(std::vector<float>(size, 2))),
                  std::vector<float>(size, 6));
  });
}

// Each peer calls with values of its own; every one gets this error, and the next call works.
void expect_mismatch(CollectiveError error, const std::string& text,
                     const std::function<Status(Collective&, PeerId)>& call, uint32_t peers = 2) {
  Collective collective;
  on_peers(collective, config_of(peers), [&](PeerId id) {
    expect_error(call(collective, id), error, text);
    EXPECT_THAT(sum_of(collective, id, list({1})), ElementsAre(static_cast<float>(peers)));
  });
}

TEST(Mismatch, OfShapesIsAnErrorOfAll) {
  for (const uint32_t peers : {2U, 4U})
    expect_mismatch(
        CollectiveError::all_reduce_shape_mismatch, "f32[5]",
        [](Collective& collective, PeerId id) {
          return collective.all_reduce(id, list(std::vector<float>(id == 1 ? 5 : 4)).view(), kSum)
              .status();
        },
        peers);
  expect_mismatch(CollectiveError::all_reduce_shape_mismatch, "f32[2,3]",
                  [](Collective& collective, PeerId id) {
                    Values<> values = list(std::vector<float>(6));
                    if (id == 0) values.shape = {2, 3};
                    return collective.all_reduce(id, values.view(), kSum).status();
                  });
}

TEST(Mismatch, OfDtypesAndOperationsIsAnErrorOfAll) {
  expect_mismatch(CollectiveError::all_reduce_shape_mismatch, "f16[1]",
                  [](Collective& collective, PeerId id) {
                    Values<> values = list({1});
                    if (id == 1) values.dtype = Dtype::f16;
                    return collective.all_reduce(id, values.view(), kSum).status();
                  });
  expect_mismatch(CollectiveError::all_reduce_operation_mismatch, "MEAN",
                  [](Collective& collective, PeerId id) {
                    const Values<> one = list({1});
                    return collective.all_reduce(id, one.view(), id == 0 ? kSum : kMean).status();
                  });
}

TEST(Mismatch, OfKindsIsAnErrorOfAll) {
  expect_mismatch(CollectiveError::other, "peer 1 has 'broadcast of f32[1]'",
                  [](Collective& collective, PeerId id) {
                    const Values<> one = list({1});
                    Status status = id == 0 ? collective.all_reduce(id, one.view(), kSum).status()
                                            : collective.broadcast(id, one.view()).status();
                    EXPECT_EQ(status.code(), Code::invalid_argument);
                    return status;
                  });
}

TEST(Mismatch, OfACallThatIsRefusedIsAnErrorOfAll) {
  for (const uint32_t peers : {1U, 2U, 4U})
    expect_mismatch(
        CollectiveError::other, "peer 0: no tensor",
        [](Collective& collective, PeerId id) {
          return id == 0 ? collective.refuse(id, invalid_argument("no tensor"))
                         : collective.all_reduce(id, list({1}).view(), kSum).status();
        },
        peers);
  Collective collective;
  expect_error(collective.refuse(0, invalid_argument("no tensor")),
               CollectiveError::register_not_first_operation);
}

TEST(Reduce, GivesTheRootAlone) {
  for (const Strategy& strategy : {kCentralized, kTree2, Strategy{StrategyKind::tree, 5}}) {
    Collective collective;
    on_peers(collective, config_of(4, strategy), [&](PeerId id) {
      const Values<> values = list({static_cast<float>(id)});
      const auto result = collective.reduce(id, values.view(), kSum, 2);
      ASSERT_TRUE(result.ok());
      ASSERT_EQ(result->has_value(), id == 2);
      if (id == 2) {
        EXPECT_THAT(numbers_of(**result), ElementsAre(6));
      }
    });
  }
}

TEST(Reduce, RefusesWhatDiffers) {
  const auto reduce = [](Collective& collective, PeerId id, size_t size, ReduceOperation op,
                         PeerId root) {
    return collective.reduce(id, list(std::vector<float>(size)).view(), op, root).status();
  };
  expect_mismatch(CollectiveError::register_not_first_operation, "root peer 9",
                  [&](auto& c, PeerId id) { return reduce(c, id, 1, kSum, 9); });
  expect_mismatch(CollectiveError::reduce_root_mismatch, "root=1",
                  [&](auto& c, PeerId id) { return reduce(c, id, 1, kSum, id); });
  expect_mismatch(CollectiveError::reduce_shape_mismatch, "f32[2]",
                  [&](auto& c, PeerId id) { return reduce(c, id, 1 + id, kSum, id); });
  expect_mismatch(CollectiveError::reduce_operation_mismatch, "MEAN",
                  [&](auto& c, PeerId id) { return reduce(c, id, 1, id == 0 ? kSum : kMean, id); });
}

TEST(Broadcast, GivesAllTheOneTensor) {
  for (const Strategy& strategy : {kCentralized, kTree2}) {
    Collective collective;
    CollectiveConfig config = config_of(4);
    config.local_broadcast_strategy = strategy;
    on_peers(collective, config, [&](PeerId id) {
      const Values<> values = list({7, 8});
      const auto own = id == 3 ? std::optional(values.view()) : std::nullopt;
      const Result<Tensor> result = collective.broadcast(id, own);
      ASSERT_TRUE(result.ok());
      EXPECT_THAT(numbers_of(*result), ElementsAre(7, 8));
      EXPECT_NE(result->data(), values.view().data());
    });
  }
}

TEST(Broadcast, NeedsExactlyOneProvider) {
  expect_mismatch(CollectiveError::broadcast_no_tensor, "exactly one must",
                  [](Collective& collective, PeerId id) {
                    return collective.broadcast(id, std::nullopt).status();
                  });
  expect_mismatch(
      CollectiveError::broadcast_multiple_tensors, "peer 1 and peer 2",
      [](Collective& collective, PeerId id) {
        const Values<> one = list({1});
        return collective.broadcast(id, id == 0 ? std::nullopt : std::optional(one.view()))
            .status();
      },
      4);
}

TEST(Register, MustComeFirst) {
  Collective collective;
  const Values<> one = list({1});
  using E = CollectiveError;
  expect_error(collective.all_reduce(0, one.view(), kSum).status(),
               E::register_not_first_operation);
  expect_error(collective.reduce(0, one.view(), kSum, 0).status(), E::register_not_first_operation);
  expect_error(collective.broadcast(0, {}).status(), E::register_not_first_operation);
  expect_error(collective.finish_collective(0), E::register_not_first_operation);
}

TEST(Register, RefusesTheSameIdAndAnotherConfig) {
  Collective collective;
  on_peers(collective, config_of(2), [&](PeerId id) {
    expect_error(collective.register_peer(id, config_of(2)), CollectiveError::multiple_register);
    const PeerId other = id + 2;
    expect_error(collective.register_peer(other, config_of(2, kRing)),
                 CollectiveError::register_params_mismatch,
                 "local_all_reduce_strategy is ring, not tree:2");
    expect_error(collective.register_peer(other, config_of(2)),
                 CollectiveError::register_params_mismatch, "num_devices=2 peers");
    EXPECT_THAT(sum_of(collective, id, list({1})), ElementsAre(2));
  });
  // When all have left, the next one defines the config.
  on_peers(collective, config_of(1, kRing),
           [&](PeerId id) { EXPECT_THAT(sum_of(collective, id, list({1})), ElementsAre(1)); });
}

TEST(Register, FailsWhenOthersDoNotCome) {
  Collective collective({.timeout_ms = 50});
  const Status status = collective.register_peer(0, config_of(2));
  EXPECT_EQ(status.code(), Code::deadline_exceeded);
  EXPECT_THAT(status.message(), HasSubstr("1 of num_devices=2 peers"));
  EXPECT_TRUE(collective.register_peer(0, config_of(1)).ok());
}

TEST(Config, IsCheckedByField) {
  CollectiveConfig partial = config_of(1);
  partial.num_nodes = 2;
  EXPECT_FALSE(partial.is_valid());
  const std::vector<std::pair<CollectiveConfig, std::string>> wrong = {
      {partial, "all or none"},
      {config_of(0), "num_devices=0"},
      {config_of(241), "num_devices=241"},
      {config_of(1, {StrategyKind::tree, 0}), "arity must be >= 1"},
      {config_of(1, {}), "local_all_reduce_strategy=auto"}};
  for (const auto& [config, text] : wrong)
    expect_error(Collective().register_peer(0, config), CollectiveError::invalid_config, text);
  CollectiveConfig ring = config_of(1);
  ring.local_reduce_strategy = kRing;
  expect_error(validate(ring), CollectiveError::invalid_config, "local_reduce_strategy=ring");
  CollectiveConfig global = config_of(1);
  global.global_all_reduce_strategy = kCentralized;
  EXPECT_TRUE(global.is_valid() && validate(global).ok());
  EXPECT_EQ(difference(global, global), "");
}

TEST(Config, OfOneNodeNeedsNoOther) {
  CollectiveConfig config = config_of(1);
  config.num_nodes = 1;
  config.global_address = config.node_address = "ws://here:3000";
  config.data_service_port = 3001;
  Collective collective;
  on_peers(collective, config,
           [&](PeerId id) { EXPECT_THAT(sum_of(collective, id, list({1})), ElementsAre(1)); });
}

TEST(Finish, TwiceIsAnError) {
  Collective collective;
  ASSERT_TRUE(collective.register_peer(0, config_of(1)).ok());
  EXPECT_TRUE(collective.finish_collective(0).ok());
  expect_error(collective.finish_collective(0), CollectiveError::multiple_unregister);
  expect_error(collective.all_reduce(0, list({1}).view(), kSum).status(),
               CollectiveError::register_not_first_operation);
}

// Sums for a peer on two threads, of which the second one is refused while the first one waits:
// `refused` counts those.
struct Pair {
  std::atomic<int> refused = 0, sums = 0;
  std::vector<std::jthread> threads;

  void start(Collective& collective, PeerId id, float number, float sum) {
    for (int thread = 0; thread < 2; ++thread)
      threads.emplace_back([this, &collective, id, number, sum] {
        const auto result = collective.all_reduce(id, list({number}).view(), kSum);
        if (result.ok()) {
          ++sums;
          EXPECT_THAT(numbers_of(*result), ElementsAre(sum));
        } else {
          expect_error(result.status(), CollectiveError::other, "is in another call");
          ++refused;
        }
      });
  }
  void wait_until_refused(int count) const {
    while (refused < count) std::this_thread::yield();
  }
};

void register_all(Collective& collective, uint32_t peers) {
  on_threads(ids_below(peers),
             [&](PeerId id) { ASSERT_TRUE(collective.register_peer(id, config_of(peers)).ok()); });
}

TEST(Finish, LetsTheOthersGoOn) {
  Collective collective;
  register_all(collective, 3);
  Pair calls;
  for (const PeerId id : {0U, 1U}) calls.start(collective, id, 4, 8);
  calls.wait_until_refused(2);  // Now both wait.
  EXPECT_TRUE(collective.finish_collective(2).ok());
  calls.threads.clear();
  EXPECT_EQ(calls.sums, 2);
  on_threads(ids_below(2), [&](PeerId id) {
    EXPECT_THAT(sum_of(collective, id, list({4}), kMean), ElementsAre(4));
    EXPECT_TRUE(collective.finish_collective(id).ok());
  });
}

// What peer 1 comes too late for it gets as errors, one for each; then the peers are in step.
TEST(Operation, FailsWhenAPeerDoesNotCall) {
  Collective collective({.timeout_ms = 100});
  const auto late = [&](PeerId id) {
    const Status status = collective.all_reduce(id, list({1}).view(), kSum).status();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    expect_error(status, CollectiveError::other, "not called in time: 1");
  };
  on_threads(ids_below(2), [&](PeerId id) {
    ASSERT_TRUE(collective.register_peer(id, config_of(2)).ok());
    if (id == 1) return;
    late(0);
    late(0);
  });
  late(1);
  late(1);
  on_threads(ids_below(2), [&](PeerId id) {
    EXPECT_THAT(sum_of(collective, id, list({1.0F + static_cast<float>(id)})), ElementsAre(3));
  });
}

TEST(Operation, OfAPeerThatIsInAnotherCallIsRefused) {
  Collective collective;
  register_all(collective, 2);
  for (int again = 0; again < 20; ++again) {
    Pair calls;
    calls.start(collective, 0, 1, 3);
    calls.wait_until_refused(1);
    expect_error(collective.finish_collective(0), CollectiveError::other, "is in a call");
    EXPECT_THAT(sum_of(collective, 1, list({2})), ElementsAre(3));
    calls.threads.clear();
    EXPECT_EQ(calls.sums, 1);
  }
}

TEST(Operation, TellsAllThatMemoryHasRunOut) {
  if (!testing::memory_can_run_out())
    GTEST_SKIP() << "a sanitizer ends a process that asks for so much";
  Collective collective;
  on_peers(collective, config_of(2), [&](PeerId id) {
    Values<> values = list({1});
    values.shape = {int64_t{1} << 59};
    const Status status = collective.all_reduce(id, values.view(), kSum).status();
    EXPECT_EQ(status.code(), Code::resource_exhausted);
    EXPECT_THAT(sum_of(collective, id, list({1})), ElementsAre(2));
  });
}

TEST(Reset, EndsWhatWaits) {
  Collective collective;
  std::atomic<bool> registered = false;
  on_threads(ids_below(2), [&](PeerId id) {
    ASSERT_TRUE(collective.register_peer(id, config_of(2)).ok());
    if (id == 1) {
      registered = true;
      const Status status = collective.all_reduce(1, list({1}).view(), kSum).status();
      const bool waited = status.code() == Code::aborted;
      expect_error(status, waited ? CollectiveError::local_server_missing
                                  : CollectiveError::register_not_first_operation);
      return;
    }
    while (!registered) std::this_thread::yield();
    collective.reset_collective();
    expect_error(collective.finish_collective(0), CollectiveError::multiple_unregister);
  });
  std::atomic<bool> ended = false;
  const std::jthread waits([&] {
    EXPECT_EQ(collective.register_peer(5, config_of(2)).code(), Code::aborted);
    ended = true;
  });
  while (!ended) collective.reset_collective();
}

TEST(Errors, HaveBurnsNames) {
  const Status lost = global_error({Code::unavailable, "rank 3 left", {3, "b"}});
  EXPECT_EQ(lost.message(), "Global(PeerLost(3)): rank 3 left");
  EXPECT_EQ(lost.culprit().rank, 3);
  EXPECT_EQ(global_error({Code::deadline_exceeded, "late"}).message(), "Global(Server): late");
  EXPECT_EQ(name_of(CollectiveError::broadcast_multiple_tensors), "BroadcastMultipleTensors");
  EXPECT_EQ(error_of(CollectiveError::other, "x").message(), "Other: x");
}

}  // namespace
}  // namespace tutti::burn
