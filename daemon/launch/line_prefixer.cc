#include "daemon/launch/line_prefixer.h"

#include <utility>

namespace tutti {

std::string LinePrefixer::add(std::string_view bytes) {
  // The pending bytes were searched before; a \r at their end may be half of a \r\n.
  size_t at = pending_.ends_with('\r') ? pending_.size() - 1 : pending_.size();
  pending_ += bytes;
  std::string out;
  size_t begin = 0;
  while ((at = pending_.find_first_of("\r\n", at)) != std::string::npos) {
    const bool returns = pending_[at] == '\r';
    if (returns && at + 1 == pending_.size()) break;
    at += returns && pending_[at + 1] == '\n' ? 2 : 1;
    out.append(prefix_).append(pending_, begin, at - begin);
    begin = at;
  }
  pending_.erase(0, begin);
  return pending_.size() < kLineBytesMax ? out : out + finish();
}

std::string LinePrefixer::finish() {
  if (pending_.empty()) return "";
  if (pending_.ends_with('\r')) pending_.pop_back();
  return prefix_ + std::exchange(pending_, "") + "\n";
}

}  // namespace tutti
