// How many callers were turned away, by door and code, and which of them the log names. Any thread.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/base/log_limit.h"
#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Refusals {
 public:
  // Returns whether to log it: the first of this door, code and caller in a minute. `caller` has no
  // port, which differs each time.
  bool count(const std::string& door, Code code, const std::string& caller = {}) {
    const std::lock_guard lock(mutex_);
    ++counts_[{door, code}];
    return limit_.may_log(door + " " + std::string(name_of(code)) + " " + caller);
  }
  void report(v1::AgentReport& report) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, count] : counts_) {
      v1::RefusedCallers& refused = *report.add_refused();
      refused.set_door(of.first);
      refused.set_code(std::string(name_of(of.second)));
      refused.set_count(count);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, Code>, uint64_t> counts_;  // Guarded by mutex_, as the next.
  LogLimit limit_;
};

}  // namespace tutti
