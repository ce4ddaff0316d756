// Remembers the last epoch of jobs that have no ranks, so that epoch numbers are not reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace tutti {

inline constexpr uint32_t kEpochMax = UINT32_MAX / 2;  // Not reachable by counting.

// How an epoch that is not running ended.
enum class EpochEnd {
  unknown,  // Only its number is known; workers that have not resumed yet may still run it.
  over,
  death,  // A rank died. The job's leader tells the workers.
};

struct LastEpoch {
  uint32_t number = 0;  // 0: there was none.
  EpochEnd end = EpochEnd::unknown;
  bool operator==(const LastEpoch&) const = default;
};

// At most `jobs_max` jobs; those that ended longest ago are forgotten first.
class LastEpochs {
 public:
  explicit LastEpochs(size_t jobs_max) : jobs_max_(jobs_max) {}
  // Returns the job that was forgotten for it, or "".
  std::string add(const std::string& job, LastEpoch epoch);
  // Removes and returns the job's last epoch.
  LastEpoch take(const std::string& job);
  size_t size() const { return where_.size(); }
  // Calls `visit` with each job and its epoch, those that ended longest ago first.
  template <class Visit>
  void for_each(Visit visit) const {
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
      visit(entry->first, entry->second);
  }

 private:
  using Entries = std::list<std::pair<std::string, LastEpoch>>;  // Newest first.
  size_t jobs_max_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> where_;
};

}  // namespace tutti
