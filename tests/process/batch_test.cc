// all_reduce_many over real agents and workers: the messages it costs, and failures. Values of all
// shapes: tests/process/values_test.cc.
#include <gtest/gtest.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

// The tensors of one rank, some in shared memory: all elements of tensor i are rank + i.
class List {
 public:
  List(Group& group, const std::vector<size_t>& counts) : group_(group) {
    for (size_t i = 0; i < counts.size(); ++i) {
      const bool shared = i % 4 == 1;
      if (!shared) ordinary_.emplace_back(counts[i]);
      tensors_.push_back(shared ? group.alloc<float>(counts[i]) : std::span(ordinary_.back()));
    }
    fill();
  }
  ~List() {
    for (size_t i = 1; i < tensors_.size(); i += 4) group_.free(tensors_[i]);
  }

  void fill() {
    for (size_t i = 0; i < tensors_.size(); ++i)
      std::ranges::fill(tensors_[i], static_cast<float>(i % 100) + float(group_.rank()));
  }
  void check_sums(const std::string& what) const {
    const int n = group_.world_size();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto want = static_cast<float>(n * static_cast<int>(i % 100) + n * (n - 1) / 2);
      for (const float value : tensors_[i])
        check(value == want, what + ": tensor " + std::to_string(i));
    }
  }
  const std::vector<std::span<float>>& tensors() const { return tensors_; }

 private:
  Group& group_;
  std::vector<std::vector<float>> ordinary_;
  std::vector<std::span<float>> tensors_;
};

void reduce_at_once(Group& group, List& list, const Options& options = {}) {
  list.fill();
  group.all_reduce_many(list.tensors(), sum, options);
  list.check_sums("at once " + options.strategy);
}
void reduce_one_by_one(Group& group, List& list) {
  list.fill();
  for (const std::span<float> tensor : list.tensors()) group.all_reduce(tensor);
  list.check_sums("one by one");
}

// ---- Cost ----

// Returns what a job of 2 hosts x 2 ranks sends between its hosts to reduce 1,000 tensors of 4 KiB.
uint64_t frames_of(const TestMesh& mesh, void (*reduce)(Group&, List&)) {
  const std::vector<Trainer> trainers =
      mesh.start("job", {2, 2}, [reduce](const RankContext& context) {
        Group group = context.join();
        List list(group, std::vector<size_t>(1000, 1024));
        reduce(group, list);
        write_line("reduced");
        pause();
      });
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "reduced");
  uint64_t frames = 0;
  const auto status = admin_status(mesh.host(0).address, false, 5'000);
  EXPECT_TRUE(status.ok());
  for (const v1::AgentReport& agent : status->agents())
    for (const v1::WorkerReport& worker : agent.workers()) frames += worker.sent_frames();
  return frames;
}

TEST(BatchMesh, AThousandTensorsCostAFractionOfTheMessages) {
  const uint64_t one_by_one = frames_of(TestMesh(2), reduce_one_by_one);
  const uint64_t at_once =
      frames_of(TestMesh(2), [](Group& g, List& list) { reduce_at_once(g, list); });
  RecordProperty("one_by_one", static_cast<int>(one_by_one));
  RecordProperty("at_once", static_cast<int>(at_once));
  EXPECT_GE(one_by_one, 2000u);
  EXPECT_GT(at_once, 0u);
  EXPECT_LE(at_once * 20, one_by_one) << at_once << " at once, " << one_by_one << " one by one";
}

// ---- Failures ----

TEST(BatchMesh, ListsThatDifferFailForAllByName) {
  const TestMesh mesh(2);
  EXPECT_EQ(
      mesh.run(
          "job", {2, 2},
          [](const RankContext& context) {
            Group group = context.join();
            // The same number of elements, divided into other tensors on one rank.
            const bool odd = context.rank == 2;
            List list(group, odd ? std::vector<size_t>{10, 20, 30} : std::vector<size_t>{10, 50});
            const Error error = failure_of([&] { group.all_reduce_many(list.tensors()); });
            check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
            check_contains(error, "f32[60] sum of a list of 2 tensors");
            check_contains(error, "f32[60] sum of a list of 3 tensors");
            check_works(group);
          }),
      "");
}

TEST(BatchMesh, ListsOfDifferentLengthsFailAndTheGroupGoesOn) {
  const TestMesh mesh(2);
  const auto body = [](const RankContext& context) {
    Group group = context.join();
    List odd(group, std::vector<size_t>(context.rank == 1 ? 7 : 4, 100'000));
    List even(group, std::vector<size_t>(5, 100'000));
    for (int i = 0; i < 3; ++i) {
      const Error error = failure_of([&] { group.all_reduce_many(odd.tensors()); });
      check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
      check_works(group);
      reduce_at_once(group, even);
    }
  };
  EXPECT_EQ(mesh.run("job", {2, 2}, body), "");
  EXPECT_EQ(mesh.run("alone", {2}, body), "");
}

TEST(BatchMesh, ARankThatDiesInTheMiddleIsNamed) {
  const TestMesh mesh(2);
  std::vector<Trainer> trainers = mesh.start("job", {2, 2}, [](const RankContext& context) {
    Group group = context.join();
    List list(group, std::vector<size_t>(40, 100'000));
    reduce_at_once(group, list);
    write_line("under way");
    const Error error = failure_of([&] {
      while (true) reduce_at_once(group, list);
    });
    check(error.code == TUTTI_UNAVAILABLE && error.rank == 3, error.what());
  });
  for (const Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "under way");
  trainers[3].kill(SIGKILL);
  std::string reports;
  for (size_t rank = 0; rank < 3; ++rank) reports += trainers[rank].wait();
  EXPECT_EQ(reports, "");
}

TEST(BatchMesh, AnAbsentRankIsNamedAtTheDeadline) {
  const TestMesh mesh(2);
  std::vector<Trainer> trainers = mesh.start("job", {2, 1}, [](const RankContext& context) {
    Group group = context.join();
    List list(group, std::vector<size_t>(10, 100'000));
    if (context.rank == 2) pause();
    const Error error = failure_of(
        [&] { group.all_reduce_many(list.tensors(), sum, {.timeout = std::chrono::seconds(2)}); });
    check(error.code == TUTTI_DEADLINE_EXCEEDED && error.rank == 2, error.what());
  });
  EXPECT_EQ(trainers[0].wait() + trainers[1].wait(), "");
}

}  // namespace
}  // namespace tutti
