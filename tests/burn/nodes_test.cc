// burn's collective API among processes, over real agents and workers: nodes with several peers.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>

#include "tests/burn/peers.h"
#include "tests/support/memory_limit.h"
#include "tests/support/test_mesh.h"

namespace tutti::burn {
namespace {

using testing::check;
using testing::RankContext;

constexpr auto kSum = ReduceOperation::sum;
constexpr auto kMean = ReduceOperation::mean;

// One mesh for the whole file; each test has its own job.
class Nodes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { mesh_ = new testing::TestMesh(2); }
  static void TearDownTestSuite() { delete std::exchange(mesh_, nullptr); }

  static std::string run(const std::vector<int>& per_host, const testing::Trainer::Body& body) {
    return mesh_->run(::testing::UnitTest::GetInstance()->current_test_info()->name(), per_host,
                      body);
  }

  static testing::TestMesh* mesh_;
};

testing::TestMesh* Nodes::mesh_ = nullptr;

void check_ok(const Status& status) { check(status.ok(), status.to_string()); }

void check_fails(const Status& status, const std::string& begin, const std::string& part) {
  check(status.message().starts_with(begin) && status.message().find(part) != std::string::npos,
        "'" + status.to_string() + "' does not begin with '" + begin + "' and say '" + part + "'");
}

// Registers `peers` peers of this process, calls body for each, and finishes them. A failed check
// of one is thrown here.
void on_peers(Collective& collective, const CollectiveConfig& config,
              const std::vector<PeerId>& peers, const std::function<void(PeerId)>& body) {
  std::mutex mutex;
  std::string failed;
  on_threads(peers, [&](PeerId id) {
    try {
      check_ok(collective.register_peer(id, config));
      body(id);
      check_ok(collective.finish_collective(id));
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      failed += std::string(error.what()) + "\n";
      collective.reset_collective();  // The others must not wait for this one.
    }
  });
  check(failed.empty(), failed);
}

void check_values(const Result<Tensor>& got, const std::vector<float>& want,
                  const std::string& what) {
  check(got.ok(), what + ": " + got.status().to_string());
  check(numbers_of(*got) == want, what + " is another");
}

// Of 4 peers, numbered over all nodes: 3 on node 0 and 1 on node 1.
std::vector<PeerId> uneven_peers(const RankContext& context) {
  return context.rank == 0 ? std::vector<PeerId>{0, 1, 2} : std::vector<PeerId>{3};
}

void with_uneven(const RankContext& context, const std::function<void(Collective&, PeerId)>& body) {
  Group group = context.join();
  Collective collective({.group = group.get()});
  const std::vector<PeerId> peers = uneven_peers(context);
  on_peers(collective, config_of(static_cast<uint32_t>(peers.size())), peers,
           [&](PeerId id) { body(collective, id); });
}

TEST_F(Nodes, MeansAreOverAllPeersAndNotOverNodes) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  with_uneven(context, [](Collective& collective, PeerId id) {
                    const Values<> r = list({static_cast<float>(id)});
                    check_values(collective.all_reduce(id, r.view(), kMean), {1.5}, "MEAN");
                    check_values(collective.all_reduce(id, r.view(), kSum), {6}, "SUM");
                    const Values<uint16_t> large = {{0x7b53}, {1}, Dtype::f16};
                    const auto mean = collective.all_reduce(id, large.view(), kMean);
                    check(mean.ok() && numbers_of<uint16_t>(*mean) == large.numbers, "MEAN of f16");
                  });
                }),
            "");
}

TEST_F(Nodes, HundredReductionsInARow) {
  EXPECT_EQ(
      run({1, 1},
          [](const RankContext& context) {
            with_uneven(context, [](Collective& collective, PeerId id) {
              for (int i = 0; i < 25; ++i)
                for (const size_t size : {1, 1000, 3, 4096})
                  check_values(
                      collective.all_reduce(id, list(std::vector<float>(size, 3)).view(), kSum),
                      std::vector<float>(size, 12), "SUM of " + std::to_string(size));
            });
          }),
      "");
}

TEST_F(Nodes, ReduceAndBroadcastReachEveryNode) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  with_uneven(context, [](Collective& collective, PeerId id) {
                    const Values<> r = list({static_cast<float>(id)});
                    for (const PeerId root : {1U, 3U}) {
                      const auto reduced = collective.reduce(id, r.view(), kMean, root);
                      check_ok(reduced.status());
                      check(reduced->has_value() == (id == root), "the root alone");
                      if (id == root)
                        check(numbers_of(**reduced) == std::vector<float>{1.5}, "the mean");
                    }
                    for (const PeerId provider : {0U, 3U}) {
                      const Values<> values = {{7, 8}, {1, 2}};
                      const auto own = id == provider ? std::optional(values.view()) : std::nullopt;
                      const auto got = collective.broadcast(id, own);
                      check_values(got, {7, 8}, "broadcast");
                      check(got->shape() == values.shape, "its shape");
                    }
                  });
                }),
            "");
}

