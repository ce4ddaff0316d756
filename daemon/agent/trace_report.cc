#include "daemon/agent/trace_report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "daemon/membership/values.h"

namespace tutti {
namespace {

// The most bytes that an operation takes in a reply, and that a reply has.
constexpr uint64_t kOperationBytesMax = 128;
constexpr uint64_t kReplyBytesMax = uint64_t{48} << 20;

// What is asked for of a host's recorders, and how much of it fits into the reply.
struct Shares {
  struct Share {
    const KeptRecorder* recorder = nullptr;
    uint64_t rings = 0;
  };
  std::vector<Share> shares;
  uint64_t rings = 0;
  uint64_t bytes_max = 0;  // Of the reply.

  uint64_t operations_of_ring() const {
    return std::max<uint64_t>(bytes_max / kOperationBytesMax / std::max<uint64_t>(rings, 1), 1);
  }
  uint64_t bytes_of(const Share& share) const { return bytes_max * share.rings / rings; }
};

Shares shares_of(std::span<const KeptRecorder> recorders, const v1::TraceRequest& request) {
  Shares all;
  all.bytes_max = request.bytes_max() == 0
                      ? kReplyBytesMax
                      : std::min<uint64_t>(request.bytes_max(), kReplyBytesMax);
  for (const KeptRecorder& kept : recorders) {
    if (request.has_owner() && !is_owner(request.owner(), kept.pass)) continue;
    const Result<trace::Trace> trace = trace::read_trace(kept.memory->get(), 0);
    if (!trace.ok()) continue;
    all.shares.push_back({&kept, trace->ranks.size() + 1});
    all.rings += all.shares.back().rings;
  }
  return all;
}

void drop_older_half(google::protobuf::RepeatedPtrField<v1::TracedOperation>& operations) {
  operations.DeleteSubrange(0, (operations.size() + 1) / 2);
}

// Programs of the job write to a recorder while it is read: it may have become longer than its
// share, at the cost of other jobs.
void cut_to(uint64_t bytes_max, v1::HostTrace& report) {
  uint64_t bytes = report.ByteSizeLong();
  if (bytes <= bytes_max) return;
  report.set_cut(true);
  for (uint64_t before = UINT64_MAX; bytes > bytes_max && bytes < before;) {
    before = std::exchange(bytes, 0);
    for (v1::RankTrace& rank : *report.mutable_ranks()) drop_older_half(*rank.mutable_operations());
    drop_older_half(*report.mutable_among_hosts());
    bytes = report.ByteSizeLong();
  }
  if (bytes <= bytes_max) return;
  report.clear_groups();
  report.clear_ranks();
}

void report(const trace::Operation& from, v1::TracedOperation& to) {
  to.set_index(from.index);
  to.set_group(from.group);
  to.set_number(from.number);
  to.set_collective(static_cast<uint32_t>(from.collective));
  to.set_dtype(static_cast<uint32_t>(from.dtype));
  to.set_op(static_cast<uint32_t>(from.op));
  to.set_flags(from.flags);
  to.set_root(from.root);
  to.set_layout(from.layout);
  to.set_local_strategy(from.local_strategy);
  to.set_global_strategy(from.global_strategy);
  to.set_count(from.count);
  to.set_bytes(from.bytes);
  to.set_begun_ns(from.begun_ns);
  if (!from.outcome) return;
  to.set_ended(true);
  to.set_duration_ns(from.outcome->duration_ns);
  to.set_code(static_cast<uint32_t>(from.outcome->code));
}

}  // namespace

v1::TraceReply answer_trace(std::span<const KeptRecorder> recorders,
                            const v1::TraceRequest& request, const std::string& host) {
  const Shares shares = shares_of(recorders, request);
  const uint64_t wanted = request.last() == 0 ? kRecordsKept : request.last();
  const uint64_t room = shares.operations_of_ring();
  v1::TraceReply reply;
  for (const Shares::Share& share : shares.shares) {
    const KeptRecorder& kept = *share.recorder;
    const Result<trace::Trace> trace =
        trace::read_trace(kept.memory->get(), std::min(wanted, room));
    if (!trace.ok()) continue;
    v1::HostTrace& report = *reply.add_hosts();
    report_trace(*trace, report);
    report.set_host(host);
    report.set_job(kept.pass.job());
    report.mutable_owner()->set_uid(kept.pass.uid());
    report.mutable_owner()->set_subject(kept.pass.subject());
    report.set_ended(kept.ended);
    report.set_cut(room < std::min<uint64_t>(wanted, kRecordsKept));
    cut_to(shares.bytes_of(share), report);
  }
  return reply;
}

void report_trace(const trace::Trace& trace, v1::HostTrace& to) {
  to.set_epoch(trace.epoch);
  to.set_world_size(trace.world_size);
  for (const trace::Rank& rank : trace.ranks) {
    v1::RankTrace& own = *to.add_ranks();
    own.set_rank(rank.rank);
    own.set_recorded(rank.recorded);
    for (const trace::Operation& operation : rank.operations)
      report(operation, *own.add_operations());
  }
  for (const trace::Operation& operation : trace.among_hosts)
    report(operation, *to.add_among_hosts());
  for (const trace::Group& group : trace.groups) {
    v1::TracedGroup& own = *to.add_groups();
    own.set_number(group.number);
    own.set_size(group.size);
    own.mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
  }
}

void keep_newest_epochs(v1::TraceReply& reply) {
  const auto key_of = [](const v1::HostTrace& host) {
    return std::tuple(host.job(), host.owner().uid(), host.owner().subject());
  };
  const auto age_of = [](const v1::HostTrace& host) {
    return std::pair(!host.ended(), host.epoch());
  };
  std::map<decltype(key_of({})), decltype(age_of({}))> newest;
  for (const v1::HostTrace& host : reply.hosts()) {
    auto& best = newest[key_of(host)];
    best = std::max(best, age_of(host));
  }
  auto& hosts = *reply.mutable_hosts();
  // An epoch that has ended on some of its hosts alone is shown of all of them.
  hosts.erase(std::remove_if(hosts.begin(), hosts.end(),
                             [&](const v1::HostTrace& host) {
                               return host.epoch() != newest[key_of(host)].second;
                             }),
              hosts.end());
}

}  // namespace tutti
