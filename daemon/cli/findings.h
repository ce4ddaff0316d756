// The findings of diagnose(), each nullopt where it does not hold. Pure.
#pragma once

#include <optional>

#include "daemon/cli/diagnosis.h"
#include "daemon/cli/job_view.h"

namespace tutti {

using Finding = std::optional<Diagnosis>;

Finding find_failed(const JobView& view);
Finding find_not_joined(const JobView& view);
Finding find_disagreement(const JobView& view);
Finding find_behind(const JobView& view);
Finding find_unanswered(const JobView& view);
Finding find_failed_operation(const JobView& view);
Finding find_slow_link(const JobView& view);
Finding find_late_rank(const JobView& view);
Finding find_network(const JobView& view);
Finding find_ended(const JobView& view);
Finding find_idle(const JobView& view);
Diagnosis running(const JobView& view);

}  // namespace tutti
