// The rules of the election, step by step, without a store: what is asked, and when.
#include "daemon/membership/election.h"

#include <gtest/gtest.h>

#include "tests/membership/simulated_keys.h"

namespace tutti {
namespace {

constexpr Millis kTtl{3'000};

struct ElectionTest : testing::Test {
  // Lets the store answer until the round is over.
  Election::Step finish(Election::Step step) {
    while (step.request) step = election.answered(keys.apply(*step.request, now), now);
    return step;
  }

  simulated::KeyValues keys{kTtl};
  TimePoint now{Millis(1'000'000)};
  Election election{{.prefix = "/t", .host = "a", .address = "10.0.0.1:7601", .ttl = kTtl},
                    "the store"};
};

TEST_F(ElectionTest, TheFirstAgentLeadsAndRenewsItsLeaseInTime) {
  const Election::Step step = finish(election.begin(now));
  EXPECT_TRUE(step.done.ok());
  EXPECT_TRUE(election.leads());
  EXPECT_EQ(step.at, now + kTtl / 3);
}

TEST_F(ElectionTest, ACoordinatorWithoutAnswersStandsDownWhenItsLeaseEnds) {
  const TimePoint until = now + kTtl;
  finish(election.begin(now));
  now = until - Millis(100);
  Election::Step step = election.begin(now);
  ASSERT_TRUE(step.request);
  EXPECT_EQ(step.at, until) << "an answer after that is of no use";
  step = election.answered({.status = unavailable("no answer"), .entries = {}}, now);
  EXPECT_TRUE(election.leads());
  EXPECT_EQ(step.at, until) << "not only at the next attempt";
  (void)election.begin(until);
  EXPECT_FALSE(election.leads());
}

TEST_F(ElectionTest, StatesOfAnotherTermAreNotKept) {
  const Election::Step step = finish(election.begin(now));
  const auto& lead = std::get<Election::Lead>(step.events.back());
  v1::JobState state;
  state.set_job("demo");
  state.set_epoch(1);
  election.save(lead.term + 1, {state});
  EXPECT_TRUE(finish(election.begin(now)).events.empty());
  election.save(lead.term, {state});
  Election::Step saving = election.begin(now);
  while (saving.request && saving.events.empty())
    saving = election.answered(keys.apply(*saving.request, now), now);
  ASSERT_EQ(saving.events.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Election::Saved>(saving.events[0]));
}

}  // namespace
}  // namespace tutti
