// A source that shows what it is asked to, and a report with something of everything.
#pragma once

#include <atomic>
#include <string>

#include "daemon/http/http.h"

namespace tutti {

inline v1::AgentReport example_node() {
  v1::AgentReport node;
  node.set_host("a");
  node.set_state("serving");
  node.set_coordinator(true);
  node.set_version("1.2.3");
  node.set_uptime_ms(1'500);
  node.set_descriptors(20);
  node.set_descriptors_max(1'024);
  v1::RefusedCallers& refused = *node.add_refused();
  refused.set_door("socket");
  refused.set_code("UNAUTHENTICATED");
  refused.set_count(3);
  v1::WorkerReport& job = *node.add_workers();
  job.set_job("demo");
  job.set_uid(1'000);
  job.set_state("failed: rank 3 left");
  job.set_strategy("ring");
  job.set_world_size(4);
  job.set_epoch(2);
  job.set_operations(20);
  job.set_failures(1);
  job.set_bytes(4'096);
  job.set_sent_bytes(2'048);
  job.set_received_bytes(1'024);
  job.set_sent_frames(7);
  job.set_folded_by_ranks_bytes(512);
  job.set_folded_by_worker_bytes(256);
  job.set_memory_bytes(8'192);
  job.mutable_departures()->add_ranks(3);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::RankReport& report = *job.add_ranks();
    report.set_rank(rank);
    report.set_operations(10 + rank);
    report.set_bytes(512);
  }
  v1::LinkTime& path = *job.mutable_tuning()->add_links();
  path.set_from("a");
  path.set_to("b");
  path.set_message_us(50);
  path.set_byte_us(0.001);
  v1::UserReport& user = *node.add_users();
  user.set_uid(1'000);
  user.set_jobs(1);
  user.set_ranks(2);
  user.set_memory_bytes(8'192);
  return node;
}

struct FixedSource : HttpSource {
  Status readiness() override { return ready; }
  Result<bool> sees_all(std::string_view token) override {
    if (token.empty()) return is_public;
    if (token == "sesame") return true;
    return unauthenticated("the token is wrong");
  }
  v1::AgentReport node() override {
    ++asked;
    return shown;
  }
  bool has_rank_metrics() override { return true; }
  std::vector<RecordedJob> recorded() override { return jobs; }
  Result<v1::StatusReply> mesh(bool with_calls) override {
    ++meshes_asked;
    v1::StatusReply reply;
    if (with_calls) *reply.mutable_calls() = calls;
    *reply.add_agents() = shown;
    reply.add_agents()->set_host("b");
    return reply;
  }

  Status ready;
  bool is_public = false;
  v1::AgentReport shown = example_node();
  std::vector<RecordedJob> jobs;
  v1::TraceReply calls;
  std::atomic<int> asked{0};
  std::atomic<int> meshes_asked{0};
};

}  // namespace tutti
