#include "daemon/diagnosis/describe.h"

namespace tutti {

std::string describe_ranks(const std::vector<uint32_t>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0, next = 0; first < ranks.size(); first = next) {
    for (next = first + 1; next < ranks.size() && ranks[next] == ranks[next - 1] + 1;) ++next;
    out += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (next - first > 1) out += (next - first > 2 ? "-" : ", ") + std::to_string(ranks[next - 1]);
  }
  return out;
}

std::string describe_seconds(double seconds) {
  if (seconds < 1) return std::to_string(static_cast<int64_t>(seconds * 1000)) + " ms";
  if (seconds < 120) return std::to_string(static_cast<int64_t>(seconds)) + " s";
  if (seconds < 7200) return std::to_string(static_cast<int64_t>(seconds / 60)) + " min";
  return std::to_string(static_cast<int64_t>(seconds / 3600)) + " h";
}

}  // namespace tutti
