// The traces of a job's hosts, put together: by operation, what each rank and each host recorded.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/diagnosis/job_owners.h"
#include "proto/mesh.pb.h"

namespace tutti {

// One operation of a group, as far as it is still recorded. Borrows from the reply.
struct TracedAcrossRanks {
  JobOwner owner;  // Whose job it is.
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint64_t number = 0;
  std::map<uint32_t, const v1::TracedOperation*> ranks;     // By rank of the job.
  std::map<std::string, const v1::TracedOperation*> hosts;  // The worker's, by host.
  std::vector<uint32_t> missing;  // Members that have not called it while others have.

  // What some rank called, if possible one that was not refused.
  const v1::TracedOperation& any() const;
  bool disagrees() const;     // Calls that were not refused differ.
  uint64_t begun_ns() const;  // The first.
  // The rank that called last, and how much later than the first.
  struct Last {
    uint32_t rank = 0;
    uint64_t late_ns = 0;
  };
  std::optional<Last> last() const;             // nullopt: no rank's call is recorded.
  std::optional<uint64_t> duration_ns() const;  // From the first call to the last end.
  bool ended() const;                           // On all ranks that called it.
  uint32_t code() const;                        // The first that is not OK; 0.
};

// In the order of their first calls.
std::vector<TracedAcrossRanks> operations_of(const v1::TraceReply& reply);

// The library refused it, so what it says is not what the rank asked for.
bool was_refused(const v1::TracedOperation& operation);

// What the ranks must agree on; `layout` is the folded one of the record.
Signature signature_of(const v1::TracedOperation& operation);

// "all_reduce", "f32", "sum", "ring", "tree:2", "auto"; "?" for numbers outside of the tables.
std::string collective_text(const v1::TracedOperation& operation);
std::string dtype_text(const v1::TracedOperation& operation);  // "" of a barrier.
std::string op_text(const v1::TracedOperation& operation);     // "" where none counts.
std::string strategy_text(uint32_t short_strategy);
std::string code_text(uint32_t code);
// The host of each rank of an epoch of the owner's job.
std::map<uint32_t, std::string> hosts_of_ranks(const v1::TraceReply& reply, const JobOwner& owner,
                                               uint32_t epoch);

}  // namespace tutti
