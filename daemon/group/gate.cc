#include "daemon/group/gate.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tutti {

Gate::Way Gate::admit(Call& call, TimePoint now) {
  if (shut_) {
    waiting_.push_back({std::move(call), now});
    return Way::wait;
  }
  const uint64_t layout = call.signature.layout;
  const bool continues = layout != 0 && layout == layout_ && call.following < following_;
  following_ = call.following;
  if (continues) return refusal_.ok() ? Way::pass : Way::refuse;
  layout_ = layout;
  refusal_ = {};
  shut_ = layout != 0 && call.following > 0;
  return shut_ ? Way::open : Way::pass;
}

std::vector<Call> Gate::take(TimePoint now) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  std::vector<Call> calls;
  for (Waiting& waiting : std::exchange(waiting_, {})) {
    const int64_t here = std::chrono::duration_cast<Millis>(now - waiting.since).count();
    waiting.call.waited_ms =
        static_cast<uint32_t>(std::min(kMost, waiting.call.waited_ms + std::max<int64_t>(0, here)));
    calls.push_back(std::move(waiting.call));
  }
  return calls;
}

void Gate::settle(const Status& verdict) {
  shut_ = false;
  refusal_ = verdict;
}

}  // namespace tutti
