// The streams of workers and agents to a coordinator that stops coordinating.
#include <gtest/gtest.h>

#include "daemon/control/agent_registration.h"
#include "daemon/control/channel.h"
#include "daemon/control/epoch_file.h"
#include "daemon/control/mesh_service.h"
#include "daemon/control/stream_writer.h"
#include "tests/control/net.h"

namespace tutti {
namespace {

// A coordinator behind a port, of which a test says whether it leads.
struct Coordinating {
  explicit Coordinating(Credentials of_coordinator = test_credentials())
      : credentials(std::move(of_coordinator)) {
    grpc::ServerBuilder builder;
    int port = 0;
    set_server_options(builder, 5'000);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
    coordinator.lead(address, store);
  }
  ~Coordinating() {
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
  }

  const Credentials credentials;
  const ServerTls tls{nullptr, ""};
  EpochFile store{""};
  Coordinator coordinator{credentials, {}, [] {}};
  MeshService service{coordinator, credentials, tls};
  std::unique_ptr<grpc::Server> server;
  std::string address;
};

v1::AgentMessage agent_message_of(const std::string& host) {
  v1::AgentMessage agent;
  agent.set_host(host);
  agent.set_address(host + ":7601");
  return agent;
}

// gRPC's part of a reactor.
struct CountingReactor {
  void StartWrite(const int*) { ++writes; }
  void StartWritesDone() { ++ends; }
  int writes = 0;
  int ends = 0;
};

TEST(StreamWriter, AStreamThatBrokeIsNotEndedAgain) {
  CountingReactor broken;
  StreamWriter<CountingReactor, int> after(broken);
  after.close();
  after.finish();
  EXPECT_EQ(broken.ends, 0) << "gRPC may have freed it";
  CountingReactor open;
  StreamWriter<CountingReactor, int> writer(open);
  writer.finish();
  EXPECT_EQ(open.ends, 1);
  EXPECT_TRUE(writer.send(7));
  EXPECT_EQ(open.writes, 0);
}

TEST(StreamWriter, TheEndWaitsForTheWriteInProgress) {
  CountingReactor reactor;
  StreamWriter<CountingReactor, int> writer(reactor);
  EXPECT_TRUE(writer.send(7));
  writer.finish();
  EXPECT_EQ(reactor.ends, 0);
  EXPECT_TRUE(writer.write_done(true)) << "its owner ends the stream now";
}

TEST(MeshStreams, AgentsKnowWhenTheirCoordinatorStandsDown) {
  Loop loop;
  Coordinating at;
  Status registered = unavailable("not yet");
  const AgentRegistration registration(loop, at.address, agent_message_of("b"), kMeshToken, nullptr,
                                       [&](const Status& now) { registered = now; });
  ASSERT_TRUE(await(loop, [&] { return at.coordinator.agents().size() == 1; }));
  ASSERT_TRUE(registered.ok());
  at.coordinator.follow({}, "its lease has ended");
  EXPECT_TRUE(at.coordinator.agents().empty());
  EXPECT_TRUE(await(loop, [&] { return !registered.ok(); }));
  EXPECT_TRUE(await(loop, [&] {
    return registered.message().find("does not coordinate; its lease has ended") !=
           std::string::npos;
  })) << registered.to_string();
  at.coordinator.lead(at.address, at.store);
  EXPECT_TRUE(await(loop, [&] { return at.coordinator.agents().size() == 1; }));
  EXPECT_TRUE(registered.ok());
}

TEST(MeshStreams, AnAgentWhoseStreamBreaksIsLostUntilItIsBack) {
  Loop loop;
  Coordinating at;
  const auto enlist = [&] {
    return std::make_unique<AgentRegistration>(loop, at.address, agent_message_of("b"), kMeshToken,
                                               nullptr, [](const Status&) {});
  };
  auto registration = enlist();
  ASSERT_TRUE(await(loop, [&] { return at.coordinator.agents().size() == 1; }));
  FakeWorkerClient worker(loop, at.address, "b");
  worker.join(0, 1);
  ASSERT_TRUE(await(loop, [&] { return worker.rosters.size() == 1; }));
  registration.reset();
  ASSERT_TRUE(await(loop, [&] { return at.coordinator.gone_agents().size() == 1; }));
  const v1::AgentReport lost = at.coordinator.gone_agents()[0];
  EXPECT_EQ(lost.host(), "b");
  EXPECT_EQ(lost.address(), "b:7601");
  EXPECT_TRUE(lost.lost());
  EXPECT_TRUE(lost.state().starts_with("lost ")) << lost.state();
  ASSERT_EQ(lost.workers_size(), 1) << "it runs on";
  EXPECT_EQ(lost.workers(0).job(), "demo");
  EXPECT_EQ(lost.workers(0).ranks(0).pid(), 100u);
  registration = enlist();
  EXPECT_TRUE(await(loop, [&] { return at.coordinator.gone_agents().empty(); }));
  registration->finish();
  ASSERT_TRUE(await(loop, [&] { return at.coordinator.gone_agents().size() == 1; }));
  EXPECT_TRUE(at.coordinator.gone_agents()[0].state().starts_with("stopped "));
  EXPECT_FALSE(at.coordinator.gone_agents()[0].lost());
}

struct Obstacle {
  std::string shown;  // The agent's token.
  Credentials of_coordinator;
  std::string what;
};

TEST(MeshStreams, ARefusedAgentSaysWhatItLacks) {
  const Credentials agents_only{
      .tokens = {{.text = "open", .trainer = true}, {.text = "sesame", .agent = true}}};
  for (const Obstacle& obstacle : std::vector<Obstacle>{
           {"wrong", agents_only, "wrong token; give both the same token_file"},
           {"", agents_only, "no token; give both the same token_file"},
           {"open", agents_only, "its token is not for agents; show one with role=agent"},
           {"sesame", {}, "the coordinator has no token for agents; give both the same token_file"},
       }) {
    Loop loop;
    Coordinating at(obstacle.of_coordinator);
    Status registered;
    const AgentRegistration registration(loop, at.address, agent_message_of("b"), obstacle.shown,
                                         nullptr, [&](const Status& now) { registered = now; });
    ASSERT_TRUE(await(loop, [&] { return !registered.ok(); }));
    EXPECT_EQ(registered.message(), "not registered: the coordinator " + at.address +
                                        " refuses this agent: " + obstacle.what);
    EXPECT_TRUE(registration.reachability().text().ends_with(
        "s: the coordinator " + at.address + " refuses this agent: " + obstacle.what))
        << registration.reachability().text();
    v1::AgentReport report;
    at.coordinator.report_refusals(report);
    ASSERT_EQ(report.refused_size(), 1);
    EXPECT_EQ(report.refused(0).door(), "mesh");
  }
}

TEST(MeshStreams, WorkersKnowWhenTheirCoordinatorStandsDown) {
  Loop loop;
  Coordinating at;
  FakeWorkerClient worker(loop, at.address, "a");
  worker.join(0, 1);
  ASSERT_TRUE(await(loop, [&] { return worker.rosters.size() == 1; }));
  at.coordinator.follow("127.0.0.1:1");
  worker.join(1, 2, 500);
  ASSERT_TRUE(await(loop, [&] { return worker.refused.size() == 1; }));
  EXPECT_EQ(worker.refused[0].second.code(), Code::unavailable);
}

}  // namespace
}  // namespace tutti
