// What a coordinator remembers of agents that are gone and of joins that it refused.
#include "daemon/control/coordinator_memory.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr Millis kSecond{1'000};

v1::AgentMessage agent_of(const std::string& host) {
  v1::AgentMessage agent;
  agent.set_host(host);
  agent.set_address(host + ":7601");
  agent.set_version(7);
  return agent;
}

v1::RefusedJoin refused(const std::string& job, uint32_t rank, const std::string& host) {
  v1::RefusedJoin join;
  join.set_job(job);
  join.set_rank(rank);
  join.set_host(host);
  return join;
}

std::vector<v1::RefusedJoin> joins_at(const CoordinatorMemory& memory, TimePoint now) {
  v1::AgentReport report;
  memory.report_refused_joins(now, report);
  return {report.refused_joins().begin(), report.refused_joins().end()};
}

TEST(MemoryOfAgents, ALostOneIsListedForAnHour) {
  CoordinatorMemory memory;
  const TimePoint start{};
  memory.agent_gone(agent_of("b"), false, start);
  const std::vector<v1::AgentReport> gone = memory.gone_agents(start + 20 * kSecond);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].host(), "b");
  EXPECT_EQ(gone[0].address(), "b:7601");
  EXPECT_EQ(gone[0].protocol(), 7u);
  EXPECT_EQ(gone[0].state(), "lost 20 s ago");
  EXPECT_TRUE(gone[0].lost());
  EXPECT_EQ(gone[0].lost_ms(), 20'000u);
  EXPECT_EQ(memory.gone_agents(start + 3'599 * kSecond).at(0).state(), "lost 59 min ago");
  EXPECT_TRUE(memory.gone_agents(start + 3'601 * kSecond).empty());
}

TEST(MemoryOfAgents, OneThatIsBackIsForgotten) {
  CoordinatorMemory memory;
  const TimePoint start{};
  memory.agent_gone(agent_of("b"), false, start);
  memory.agent_gone(agent_of("c"), true, start);
  EXPECT_EQ(memory.gone_agents(start + kSecond).at(1).state(), "stopped 1 s ago");
  EXPECT_FALSE(memory.gone_agents(start).at(1).lost());
  EXPECT_EQ(memory.agent_back("b", start + 3 * kSecond), 3 * kSecond);
  EXPECT_EQ(memory.agent_back("b", start + 3 * kSecond), std::nullopt);
  EXPECT_EQ(memory.agent_back("c", start), std::nullopt) << "it stopped on purpose";
  EXPECT_TRUE(memory.gone_agents(start).empty());
}

TEST(MemoryOfAgents, TheOldestMakesRoom) {
  CoordinatorMemory memory;
  for (size_t i = 0; i <= CoordinatorMemory::kAgentsMax; ++i)
    memory.agent_gone(agent_of("h" + std::to_string(i)), false, TimePoint() + i * kSecond);
  const std::vector<v1::AgentReport> gone = memory.gone_agents(TimePoint());
  EXPECT_EQ(gone.size(), CoordinatorMemory::kAgentsMax);
  EXPECT_EQ(gone[0].host(), "h1");
}

TEST(MemoryOfRefusals, TheLastOfEachRankIsKeptUntilItJoins) {
  CoordinatorMemory memory;
  const TimePoint start{};
  memory.join_refused(refused("demo", 1, "b"), start);
  memory.join_refused(refused("demo", 1, "c"), start + kSecond);
  memory.join_refused(refused("demo", 2, "b"), start);
  ASSERT_EQ(joins_at(memory, start + 4 * kSecond).size(), 2u);
  EXPECT_EQ(joins_at(memory, start + 4 * kSecond)[0].host(), "c");
  EXPECT_EQ(joins_at(memory, start + 4 * kSecond)[0].ago_ms(), 3'000u);
  v1::JoinRank joined;
  joined.set_job("demo");
  joined.set_rank(1);
  joined.mutable_pass()->set_uid(7);
  memory.rank_joined(joined);
  EXPECT_EQ(joins_at(memory, start).size(), 2u) << "it is another user's job of this name";
  joined.mutable_pass()->set_uid(0);
  memory.rank_joined(joined);
  ASSERT_EQ(joins_at(memory, start).size(), 1u);
  EXPECT_EQ(joins_at(memory, start)[0].rank(), 2u);
  EXPECT_TRUE(joins_at(memory, start + 3'601 * kSecond).empty());
}

TEST(MemoryOfRefusals, AHostThatJoinsIsNoLongerRefused) {
  CoordinatorMemory memory;
  memory.join_refused(refused("demo", CoordinatorMemory::kUnknownRank, "b"), TimePoint());
  v1::JoinRank joined;
  joined.set_job("demo");
  joined.set_rank(3);
  joined.set_host("c");
  memory.rank_joined(joined);
  EXPECT_EQ(joins_at(memory, TimePoint()).size(), 1u);
  joined.set_host("b");
  memory.rank_joined(joined);
  EXPECT_TRUE(joins_at(memory, TimePoint()).empty());
}

TEST(MemoryOfRefusals, StrangersDoNotPushOutWhatIsKnown) {
  CoordinatorMemory memory;
  const TimePoint start{};
  memory.join_refused(refused("demo", 1, "b"), start);
  for (size_t i = 0; i < 2 * CoordinatorMemory::kRefusedMax; ++i)
    memory.join_refused(refused("demo", CoordinatorMemory::kUnknownRank, "h" + std::to_string(i)),
                        start + kSecond);
  const std::vector<v1::RefusedJoin> kept = joins_at(memory, start + kSecond);
  EXPECT_EQ(kept.size(), 1 + CoordinatorMemory::kRefusedMax / 8);
  EXPECT_EQ(kept[0].host(), "b");
}

}  // namespace
}  // namespace tutti
