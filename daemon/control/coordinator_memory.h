// What a coordinator remembers for a while beside its jobs: agents that are gone, and joins that it
// refused. Bounded: the oldest make room. Pure: the time goes in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/loop.h"
#include "proto/mesh.pb.h"

namespace tutti {

class CoordinatorMemory {
 public:
  static constexpr Millis kGoneKept{3'600'000};
  static constexpr Millis kStoppedKept{60'000};  // Without workers that run on.
  static constexpr Millis kRefusedKept{3'600'000};
  static constexpr size_t kAgentsMax = 1'024;
  static constexpr size_t kRefusedMax = 1'024;
  // In a RefusedJoin: which rank it was is not known. More than any rank may be.
  static constexpr uint32_t kUnknownRank = UINT32_MAX;

  // `stopped`: it said goodbye.
  void agent_gone(const v1::AgentMessage& agent, bool stopped, TimePoint now);
  // For how long it was lost; nullopt: it was not.
  std::optional<Millis> agent_back(const std::string& host, TimePoint now);
  // By host, with a state such as "lost 20 s ago" or "stopped 5 s ago".
  std::vector<v1::AgentReport> gone_agents(TimePoint now) const;

  // Remembers the last one of each rank of a job, or of each host where the rank is not known:
  // what strangers claim does not push out what is known.
  void join_refused(v1::RefusedJoin join, TimePoint now);
  void rank_joined(const v1::JoinRank& join);
  void report_refused_joins(TimePoint now, v1::AgentReport& report) const;

 private:
  struct Gone {
    v1::AgentMessage agent;
    bool stopped = false;
    TimePoint since;
  };
  struct Refused {
    v1::RefusedJoin join;
    TimePoint since;
  };
  using RankKey = std::pair<std::string, uint32_t>;  // key_of() the job, and its rank.

  std::map<std::string, Gone> gone_;  // By host.
  std::map<RankKey, Refused> refused_;
  std::map<std::pair<std::string, std::string>, Refused> refused_hosts_;  // By job and host.
};

}  // namespace tutti
