// Lets the first line of each cause through in a minute, so that what repeats does not flood the
// log. Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "daemon/base/loop.h"

namespace tutti {

class LogLimit {
 public:
  static constexpr Millis kEvery{60'000};
  static constexpr size_t kCausesMax = 256;  // In a minute; of more nothing is logged.

  bool may_log(const std::string& cause, TimePoint now = Clock::now()) {
    std::erase_if(logged_, [now](const auto& one) { return now >= one.second + kEvery; });
    if (logged_.size() >= kCausesMax) return false;
    return logged_.emplace(cause, now).second;
  }

 private:
  std::map<std::string, TimePoint> logged_;
};

}  // namespace tutti
