// The statuses of failed operations and epochs: their messages (who, what, where, remedy) and
// culprits. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/roster.h"
#include "daemon/group/communicator.h"
#include "daemon/group/messages.h"

namespace tutti::failures {

// "all_reduce #17".
std::string operation(const Signature& signature, uint64_t number);

// The call of a rank of the group.
struct Asked {
  int rank = -1;  // -1: not known.
  Signature signature;
};
// Two calls of one operation differ. Without a culprit: which of them is wrong is not known.
Status disagreement(const Roster& roster, const Ranks& members, uint64_t number, const Asked& one,
                    const Asked& other);

// A rank of the job left or died and had not called the operation. `first`: the one whose departure
// is the reason of that, which is to blame; null: there is none.
Status absence(const Roster& roster, const RankGone& gone, const RankGone* first,
               const Signature& signature, uint64_t number);

// A deadline passed (`late`) because `missing` ranks of the group had not called the operation, or
// the workers of `silent` hosts do not answer.
Status lateness(const Roster& roster, const Ranks& members, const Report& late,
                const std::vector<int>& missing, const std::vector<const Host*>& silent);
// A deadline passed although all hosts had started: data is too slow at `host`.
Status slowness(const Roster& roster, const Ranks& members, const Report& late,
                const std::string& host);
// The worker of a host did not answer a Query about a late operation.
Status silence(const Report& late, const Host& host);
// The leader did not react to the report of a deadline.
Status leader_silence(const Signature& signature, uint64_t number, uint32_t timeout_ms,
                      const Host& leader);
// The connection to the worker of a host broke, or it broke the protocol.
Status lost(const Host& host, const Status& why);

}  // namespace tutti::failures
