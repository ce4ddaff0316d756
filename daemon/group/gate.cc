#include "daemon/group/gate.h"

namespace tutti {

Gate::Way Gate::admit(Call& call) {
  if (shut_) {
    waiting_.push_back(std::move(call));
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

void Gate::settle(const Status& verdict) {
  shut_ = false;
  refusal_ = verdict;
}

}  // namespace tutti
