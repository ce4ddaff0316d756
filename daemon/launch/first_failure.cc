#include "daemon/launch/first_failure.h"

#include <algorithm>

#include "proto/mesh.pb.h"

namespace tutti {

JobRecord record_of(const v1::StatusReply& reply, const std::string& job, size_t world_size) {
  JobRecord record;
  for (const v1::AgentReport& agent : reply.agents()) {
    record.joined |= agent.state() == "busy";  // Its workers are unknown for now.
    for (const v1::WorkerReport& worker : agent.workers()) {
      if (worker.job() != job) continue;
      record.joined |= worker.state() == "starting";  // It has not answered yet.
      const v1::Departures& departures = worker.departures();
      if (worker.world_size() != world_size || departures.epoch() == 0) continue;
      record.joined = true;
      for (const uint32_t rank : departures.ranks())
        if (rank < world_size) record.departed.push_back(static_cast<int>(rank));
      record.is_aborted = departures.has_cause();
      if (record.is_aborted) record.culprit = departures.cause().culprit_rank();
    }
  }
  return record;
}

std::optional<int> first_failure(std::span<const std::optional<int>> codes,
                                 std::span<const int> failed, const JobRecord& record,
                                 bool must_decide) {
  for (const int rank : record.departed) {
    const std::optional<int>& code = codes[static_cast<size_t>(rank)];
    if (code.value_or(0) != 0) return rank;
    if (!code && !must_decide) return std::nullopt;
  }
  if (record.is_aborted && std::ranges::find(failed, record.culprit) != failed.end())
    return record.culprit;
  const bool is_listed_later = record.joined && !record.is_aborted;
  if (is_listed_later && !must_decide) return std::nullopt;
  return failed.front();
}

}  // namespace tutti
