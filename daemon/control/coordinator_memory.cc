#include "daemon/control/coordinator_memory.h"

#include <algorithm>

#include "daemon/membership/values.h"

namespace tutti {
namespace {

Millis since(TimePoint then, TimePoint now) {
  return std::chrono::duration_cast<Millis>(std::max(now - then, TimePoint::duration(0)));
}

std::string describe(Millis time) {
  const auto seconds = time.count() / 1'000;
  return seconds < 120 ? std::to_string(seconds) + " s" : std::to_string(seconds / 60) + " min";
}

// Entries are small and few: a walk over them costs less than an index would.
template <class Map>
void make_room(Map& map, size_t max) {
  if (map.size() < max) return;
  map.erase(std::ranges::min_element(map, {}, [](const auto& one) { return one.second.since; }));
}

}  // namespace

void CoordinatorMemory::agent_gone(const v1::AgentMessage& agent, bool stopped, TimePoint now) {
  if (!gone_.contains(agent.host())) make_room(gone_, kAgentsMax);
  gone_[agent.host()] = {agent, stopped, now};
}

std::optional<Millis> CoordinatorMemory::agent_back(const std::string& host, TimePoint now) {
  const auto found = gone_.find(host);
  if (found == gone_.end()) return {};
  const Gone gone = found->second;
  gone_.erase(found);
  return gone.stopped ? std::nullopt : std::optional(since(gone.since, now));
}

std::vector<v1::AgentReport> CoordinatorMemory::gone_agents(TimePoint now) const {
  std::vector<v1::AgentReport> reports;
  for (const auto& [host, gone] : gone_) {
    const Millis ago = since(gone.since, now);
    if (ago > kGoneKept) continue;
    v1::AgentReport& report = reports.emplace_back();
    report.set_host(host);
    report.set_address(gone.agent.address());
    report.set_protocol(gone.agent.version());
    report.set_state((gone.stopped ? "stopped " : "lost ") + describe(ago) + " ago");
    report.set_lost(!gone.stopped);
    report.set_lost_ms(static_cast<uint64_t>(ago.count()));
  }
  return reports;
}

void CoordinatorMemory::join_refused(v1::RefusedJoin join, TimePoint now) {
  if (join.rank() == kUnknownRank) {
    const std::pair key(key_of(join.owner(), join.job()), join.host());
    if (!refused_hosts_.contains(key)) make_room(refused_hosts_, kRefusedMax / 8);
    refused_hosts_[key] = {std::move(join), now};
    return;
  }
  const RankKey key(key_of(join.owner(), join.job()), join.rank());
  if (!refused_.contains(key)) make_room(refused_, kRefusedMax);
  refused_[key] = {std::move(join), now};
}

void CoordinatorMemory::rank_joined(const v1::JoinRank& join) {
  v1::Owner owner;
  owner.set_uid(join.pass().uid());
  owner.set_subject(join.pass().subject());
  const std::string job = key_of(owner, join.job());
  refused_.erase({job, join.rank()});
  refused_hosts_.erase({job, join.host()});
}

void CoordinatorMemory::report_refused_joins(TimePoint now, v1::AgentReport& report) const {
  const auto add = [&](const Refused& refused) {
    const Millis ago = since(refused.since, now);
    if (ago > kRefusedKept) return;
    v1::RefusedJoin& join = *report.add_refused_joins();
    join = refused.join;
    join.set_ago_ms(static_cast<uint64_t>(ago.count()));
  };
  for (const auto& [key, refused] : refused_) add(refused);
  for (const auto& [key, refused] : refused_hosts_) add(refused);
}

}  // namespace tutti
