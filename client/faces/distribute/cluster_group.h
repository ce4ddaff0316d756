// The group of a strategy's processes: joined as a resolver tells, or given.
#pragma once

#include <memory>
#include <string>

#include "client/faces/distribute/environment.h"
#include "client/faces/distribute/resolver.h"
#include "client/tutti.h"

namespace tutti::distribute {

struct ClusterOptions {
  // Who takes part. Null: TF_CONFIG where it is set, else TUTTI_RANK and TUTTI_WORLD_SIZE, else
  // this process alone.
  std::shared_ptr<const Resolver> resolver = {};
  // Used instead of joining, and stays the caller's.
  tutti_group* group = nullptr;
  // Name of the job to join; empty: TUTTI_JOB, else a name that follows from the cluster.
  std::string job = {};
  int timeout_ms = -1;  // Of joining and of operations; -1: as tutti_join() has it.
  Environment variables = process_environment();
};

// The group, and whether it is to be left and freed here.
class ClusterGroup {
 public:
  // Joins where the cluster has more than one process, which then blocks until all have come.
  // INVALID_ARGUMENT: `group` has another rank or size than the resolver says. Otherwise errors of
  // Resolver::placement() and tutti_join().
  static Result<ClusterGroup> create(const ClusterOptions& options);

  // Null for a process alone.
  tutti_group* get() const { return group_; }
  // Leaves the job that was joined here, but frees nothing: other threads may be within calls.
  void leave() const {
    if (owned_ != nullptr) tutti_leave(owned_.get());
  }

 private:
  struct Free {
    void operator()(tutti_group* group) const { tutti_group_free(group); }
  };
  std::unique_ptr<tutti_group, Free> owned_;
  tutti_group* group_ = nullptr;
};

}  // namespace tutti::distribute