TEST_F(Nodes, MistakesAreErrorsOfAll) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  with_uneven(context, [](Collective& collective, PeerId id) {
                    const Values<> one = list({1});
                    const bool last = id == 3;
                    const auto reduce = [&](const Values<>& values, ReduceOperation op) {
                      return collective.all_reduce(id, values.view(), op).status();
                    };
                    check_fails(reduce(last ? list({1, 2}) : one, kSum), "AllReduceShapeMismatch",
                                "node 0 has 'all_reduce(SUM) of f32[1]', node 1 has");
                    check_fails(reduce(one, last ? kMean : kSum), "AllReduceOperationMismatch",
                                "MEAN");
                    check_fails(reduce(id == 1 ? list({1, 2}) : one, kSum),
                                "AllReduceShapeMismatch", "(on node 0)");
                    check_fails(last ? collective.broadcast(id, {}).status() : reduce(one, kSum),
                                "Other", "broadcast of nothing");
                    check_fails(collective.reduce(id, one.view(), kSum, last ? 1 : 0).status(),
                                "ReduceRootMismatch", "root=1");
                    check_fails(collective.reduce(id, one.view(), kSum, 9).status(),
                                "RegisterNotFirstOperation", "root peer 9");
                    check_fails(collective.broadcast(id, {}).status(), "BroadcastNoTensor",
                                "exactly one");
                    const auto own = id % 3 == 0 ? std::optional(one.view()) : std::nullopt;
                    check_fails(collective.broadcast(id, own).status(), "BroadcastMultipleTensors",
                                "2 peers");
                    check_values(collective.all_reduce(id, one.view(), kSum), {4}, "afterwards");
                  });
                }),
            "");
}

// A peer of node 0 does not come in time: node 1 learns it as well, and both are in step
// afterwards.
void misses_a_peer(const RankContext& context, int32_t timeout_ms) {
  Group group = context.join();
  Collective collective({.group = group.get(), .timeout_ms = timeout_ms});
  std::atomic<bool> missed = false;
  const std::vector<PeerId> peers = uneven_peers(context);
  on_peers(collective, config_of(static_cast<uint32_t>(peers.size())), peers, [&](PeerId id) {
    const auto sum = [&](float number) {
      return collective.all_reduce(id, list({number}).view(), kSum);
    };
    for (int again = 0; again < 2; ++again) {
      while (id == 1 && !missed) std::this_thread::yield();
      check_fails(sum(100).status(), "Other", "not called in time: 1");
    }
    missed = true;
    check_values(sum(static_cast<float>(id)), {6}, "afterwards");
  });
}

// The other process waits as long for its peers, and no longer than the late one says so.
TEST_F(Nodes, TellAllThatAPeerHasNotComeInTime) {
  for (const int32_t others_ms : {600, 30'000})
    EXPECT_EQ(run({1, 1},
                  [=](const RankContext& context) {
                    misses_a_peer(context, context.rank == 0 ? 600 : others_ms);
                  }),
              "");
}

TEST_F(Nodes, FailOnAllWhatOnePeerRefuses) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  with_uneven(context, [](Collective& collective, PeerId id) {
                    const Values<> one = list({1});
                    for (int again = 0; again < 3; ++again)
                      check_fails(id == 1 ? collective.refuse(id, invalid_argument("no tensor"))
                                          : collective.all_reduce(id, one.view(), kSum).status(),
                                  "Other", "peer 1: no tensor (on node 0)");
                    check_values(collective.all_reduce(id, one.view(), kSum), {4}, "afterwards");
                  });
                }),
            "");
}

// The memory of node 1 does not suffice, which it finds out before data moves.
TEST_F(Nodes, TellAllThatTheMemoryOfOneHasRunOut) {
  if (!testing::memory_can_run_out()) GTEST_SKIP() << "a sanitizer ends a process without memory";
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  with_uneven(context, [](Collective& collective, PeerId id) {
                    const Values<> one = list({1});
                    const Values<> large = list(std::vector<float>(1 << 24));  // 64 MiB.
                    check_values(collective.all_reduce(id, one.view(), kSum), {4}, "before");
                    if (id == 3) testing::limit_memory(16 << 20);
                    check_fails(collective.all_reduce(id, large.view(), kSum).status(), "Other",
                                "out of memory (on node 1)");
                    const auto own = id == 0 ? std::optional(large.view()) : std::nullopt;
                    check_fails(collective.broadcast(id, own).status(), "Global",
                                "this process is out of memory");
                    check_values(collective.all_reduce(id, one.view(), kSum), {4}, "afterwards");
                  });
                }),
            "");
}

TEST_F(Nodes, RootsThatTwoNodesHaveAreRefused) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  Collective collective({.group = group.get()});
                  on_peers(collective, config_of(2), {0, 1}, [&](PeerId id) {
                    const Values<> one = list({1});
                    check_fails(collective.reduce(id, one.view(), kSum, 1).status(),
                                "ReduceRootMismatch", "registered on 2 nodes");
                    check_values(collective.all_reduce(id, one.view(), kSum), {4}, "all_reduce");
                  });
                }),
            "");
}

