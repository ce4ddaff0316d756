// Real control servers and coordinator clients in one process, for the tests of daemon/control.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/control.h"
#include "daemon/control/coordinator_client.h"
#include "daemon/control/tls_files.h"
#include "proto/mesh.pb.h"
#include "tests/control/credentials.h"
#include "tests/support/await.h"
#include "tests/support/variable.h"

namespace tutti {

inline constexpr Millis kPatience{30'000};

struct FakeAgent final : AgentControl {
  explicit FakeAgent(std::string host) : host(std::move(host)) {}
  v1::AgentReport report() override {
    v1::AgentReport report;
    report.set_host(host);
    report.set_state(draining ? "draining" : "serving");
    for (const uint32_t uid : uids) {
      report.add_workers()->set_uid(uid);
      report.mutable_workers()->rbegin()->mutable_pass()->set_subject(subject);
    }
    return report;
  }
  // One host's trace for each of the uids.
  v1::TraceReply trace(const v1::TraceRequest& request) override {
    v1::TraceReply reply;
    for (const uint32_t uid : uids) {
      if (request.has_owner() && request.owner().uid() != uid) continue;
      v1::HostTrace& trace = *reply.add_hosts();
      trace.set_host(host);
      trace.set_job(request.job());
      trace.mutable_owner()->set_uid(uid);
      trace.mutable_owner()->set_subject(subject);
    }
    return reply;
  }
  Status drain(bool undo) override {
    draining = !undo;
    return {};
  }
  Status stop(bool jobs) override {
    stopped = jobs ? 2 : 1;
    return {};
  }
  v1::StopJobReply stop_job(const v1::StopJobRequest& request) override {
    v1::StopJobReply reply;
    for (const uint32_t uid : uids) {
      const bool asked = !request.has_owner() ||
                         (request.owner().uid() == uid && request.owner().subject() == subject);
      if (!asked || request.job() != "demo") continue;
      *reply.mutable_hosts()->Add() = host;
      stopped_by = request.by();
      break;
    }
    return reply;
  }

  const std::string host;
  std::vector<uint32_t> uids;  // Of the workers that it reports.
  std::string subject;         // The same, of all.
  std::atomic<bool> draining = false;
  std::atomic<int> stopped = 0;  // 2: and its jobs.
  std::string stopped_by;        // The job "demo"; read it when the call is over.
};

// TUTTI_TOKEN, while it lives; empty: none.
struct ShownToken : Variable {
  explicit ShownToken(const std::string& token)
      : Variable("TUTTI_TOKEN", token.empty() ? std::nullopt : std::optional(token)) {}
};
// The tests ask as administrators, but where they say otherwise.
inline const bool kIsAdmin = setenv("TUTTI_TOKEN", kMeshToken, 1) == 0;

// One agent's control plane.
struct Node {
  explicit Node(const std::string& host, const std::string& coordinator = "",
                const std::string& listen = "127.0.0.1:0",
                const Credentials& credentials = test_credentials())
      : agent(host) {
    auto result = serve_control(
        {.listen = listen, .coordinator = coordinator, .host = host, .credentials = credentials},
        agent);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (result.ok()) server = std::move(*result);
  }
  std::string address() const { return server->address(); }

  FakeAgent agent;
  std::unique_ptr<ControlServer> server;
};

// One worker's CoordinatorClient, recording all events.
struct FakeWorkerClient final : CoordinatorClient::Events {
  FakeWorkerClient(Loop& loop, const std::string& coordinator, const std::string& host,
                   const Tls& tls = nullptr)
      : loop(loop),
        host(host),
        client(connect_coordinator(loop,
                                   {.coordinator = coordinator,
                                    .job = "demo",
                                    .host = host,
                                    .data_address = host + ":9",
                                    .tls = tls},
                                   *this)) {}

  void on_roster(const Roster& roster) override { rosters.push_back(roster); }
  void on_refused(uint32_t rank, Status why) override { refused.emplace_back(rank, why); }
  void on_aborted(uint32_t epoch, Status cause) override { aborted.emplace_back(epoch, cause); }
  void on_strategy(const std::string& strategy) override { strategies.push_back(strategy); }

  void join(uint32_t rank, uint32_t world_size, uint32_t timeout_ms = 60'000,
            const v1::Pass* pass = nullptr) {
    client->join({.job = "demo",
                  .rank = rank,
                  .world_size = world_size,
                  .pid = 100 + rank,
                  .timeout_ms = timeout_ms,
                  .pass = pass != nullptr ? *pass : pass_of(host)});
  }

  Loop& loop;
  const std::string host;
  std::vector<Roster> rosters;
  std::vector<std::pair<uint32_t, Status>> refused;
  std::vector<std::pair<uint32_t, Status>> aborted;
  std::vector<std::string> strategies;
  std::unique_ptr<CoordinatorClient> client;
};

}  // namespace tutti
