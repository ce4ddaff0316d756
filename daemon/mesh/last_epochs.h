// Remembers numbers of jobs that are gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace tutti {

inline constexpr uint32_t kEpochMax = UINT32_MAX / 2;  // Counting never comes so far.

// What became of an epoch that does not run.
enum class EpochEnd {
  unknown,  // Only its number was heard of: it may run, at workers that have not said so yet.
  over,
  death,  // Of a rank. Its workers hear of that from their leader.
};

struct LastEpoch {
  uint32_t number = 0;  // 0: there was none.
  EpochEnd end = EpochEnd::unknown;
  bool operator==(const LastEpoch&) const = default;
};

// The last epoch of jobs that have no ranks now, so that epochs never repeat; the jobs that ended
// longest ago are forgotten first.
class LastEpochs {
 public:
  explicit LastEpochs(size_t jobs_max) : jobs_max_(jobs_max) {}
  void keep(const std::string& job, LastEpoch epoch);
  LastEpoch take(const std::string& job);
  size_t size() const { return where_.size(); }

 private:
  using Entries = std::list<std::pair<std::string, LastEpoch>>;  // Newest first.
  size_t jobs_max_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> where_;
};

}  // namespace tutti
