#include "daemon/agent/quotas.h"

#include <string>

#include "daemon/base/text.h"

namespace tutti {
namespace {

bool is_reached(uint64_t count, int64_t limit) { return count >= static_cast<uint64_t>(limit); }

}  // namespace

void Quotas::count_job(uint32_t uid, uint64_t ranks, uint64_t memory_bytes) {
  Use& use = users_[uid];
  ++jobs_;
  ++use.jobs;
  use.ranks += ranks;
  use.memory_bytes += memory_bytes;
}

Status Quotas::check_join(uint32_t uid, bool starts_job) const {
  if (starts_job && is_reached(jobs_, settings_.jobs_max))
    return resource_exhausted("host " + settings_.host + " has " + std::to_string(jobs_) +
                              " jobs, as many as its setting jobs_max allows; try again when one "
                              "has ended, or raise the setting");
  const auto user = users_.find(uid);
  if (user == users_.end() || !is_limited(uid)) return {};
  const Use& use = user->second;
  if (starts_job && is_reached(use.jobs, settings_.user_jobs_max))
    return refuse(uid, std::to_string(use.jobs) + " jobs", "user_jobs_max");
  if (is_reached(use.ranks, settings_.user_ranks_max))
    return refuse(uid, std::to_string(use.ranks) + " ranks", "user_ranks_max");
  if (is_reached(use.memory_bytes, settings_.user_memory_bytes))
    return refuse(uid, "segments of " + format_byte_size(use.memory_bytes), "user_memory_bytes");
  return {};
}

Status Quotas::refuse(uint32_t uid, const std::string& what, const std::string& setting) const {
  return resource_exhausted("user " + std::to_string(uid) + " has " + what + " on host " +
                            settings_.host + ", as much as its setting " + setting +
                            " allows; try again when one of the user's jobs has ended, or have "
                            "the setting raised");
}

void Quotas::report(v1::AgentReport& report) const {
  for (const auto& [uid, use] : users_) {
    v1::UserReport& user = *report.add_users();
    user.set_uid(uid);
    user.set_jobs(use.jobs);
    user.set_ranks(use.ranks);
    user.set_memory_bytes(use.memory_bytes);
    if (!is_limited(uid)) continue;
    user.set_jobs_max(static_cast<uint64_t>(settings_.user_jobs_max));
    user.set_ranks_max(static_cast<uint64_t>(settings_.user_ranks_max));
    user.set_memory_bytes_max(static_cast<uint64_t>(settings_.user_memory_bytes));
  }
}

}  // namespace tutti
