// Elections and membership in simulated time: random histories of small meshes, each from its seed.
//   TUTTI_SIMULATION_HISTORIES=N   so many histories (default below)
//   TUTTI_SIMULATION_SEED=S        this one history, with its trace
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "tests/membership/simulated_mesh.h"

namespace tutti::simulated {
namespace {

struct Sum {
  int rosters = 0;
  int refused = 0;
  int aborted = 0;
  int terms = 0;
  uint64_t events = 0;
};

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// The first seed in [from, to) whose history breaks a promise, or nothing.
std::optional<uint64_t> first_wrong(uint64_t from, uint64_t to, const Tampering& tampering,
                                    std::string& what, Sum& sum) {
  for (uint64_t seed = from; seed < to; ++seed) {
    const Script script = draw(seed);
    Mesh mesh(script, seed, tampering);
    what = mesh.run();
    sum.rosters += mesh.counts().rosters;
    sum.refused += mesh.counts().refused;
    sum.aborted += mesh.counts().aborted;
    sum.terms += mesh.terms();
    sum.events += mesh.events();
    if (!what.empty()) return seed;
  }
  return std::nullopt;
}

std::string trace_of(uint64_t seed, const Tampering& tampering = {}) {
  const Script script = draw(seed);
  Mesh mesh(script, seed, tampering, true);
  const std::string what = mesh.run();
  std::string text = describe(script);
  for (const std::string& line : mesh.trace()) text += line + "\n";
  return text + (what.empty() ? "all is well" : what) +
         "\nreplay: TUTTI_SIMULATION_SEED=" + std::to_string(seed) +
         " membership_simulation_test --gtest_filter=MembershipSimulation.*\n";
}

TEST(MembershipSimulation, RandomHistoriesKeepThePromises) {
  if (const uint64_t seed = number_from("TUTTI_SIMULATION_SEED", 0)) {
    std::cout << trace_of(seed);
    return;
  }
  const uint64_t histories = number_from("TUTTI_SIMULATION_HISTORIES", 10'000);
  std::string what;
  Sum sum;
  const auto before = std::chrono::steady_clock::now();
  const std::optional<uint64_t> seed = first_wrong(1, histories + 1, {}, what, sum);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  std::cout << histories << " histories in " << took.count() << " s: " << sum.rosters
            << " rosters, " << sum.refused << " joins refused, " << sum.aborted
            << " epochs aborted, " << sum.terms << " terms, " << sum.events << " events\n";
  EXPECT_FALSE(seed) << trace_of(*seed);
}

// ---- Injected faults must be found ----

struct Fault {
  const char* name;
  Tampering tampering;
};

// Drops the fences of writes of states that `drops` says.
Tampering drop_fences(std::function<bool(const Keys::Fence&)> drops) {
  Tampering tampering;
  tampering.request = [drops](Keys::Request& request) {
    auto* const what = std::get_if<Keys::Transaction>(&request);
    if (what != nullptr && what->fences.size() == 2) std::erase_if(what->fences, drops);
  };
  return tampering;
}

bool counts_writes(const Keys::Fence& fence) { return fence.modified.has_value(); }
bool is_own_key(const Keys::Fence& fence) { return !fence.modified; }

Tampering drop_to_agent(std::function<bool(const v1::WorkerMessage&)> drops) {
  Tampering tampering;
  tampering.to_agent = [drops](const v1::WorkerMessage& message) { return !drops(message); };
  return tampering;
}

Tampering drop_to_worker(std::function<bool(const v1::CoordinatorMessage&)> drops) {
  Tampering tampering;
  tampering.to_worker = [drops](const v1::CoordinatorMessage& message) { return !drops(message); };
  return tampering;
}

Tampering start_before_kept() {
  Tampering tampering;
  tampering.starts_before_saved = true;
  return tampering;
}

Tampering forget_states() {
  Tampering tampering;
  tampering.forgets_states = true;
  return tampering;
}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"NoFences", drop_fences([](const Keys::Fence&) { return true; })},
      {"WritesNotCounted", drop_fences(counts_writes)},
      {"WritesOfADeposedCoordinator", drop_fences(is_own_key)},
      {"StartsBeforeItIsKept", start_before_kept()},
      {"StatesForgotten", forget_states()},
      {"ResumesForgotten", drop_to_agent([](const auto& message) { return message.has_resume(); })},
      {"DeparturesForgotten", drop_to_agent([](const auto& message) {
         return message.has_gone() && message.gone().epoch() != 0;
       })},
      {"AbortsForgotten",
       drop_to_worker([](const auto& message) { return message.has_aborted(); })},
      {"RefusalsForgotten",
       drop_to_worker([](const auto& message) { return message.has_refused(); })},
  };
  return all;
}

class MembershipFault : public ::testing::TestWithParam<size_t> {};

TEST_P(MembershipFault, IsFound) {
  const Fault& fault = faults()[GetParam()];
  std::string what;
  Sum sum;
  const auto seed = first_wrong(1, 10'000, fault.tampering, what, sum);
  ASSERT_TRUE(seed) << fault.name << " goes unnoticed";
  std::cout << fault.name << " is found by seed " << *seed << ": " << what << "\n";
}

INSTANTIATE_TEST_SUITE_P(Faults, MembershipFault, ::testing::Range(size_t{0}, faults().size()),
                         [](const auto& info) { return faults()[info.param].name; });

}  // namespace
}  // namespace tutti::simulated
