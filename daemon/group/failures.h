// What everyone is told when an operation or an epoch fails: who, what, where, and the remedy.
// Pure.
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

// What a rank of the group asks for.
struct Asked {
  int rank = -1;  // -1: not known.
  Signature signature;
};
// `one` was there first; the other is named as the culprit.
Status disagreement(const Roster& roster, const Members& members, uint64_t number, const Asked& one,
                    const Asked& other);

// A rank of the job is gone and had not called the operation.
Status absence(const Roster& roster, const Gone& gone, const Signature& signature, uint64_t number);

// `late` tells of the deadline; `missing` had not called, ranks of the group; `silent` are workers
// that do not answer.
Status lateness(const Roster& roster, const Members& members, const Report& late,
                const std::vector<int>& missing, const std::vector<const Host*>& silent);
// All have started, but data moves too slowly at `host`.
Status slowness(const Roster& roster, const Members& members, const Report& late,
                const std::string& host);
// The worker of a host does not answer a question about a late operation.
Status silence(const Report& late, const Host& host);
Status leader_silence(const Signature& signature, uint64_t number, uint32_t timeout_ms,
                      const Host& leader);
// The worker of a host is lost to the others.
Status lost(const Host& host, const Status& why);

}  // namespace tutti::failures
