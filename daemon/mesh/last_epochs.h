// Remembers numbers of jobs that are gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace tutti {

// The last epoch of jobs that have no ranks now, so that epochs never repeat; the jobs that ended
// longest ago are forgotten first.
class LastEpochs {
 public:
  explicit LastEpochs(size_t jobs_max) : jobs_max_(jobs_max) {}
  void keep(const std::string& job, uint32_t epoch);
  uint32_t take(const std::string& job);  // 0: none known.
  size_t size() const { return where_.size(); }

 private:
  using Entries = std::list<std::pair<std::string, uint32_t>>;  // Newest first.
  size_t jobs_max_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> where_;
};

}  // namespace tutti
