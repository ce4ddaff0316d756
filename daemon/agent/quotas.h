// How much of this node each user has, and whether more is allowed. Pure.
#pragma once

#include <cstdint>
#include <map>

#include "daemon/base/settings.h"
#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Quotas {
 public:
  // Nobody has anything yet. `own_uid`: the agent's own user, to whom jobs_max alone applies, as to
  // root. `settings` must outlive this.
  Quotas(const Settings& settings, uint32_t own_uid) : settings_(settings), own_uid_(own_uid) {}

  // The user has one job more, with these ranks, whose segments have so much memory.
  void count_job(uint32_t uid, uint64_t ranks, uint64_t memory_bytes);

  // Whether the user may have one rank more, and one job more where `starts_job`.
  // RESOURCE_EXHAUSTED names the user, the setting and the remedy.
  Status check_join(uint32_t uid, bool starts_job) const;

  // Adds the users who have jobs.
  void report(v1::AgentReport& report) const;

 private:
  struct Use {
    uint64_t jobs = 0;
    uint64_t ranks = 0;
    uint64_t memory_bytes = 0;
  };
  bool is_limited(uint32_t uid) const { return uid != 0 && uid != own_uid_; }
  Status refuse(uint32_t uid, const std::string& what, const std::string& setting) const;

  const Settings& settings_;
  const uint32_t own_uid_;
  uint64_t jobs_ = 0;
  std::map<uint32_t, Use> users_;
};

}  // namespace tutti
