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
  uint32_t pid = 0;                          // 0: its process is gone.
  const v1::Departure* departure = nullptr;  // What is known of how it went.
  bool is_joining = false;                   // It waits for others.
  bool is_traced = false;        // Its host told what it called; else that is not known.
  std::optional<double> seen_s;  // Seconds since it last called, or ended, an operation.
  std::map<EpochOp, const v1::TracedOperation*> calls;
  std::map<uint32_t, uint64_t> next;  // By group: the number of its next call.
  bool is_cut = false;                // Older calls are not known.
  const v1::TracedOperation* last_ended = nullptr;
};

struct HostView {
  std::string name;
  bool has_worker = false;  // Of the job, and it is there.
  const v1::WorkerReport* worker = nullptr;
  double joining_s = 0;             // Since the first of its ranks that wait to join did.
  std::optional<int64_t> asked_ns;  // Its clock when it was asked, since 1970.
  // The same; of a job that is over there, when the first of its
  // ranks had gone.
  std::optional<int64_t> now_ns;
  std::map<EpochOp, const v1::TracedOperation*> among_hosts;
};

// From which rank to which other one a group's messages go; both are ranks of the job.
struct MessageWay {
  uint32_t from = 0;
  uint32_t to = 0;
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
  // Groups that carry messages, or may: a rank in an operation of theirs need not wait.
  std::set<uint32_t> channels;
  // Also the last ones of workers that are gone, which say that they ended.
  std::vector<const v1::WorkerReport*> workers;
  std::vector<EndedOnHost> ended;
  std::vector<const v1::RefusedJoin*> refused;  // By the coordinator, of joins of this job's name.
  std::string lone;                             // See describe_lone().
  std::vector<std::string> silent;  // Agents and workers that do not answer, or do not know.

  bool lacks_agents = false;  // Some are lost or cannot be reached.

  bool is_over() const { return !has_worker && (has_trace || !ended.empty()); }
  // "rank 2 (host b, pid 4711)", "rank 2 (host b, pid 4711, died)".
  std::string name_of(uint32_t rank) const;
  bool has_died(uint32_t rank) const;  // It is known to have ended without leaving.
  // Seconds since this moment of the host's clock; 0 where it has not come yet.
  double seconds_since(const std::string& host, uint64_t ns) const;
  // By the host's clock when it was asked, which for a job that is over is not `now_ns`; 0: it was
  // not.
  double seconds_ago(const std::string& host, int64_t time_ms) const;
  std::string ago_text(const std::string& host, int64_t time_ms) const;  // "20 s ago".
};

// A message that a rank has asked for, or sends, and that it has not taken note of yet. Whether it
// waits is not known: it may have asked for it long before it needs it.
struct OpenMessage {
  uint32_t rank = 0;
  const v1::TracedOperation* call = nullptr;
  std::optional<MessageWay> way;  // nullopt: not known.
};
// The first 64, of all ranks or of one.
std::vector<OpenMessage> open_messages(const JobView& view, std::optional<uint32_t> rank = {});
// "rank 0 asked rank 1 for a message 40 s ago".
std::string describe(const JobView& view, const OpenMessage& message);
// A call of the rank: "all_reduce #7", or "recv from rank 2" where it is part of a message.
std::string describe(const JobView& view, uint32_t rank, const v1::TracedOperation& call);

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
