// On which cores a worker runs.
//
// A launcher, a batch system or a container that gives a trainer some cores of the node means the
// job to keep to them: its worker then keeps to those of its trainers together, and leaves other
// jobs' cores alone. And where trainer and worker take turns on one core, waking one another costs
// a tenth of what it costs across cores. The price: a trainer that computes while its operations
// run shares its cores with them, where others may be idle (worker_cores = any). A sidecar that
// does not see its trainers' processes runs on any. Bindings count as they are when an epoch forms.
#pragma once

#include <sys/types.h>

#include <array>
#include <climits>
#include <optional>
#include <vector>

namespace tutti {

class Cores {
 public:
  // Remembers those this process has: it never takes others.
  Cores();
  // Puts every thread of this process on the cores that the threads of those processes have; all of
  // them count, for an OpenMP runtime may bind each to one. To all of its own, where a process
  // cannot be asked (0 cannot) or has none of them.
  void follow(const std::vector<pid_t>& processes);
  // Whether so many trainers leave one free.
  bool spare(size_t trainers) const { return count_ > trainers; }

 private:
  static constexpr size_t kMost = 8192;
  using Set = std::array<unsigned long, kMost / (sizeof(unsigned long) * CHAR_BIT)>;

  static size_t count_of(const Set& set);
  static std::optional<Set> of_thread(pid_t thread);
  static std::optional<Set> of_process(pid_t process);
  Set together(const std::vector<pid_t>& processes) const;

  Set own_{};
  size_t count_ = 0;  // Of those that this process runs on.
};

}  // namespace tutti
