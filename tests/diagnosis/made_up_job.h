// Made-up reports and traces of a job for the tests of diagnose().
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/types.h"

namespace tutti::testing {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kNow = 1'000 * kSecond;  // Of all clocks, unless a test says otherwise.

// A job of two hosts, a and b, with two ranks each, whose operations a test adds.
class Job {
 public:
  Job() {
    for (const uint32_t host : {0U, 1U}) {
      const std::string name = host == 0 ? "a" : "b";
      v1::AgentReport& agent = *status.add_agents();
      agent.set_host(name);
      agent.set_address(name + ":7601");
      agent.set_state("serving");
      agent.set_time_ms(kNow / kMillisecond);
      v1::WorkerReport& worker = *agent.add_workers();
      worker.set_job("demo");
      worker.mutable_pass()->set_host(name);
      worker.set_world_size(4);
      worker.set_epoch(1);
      worker.set_state("running");
      v1::HostTrace& traced = *trace.add_hosts();
      traced.set_host(name);
      traced.set_job("demo");
      traced.set_epoch(1);
      traced.set_world_size(4);
      v1::TracedGroup& group = *traced.add_groups();
      group.set_size(4);
      for (const uint32_t rank : {2 * host, 2 * host + 1}) {
        v1::RankReport& report = *worker.add_ranks();
        report.set_rank(rank);
        report.set_pid(100 + rank);
        report.set_epoch(1);
        group.add_ranks(rank);
        traced.add_ranks()->set_rank(rank);
      }
    }
    worker(0).mutable_tuning();
  }

  v1::WorkerReport& worker(int host) { return *status.mutable_agents(host)->mutable_workers(0); }
  v1::HostTrace& traced(int host) { return *trace.mutable_hosts(host); }
  v1::RankTrace& rank(int number) { return *traced(number / 2).mutable_ranks(number % 2); }

  // The host has made a group of `size` ranks, of which these are on it.
  void add_group(int host, uint32_t number, const std::vector<uint32_t>& ranks, uint32_t size) {
    v1::TracedGroup& group = *traced(host).add_groups();
    group.set_number(number);
    group.set_size(size);
    group.mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  // The rank calls operation `number`, an all_reduce of 100 f32, this long before now.
  v1::TracedOperation& call(int number, uint64_t operation, uint64_t ago_ns) {
    v1::TracedOperation& call = *rank(number).add_operations();
    fill(call, operation, ago_ns);
    return call;
  }
  // The same, and it takes so long.
  v1::TracedOperation& ended(int number, uint64_t operation, uint64_t ago_ns, uint64_t duration_ns,
                             Code code = Code::ok) {
    v1::TracedOperation& one = call(number, operation, ago_ns);
    one.set_ended(true);
    one.set_duration_ns(duration_ns);
    one.set_code(static_cast<uint32_t>(code));
    return one;
  }
  v1::TracedOperation& among_hosts(int host, uint64_t operation, uint64_t ago_ns) {
    v1::TracedOperation& one = *traced(host).add_among_hosts();
    fill(one, operation, ago_ns);
    return one;
  }
  // All ranks run operations 0 to `count` - 1, one every `every_ns`, the last `ago_ns` before now.
  void all_run(uint64_t count, uint64_t every_ns, uint64_t ago_ns) {
    for (uint64_t operation = 0; operation < count; ++operation)
      for (int rank = 0; rank < 4; ++rank)
        ended(rank, operation, ago_ns + (count - 1 - operation) * every_ns, kMillisecond);
  }

  Diagnosis verdict() const { return diagnose("demo", status, trace); }

  v1::StatusReply status;
  v1::TraceReply trace;

 private:
  static void fill(v1::TracedOperation& call, uint64_t operation, uint64_t ago_ns) {
    call.set_number(operation);
    call.set_collective(static_cast<uint32_t>(Collective::all_reduce));
    call.set_count(100);
    call.set_bytes(400);
    call.set_begun_ns(kNow - ago_ns);
  }
};

}  // namespace tutti::testing
