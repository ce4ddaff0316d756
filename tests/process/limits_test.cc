// Limits that hosts must agree on, at their least, at their most and different on each host.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr size_t kLargeCount = 3'000'000;
constexpr int kLateMs = 100;  // For the other host to send what it may.

// Each rank in turn is late, so that the others' frames come before its operation.
void reduce_with_one_late(Group& group) {
  for (const char* strategy : {"ring", "centralized", "tree:2"})
    for (int late = 0; late < group.world_size(); ++late) {
      std::vector<float> x(kLargeCount, 1.0f);
      if (group.rank() == late) poll(nullptr, 0, kLateMs);
      Options options;
      options.strategy = strategy;
      group.all_reduce(std::span(x), sum, options);
      const auto world = static_cast<float>(group.world_size());
      check(std::ranges::all_of(x, [&](float value) { return value == world; }), "a right sum");
    }
}

// What each of two hosts' agents gets beside the defaults.
struct Flags {
  std::string name;
  std::vector<std::string> a;
  std::vector<std::string> b;
  std::string values;  // Of the setting `name`, where they must not differ.
};
void PrintTo(const Flags& flags, std::ostream* out) { *out << flags.name; }

class DifferentLimits : public ::testing::TestWithParam<Flags> {
 protected:
  DifferentLimits() : mesh_(LocalMeshOptions{.hosts = 2, .agent_flags = GetParam().a}) {
    const LocalMesh::Host b = mesh_.host(1);
    ::kill(b.agent, SIGKILL);
    std::vector<std::string> flags = GetParam().b;
    flags.push_back("--coordinator=" + mesh_.host(0).control);
    flags.push_back("--config=/dev/null");
    restart_agent(b, flags);
  }
  std::string run(const Trainer::Body& body) { return mesh_.run("job", {1, 1}, body); }

  TestMesh mesh_;
};

// The agent that was started again may not listen yet.
Group join(const RankContext& context) {
  const TimePoint limit = Clock::now() + Millis(30'000);
  for (;;) try {
      return context.join();
    } catch (const Error& error) {
      if (error.code != TUTTI_UNAVAILABLE || Clock::now() > limit) throw;
      poll(nullptr, 0, 50);
    }
}

TEST_P(DifferentLimits, OperationsEndWithRightValues) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = join(context);
              reduce_with_one_late(group);
            }),
            "");
}

const std::vector<std::string> kLeastQueue = {"--link-queue-bytes=4096"};
// The least of all, and the most, on both hosts.
const std::vector<std::string> kLeast = {"--link-queue-bytes=4096", "--slices-in-flight=1",
                                         "--ops-in-flight=1", "--early-bytes=0"};
const std::vector<std::string> kMost = {"--link-queue-bytes=4096", "--slices-in-flight=64",
                                        "--ops-in-flight=64", "--early-bytes=1099511627776"};
INSTANTIATE_TEST_SUITE_P(Limits, DifferentLimits,
                         ::testing::Values(Flags{"QueueLeast", kLeastQueue, kLeastQueue},
                                           Flags{"QueueLeastOfOne", {}, kLeastQueue},
                                           Flags{"AllLeast", kLeast, kLeast},
                                           Flags{"AllMost", kMost, kMost}),
                         [](const auto& info) { return info.param.name; });

// In these a host may send more than another's links hold, or takes other requests for its own.
class LimitsThatMustNotDiffer : public DifferentLimits {};

TEST_P(LimitsThatMustNotDiffer, AreNamedToAllWithTheSettingAndBothValues) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Error error = failure_of([&] {
                Group group = join(context);
                for (;;) all_reduce_of(group, 1000);
              });
              check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
              check(error.rank == -1, "no rank is to blame");
              check_contains(error, "the hosts differ in " + GetParam().name + ": it is ");
              check_contains(error, GetParam().values);
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Limits, LimitsThatMustNotDiffer,
    ::testing::Values(
        Flags{"slice_bytes", {}, {"--slice-bytes=262144"}, "1048576 on host a, 262144 on host b"},
        Flags{
            "slice_bytes", {}, {"--frame-bytes-max=524288"}, "1048576 on host a, 262144 on host b"},
        Flags{"slices_in_flight", {}, {"--slices-in-flight=5"}, "16 on host a, 5 on host b"},
        Flags{"ops_in_flight", {}, {"--ops-in-flight=3"}, "4 on host a, 3 on host b"},
        Flags{"early_bytes", {}, {"--early-bytes=0"}, "8388608 on host a, 0 on host b"}),
    [](const auto& info) { return info.param.name + "_" + std::to_string(info.index); });

// The worker refuses them by name; it stays, and says so in its reports.
TEST(Limits, SegmentsThatNoAddressSpaceHoldsAreRefusedByName) {
  TestMesh mesh(LocalMeshOptions{.hosts = 1, .agent_flags = {"--segment-bytes=70368744177664"}});
  EXPECT_EQ(mesh.run("job", {3},
                     [](const RankContext& context) {
                       const Error error = failure_of([&] { (void)context.join(); });
                       check(error.code == TUTTI_RESOURCE_EXHAUSTED, error.what());
                       check_contains(error, "cannot map a segment of 70368744177664 bytes");
                     }),
            "");
  EXPECT_EQ(mesh.log_tails().find("killed by signal"), std::string::npos) << mesh.log_tails();
}

}  // namespace
}  // namespace tutti
