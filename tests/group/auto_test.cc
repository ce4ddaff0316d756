// What `auto` learns in an epoch, and which results may depend on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "daemon/group/group.h"
#include "tests/worker/tensors.h"

namespace tutti {
namespace {

using testing::Bytes;
using testing::Cluster;
using testing::ClusterOptions;
using testing::kCentral;
using testing::kRing;
using testing::Tensors;

// Rank 0's result for inputs whose sums are rounded, the same inputs in every run.
Bytes result_of(Cluster& cluster, Dtype dtype, Op op, const Strategy& global) {
  constexpr uint64_t kCount = 500;
  Tensors tensors(cluster, {Collective::all_reduce, dtype, op, kCount, 0, {kCentral, global}});
  std::mt19937 random(7);
  std::uniform_real_distribution<double> value(0.5, 1.5);
  for (int rank = 0; rank < cluster.size(); ++rank)
    for (size_t i = 0; i < kCount; ++i) testing::put(tensors.input(rank), dtype, i, value(random));
  for (const Status& status : cluster.all([&](int rank) { return tensors.call(rank); }))
    EXPECT_TRUE(status.ok()) << status.to_string();
  for (int rank = 1; rank < cluster.size(); ++rank)
    EXPECT_EQ(tensors.result(rank), tensors.result(0)) << to_string(global);
  return tensors.result(0);
}

TEST(AutoBitsTest, OnTwoHostsTheyAreTheSameUnderEveryStrategy) {
  Cluster cluster({2, 3});
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16})
    for (const Op op : {Op::sum, Op::mean, Op::prod}) {
      EXPECT_EQ(result_of(cluster, dtype, op, kRing), result_of(cluster, dtype, op, kCentral))
          << name_of(dtype) << " " << name_of(op);
    }
}

TEST(AutoBitsTest, OnMoreHostsTheyAreNot) {
  Cluster cluster({1, 1, 1, 1});
  EXPECT_NE(result_of(cluster, Dtype::f32, Op::sum, kRing),
            result_of(cluster, Dtype::f32, Op::sum, kCentral));
}

class AutoTest : public ::testing::Test {
 protected:
  AutoTest() { options_.tuner = std::make_shared<Tuner>(); }

  // Runs operations of one size until the leader's tuner, read on its loop, is as wanted.
  template <class Wanted>
  bool run_until(Cluster& cluster, Wanted wanted) {
    for (int i = 0; i < 5000; ++i) {
      Tensors tensors(cluster, {Collective::all_reduce, Dtype::i32, Op::sum, 60'000, 0, {}});
      tensors.run_and_check();
      bool done = false;
      cluster.hosts[0]->run([&] { done = wanted(*options_.tuner); });
      if (done || HasFatalFailure()) return done;
    }
    return false;
  }

  ClusterOptions options_;
};

TEST_F(AutoTest, LearnsTheChosenStrategysTimeAndEveryMembersLink) {
  {
    Cluster cluster({1, 2, 1}, options_);
    EXPECT_TRUE(run_until(cluster, [](const Tuner& tuner) {
      const std::vector<Tuner::Row> rows = tuner.rows();
      const bool is_timed = std::ranges::any_of(
          rows, [&](const Tuner::Row& row) { return row.chosen && row.samples >= Tuner::kEnough; });
      const auto is_measured = [&](const char* from, const char* to) {
        const auto link = tuner.links().find({from, to});
        return link != tuner.links().end() && link->second.message_us > 0;
      };
      return is_timed && is_measured("a", "b") && is_measured("b", "a") && is_measured("a", "c") &&
             is_measured("c", "a");
    }));
  }
  const std::vector<Tuner::Row> rows = options_.tuner->rows();
  EXPECT_EQ(rows.size(), candidates(Collective::all_reduce, 3).size());
  EXPECT_EQ(std::ranges::count(rows, true, &Tuner::Row::chosen), 1);
  for (const Tuner::Row& row : rows) {
    EXPECT_EQ(row.hosts, 3);
    EXPECT_EQ(row.ranks, 4);
    EXPECT_EQ(row.bytes, uint64_t{1} << 18);
  }
}

// The second epoch continues the first one's rows: none is dropped or started again.
TEST_F(AutoTest, KeepsWhatItLearntForTheNextEpoch) {
  const auto samples = [](const Tuner& tuner) {
    uint64_t sum = 0;
    for (const Tuner::Row& row : tuner.rows()) sum += row.samples;
    return sum;
  };
  {
    Cluster cluster({1, 1}, options_);
    EXPECT_TRUE(run_until(cluster, [&](const Tuner& tuner) { return samples(tuner) >= 30; }));
  }
  const uint64_t before = samples(*options_.tuner);
  const size_t rows = options_.tuner->rows().size();
  Cluster cluster({1, 1}, options_);
  EXPECT_TRUE(run_until(cluster, [&](const Tuner& tuner) {
    EXPECT_GE(samples(tuner), before);
    EXPECT_EQ(tuner.rows().size(), rows);
    return samples(tuner) > before;
  }));
}

}  // namespace
}  // namespace tutti
