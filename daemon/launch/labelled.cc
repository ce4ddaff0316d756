#include "daemon/launch/labelled.h"

#include <utility>

namespace tutti {

std::string Labelled::add(std::string_view bytes) {
  // What is pending was searched before; only a \r at its end waits for what follows.
  size_t at = pending_.ends_with('\r') ? pending_.size() - 1 : pending_.size();
  pending_ += bytes;
  std::string out;
  size_t begin = 0;
  while ((at = pending_.find_first_of("\r\n", at)) != std::string::npos) {
    const bool returns = pending_[at] == '\r';
    if (returns && at + 1 == pending_.size()) break;
    at += returns && pending_[at + 1] == '\n' ? 2 : 1;
    out.append(label_).append(pending_, begin, at - begin);
    begin = at;
  }
  pending_.erase(0, begin);
  return pending_.size() < kLabelledLineMax ? out : out + finish();
}

std::string Labelled::finish() {
  if (pending_.empty()) return "";
  if (pending_.ends_with('\r')) pending_.pop_back();
  return label_ + std::exchange(pending_, "") + "\n";
}

}  // namespace tutti
