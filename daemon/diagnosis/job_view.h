// A job as its hosts report it: who has joined, and what each rank called last. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/op_id.h"
#include "daemon/diagnosis/describe.h"
#include "daemon/diagnosis/job_owners.h"
#include "proto/mesh.pb.h"

namespace tutti {

struct RankView {
  std::string host;
  uint32_t pid = 0;              // 0: its process is gone.
  bool is_joining = false;       // It waits for others.
  bool is_traced = false;        // Its host told what it called; else that is not known.
  std::optional<double> seen_s;  // Seconds since it last called, or ended, an operation.
  std::map<EpochOp, const v1::TracedOperation*> calls;
  std::map<uint32_t, uint64_t> next;  // By group: the number of its next call.
  bool is_cut = false;                // Older calls are not known.
  const v1::TracedOperation* last_ended = nullptr;
};

struct HostView {
  std::string name;
  bool has_worker = false;        // Of the job, and it is there.
  double joining_s = 0;           // Since the first of its ranks that wait to join did.
  std::optional<int64_t> now_ns;  // Its clock when it was asked, since 1970.
  std::map<EpochOp, const v1::TracedOperation*> among_hosts;
};

// A host's word on the newest epoch; what it points to belongs to the replies.
struct JobView {
  std::string job;
  JobOwner owner;
  uint32_t world_size = 0;
  uint32_t epoch = 0;
  bool has_worker = false;
  bool has_trace = false;
  std::map<uint32_t, RankView> ranks;
  std::map<std::string, HostView> hosts;
  std::map<uint32_t, std::set<uint32_t>> groups;  // Ranks by group, as far as known; 0 is the job.
  std::map<uint32_t, uint32_t> group_sizes;
  std::vector<const v1::WorkerReport*> workers;
  std::vector<std::string> silent;  // Agents and workers that do not answer, or do not know.

  // "rank 2 (host b, pid 4711)".
  std::string name_of(uint32_t rank) const;
  // Seconds since this moment of the host's clock; 0 where it has not come yet.
  double seconds_since(const std::string& host, uint64_t ns) const;
};

JobView view_job(const std::string& job, const JobOwner& owner, const v1::StatusReply& status,
                 const v1::TraceReply& trace);

uint64_t end_of(const v1::TracedOperation& operation);  // In ns, where it has ended.
EpochOp op_of(const v1::TracedOperation& operation);
// "all_reduce #17", "all_reduce #17 of group 3".
std::string describe(const v1::TracedOperation& operation);
// "all_reduce f32[1000] sum": all that the ranks must agree on.
std::string signature_text(const v1::TracedOperation& operation);
double median(std::vector<double> values);  // 0 of none.

}  // namespace tutti