float value_at(size_t i, PeerId id) { return std::sin(static_cast<float>(i * 16 + id)); }

// 4 nodes of 4 peers under every pair of strategies: exact to 1e-5, the same bits on all peers.
void means_of_sixteen(const RankContext& context) {
  constexpr size_t kCount = 4 * 16 * 128;
  std::vector<double> want(kCount);
  for (size_t i = 0; i < kCount; ++i)
    for (PeerId id = 0; id < 16; ++id) want[i] += double{value_at(i, id)} / 16;
  Group group = context.join();
  Collective collective({.group = group.get()});
  const auto first = static_cast<PeerId>(4 * context.rank);
  for (const Strategy& local : {kCentralized, kTree2, kRing})
    for (const Strategy& global : {kCentralized, kTree2, kRing}) {
      CollectiveConfig config = config_of(4, local);
      config.global_all_reduce_strategy = global;
      on_peers(collective, config, {first, first + 1, first + 2, first + 3}, [&](PeerId id) {
        Values<> values = {std::vector<float>(kCount), {4, 16, 128}};
        for (size_t i = 0; i < kCount; ++i) values.numbers[i] = value_at(i, id);
        const auto mean = collective.all_reduce(id, values.view(), kMean);
        check_ok(mean.status());
        const std::vector<float> got = numbers_of(*mean);
        for (size_t i = 0; i < kCount; ++i)
          check(std::abs(got[i] - want[i]) < 1e-6, "element " + std::to_string(i));
        const std::vector<float> before = got;
        const auto root = collective.broadcast(id, id == 0 ? std::optional(*mean) : std::nullopt);
        check_values(root, before, "peer 0's bits, which are this peer's,");
        check_values(collective.all_reduce(id, values.view(), kMean), before, "a second run");
      });
    }
}

TEST_F(Nodes, AgreeBitForBitUnderEveryPairOfStrategies) {
  EXPECT_EQ(run({2, 2}, means_of_sixteen), "");
}

// The config names the nodes, and the environment says which of them this is.
TEST_F(Nodes, JoinAsTheConfigSays) {
  EXPECT_EQ(run({1, 1},
                [](const RankContext& context) {
                  setenv("TUTTI_SOCKET", context.socket.c_str(), 1);
                  setenv("TUTTI_RANK", std::to_string(context.rank).c_str(), 1);
                  CollectiveConfig config = config_of(2);
                  config.num_nodes = 2;
                  config.global_address = "ws://orchestrator:3000";
                  config.node_address = "ws://node" + std::to_string(context.rank);
                  config.data_service_port = 3001;
                  Collective collective;
                  for (int again = 0; again < 2; ++again)
                    on_peers(collective, config, {0, 1}, [&](PeerId id) {
                      check_values(collective.all_reduce(id, list({1}).view(), kSum), {4}, "SUM");
                    });
                  Group group = context.join();
                  Collective given({.group = group.get()});
                  config.num_nodes = 3;
                  config.num_devices = 1;
                  check_fails(given.register_peer(0, config), "InvalidConfig", "num_nodes=3");
                  CollectiveConfig other = config_of(1);
                  if (context.rank == 1) other.global_all_reduce_strategy = kCentralized;
                  check_fails(given.register_peer(0, other), "RegisterParamsMismatch",
                              "centralized");
                }),
            "");
}

// Rank 2 dies in its first life. The others learn who it was, and register again with it.
void live_twice(const RankContext& context, bool successor) {
  setenv("TUTTI_SOCKET", context.socket.c_str(), 1);
  setenv("TUTTI_RANK", std::to_string(context.rank).c_str(), 1);
  CollectiveConfig config = config_of(2);
  config.num_nodes = 3;
  config.global_address = "ws://orchestrator:3001";
  config.node_address = "ws://node";
  config.data_service_port = 3001;
  Collective collective;
  const Values<> one = list({1});
  if (!successor)
    on_peers(collective, config, {0, 1}, [&](PeerId id) {
      check_values(collective.all_reduce(id, one.view(), kSum), {6}, "before");
      if (context.rank == 2 && id == 0) raise(SIGKILL);
      check_fails(collective.all_reduce(id, one.view(), kSum).status(), "Global(PeerLost(2))",
                  "rank 2");
    });
  on_peers(collective, config, {0, 1}, [&](PeerId id) {
    check_values(collective.all_reduce(id, one.view(), kSum), {6}, "again");
  });
}

TEST_F(Nodes, NameTheNodeThatDiedAndRegisterAgain) {
  const auto body = [](const RankContext& context) { live_twice(context, false); };
  std::vector<testing::Trainer> trainers = mesh_->start("death", {2, 1}, body);
  EXPECT_NE(trainers[2].wait().find("killed by signal 9"), std::string::npos);
  testing::Trainer successor({"death", mesh_->host(1).socket, 2, 3},
                             [](const RankContext& context) { live_twice(context, true); });
  EXPECT_EQ(trainers[0].wait() + trainers[1].wait() + successor.wait(), "") << mesh_->log_tails();
}

}  // namespace
}  // namespace tutti::burn
