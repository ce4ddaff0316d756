// Limits that hosts must agree on, at their least, at their most and different on each host.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr size_t kCount = 3'000'000;
constexpr int kLateMs = 100;  // For the other host to send what it may.

// Each rank in turn is late, so that the others' frames come before its operation.
void reduce_with_one_late(Group& group) {
  for (const char* strategy : {"ring", "centralized", "tree:2"})
    for (int late = 0; late < group.world_size(); ++late) {
      std::vector<float> x(kCount, 1.0f);
      if (group.rank() == late) poll(nullptr, 0, kLateMs);
      Options options;
      options.strategy = strategy;
      group.all_reduce(std::span(x), sum, options);
      const auto world = static_cast<float>(group.world_size());
      check(std::ranges::all_of(x, [&](float value) { return value == world; }), "a right sum");
    }
}

// What each of two hosts' agents is told beside the defaults.
struct Flags {
  std::string name;
  std::vector<std::string> a;
  std::vector<std::string> b;
};

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

// The agent that was started anew may not listen yet.
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

const std::vector<std::string> kLeast = {"--link-queue-bytes=4096"};
INSTANTIATE_TEST_SUITE_P(
    Limits, DifferentLimits,
    ::testing::Values(
        Flags{"QueueLeast", kLeast, kLeast}, Flags{"QueueLeastOfOne", {}, kLeast},
        Flags{"AllLeast",
              {"--link-queue-bytes=4096", "--slices-in-flight=1", "--ops-in-flight=1",
               "--early-bytes=0"},
              {}},
        Flags{"Early", {"--early-bytes=1099511627776"}, {"--early-bytes=0"}},
        Flags{"EarlyOfOne", {"--early-bytes=1099511627776"}, {"--link-queue-bytes=4096"}},
        Flags{"InFlight",
              {"--slices-in-flight=64", "--ops-in-flight=64"},
              {"--slices-in-flight=1", "--ops-in-flight=1", "--link-queue-bytes=4096"}}),
    [](const auto& info) { return info.param.name; });

class DifferentSlices : public DifferentLimits {};

TEST_P(DifferentSlices, AreNamedToAllWithTheSettingAndBothValues) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Error error = failure_of([&] {
                Group group = join(context);
                for (;;) all_reduce_of(group, 1000);
              });
              check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
              check_contains(error, "differ in slice_bytes");
              check_contains(error, "1048576 on host a");
              check_contains(error, "262144 on host b");
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Limits, DifferentSlices,
                         ::testing::Values(Flags{"Slice", {}, {"--slice-bytes=262144"}},
                                           Flags{"Frame", {}, {"--frame-bytes-max=524288"}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti
