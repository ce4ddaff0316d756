// The cores that a worker runs on.
//
// A launcher, batch system or container that binds a trainer to some cores expects the job to stay
// on them. So the worker runs on the union of its trainers' cores and leaves those of other jobs
// free. Also, waking each other costs a tenth if trainer and worker share a core. The drawback: a
// trainer that computes while its operations run shares its cores with them even if others are
// idle; worker_cores = any avoids that. A worker that cannot see its trainers' processes, as in a
// sidecar, runs on all of its cores. Bindings are read when an epoch forms.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <climits>
#include <optional>
#include <vector>

#include "daemon/base/cpu_quota.h"

namespace tutti {

class Cores {
 public:
  // Reads the cores of this process; no others are ever used.
  Cores();
  // Binds every thread of this process to the union of the cores of all threads of `processes`; all
  // threads, because an OpenMP runtime may bind each to one core. Binds to all cores of this
  // process if one of `processes` cannot be read (0 cannot) or they share no core with it.
  void bind_to(const std::vector<pid_t>& processes);
  // That this process may use: as it is bound, and by the quota of its control groups.
  size_t count() const { return std::min(count_, quota_); }
  bool exceed(size_t trainers) const { return count() > trainers; }

 private:
  static constexpr size_t kCoresMax = 8192;
  using Set = std::array<unsigned long, kCoresMax / (sizeof(unsigned long) * CHAR_BIT)>;

  static size_t count_of(const Set& set);
  static std::optional<Set> of_thread(pid_t thread);
  static std::optional<Set> of_process(pid_t process);
  Set union_of(const std::vector<pid_t>& processes) const;

  Set own_{};
  size_t count_ = 0;  // Of the cores that this process is bound to.
  size_t quota_ = cpu_quota();
};

}  // namespace tutti
