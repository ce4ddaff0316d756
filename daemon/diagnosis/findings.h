// The findings about a job: those of diagnose(), each nullopt where it does not hold, and those
// about each rank. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "daemon/diagnosis/job_diagnosis.h"
#include "daemon/diagnosis/job_view.h"

namespace tutti {

using Finding = std::optional<Diagnosis>;
using CallsByRank = std::map<uint32_t, const v1::TracedOperation*>;

inline constexpr size_t kEvidenceMax = 8;

// The operations in which ranks are, or were when the job ended, and the members that are known not
// to have called them. Not those of messages.
struct Waits {
  CallsByRank calls;
  std::map<EpochOp, std::vector<uint32_t>> missing;  // By operation.

  // The rank waits for others in an operation of another group.
  bool is_elsewhere(const RankView& rank, uint32_t group) const;
};
Waits waits_of(const JobView& view);

// By rank, how many operations it is behind in a group whose others have waited for it for a
// second, and for twice as long as it usually takes.
std::map<uint32_t, uint64_t> ranks_behind(const JobView& view);

// How much later ranks call than the middle one of the others, in the operations of the whole job
// that all have called.
struct Lateness {
  std::map<uint32_t, double> seconds;  // By rank, the median.
  size_t operations = 0;
  double interval = 0;  // From one operation to the next, in seconds.

  bool is_late(double by_s) const;  // As a rule, and by more than happens by itself.
};
Lateness lateness_of(const JobView& view);

// How an operation failed, as its ranks learnt: the word of the host that is nearest to the cause.
// The operation is `judged`, which has ended on a rank of `host`, or else the last of the newest
// epoch that failed. Null: none did, or that is not known.
const v1::Failure* told_failure(const JobView& view);
const v1::Failure* told_failure(const JobView& view, const std::string& host,
                                const v1::TracedOperation& judged);
// The newest join that failed since the newest epoch formed, for another reason than the absence of
// others where there is one; null: none has.
const v1::Failure* failed_join(const JobView& view);
std::string text_of(const v1::Failure& failure);  // Without what the ranks are to do.
// Its culprit is one of these ranks.
bool is_blamed(const v1::Failure& failure, const std::vector<uint32_t>& ranks);

// What some members of the group have called is not known.
bool has_untold_members(const JobView& view, uint32_t group);

std::vector<uint32_t> gone_ranks(const JobView& view);  // Of the newest epoch, in this order.

Finding find_failed(const JobView& view);
Finding find_not_joined(const JobView& view);
Finding find_disagreement(const JobView& view);
Finding find_behind(const JobView& view);
Finding find_unanswered(const JobView& view);
Finding find_failed_operation(const JobView& view);
Finding find_slow_link(const JobView& view);
Finding find_late_rank(const JobView& view);
Finding find_network(const JobView& view);
Finding find_stopped(const JobView& view);
Finding find_ended(const JobView& view);
Finding find_idle(const JobView& view);
Diagnosis running(const JobView& view);

Diagnosis judge(const JobView& view);  // The first of these that holds.

}  // namespace tutti
