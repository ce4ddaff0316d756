// The streams of workers and agents to a coordinator that stops coordinating.
#include <gtest/gtest.h>

#include "daemon/control/agent_registration.h"
#include "daemon/control/channel.h"
#include "daemon/control/epoch_file.h"
#include "daemon/control/mesh_service.h"
#include "tests/control/net.h"

namespace tutti {
namespace {

// A coordinator behind a port, of which a test says whether it leads.
struct Coordinating {
  Coordinating() {
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

  const Credentials credentials = test_credentials();
  const ServerTls tls{nullptr, ""};
  EpochFile store{""};
  Coordinator coordinator{credentials, {}, [] {}};
  MeshService service{coordinator, credentials, tls};
  std::unique_ptr<grpc::Server> server;
  std::string address;
};

v1::AgentMessage agent_of(const std::string& host) {
  v1::AgentMessage agent;
  agent.set_host(host);
  agent.set_address(host + ":7601");
  return agent;
}

TEST(MeshStreams, AgentsKnowWhenTheirCoordinatorStandsDown) {
  Loop loop;
  Coordinating at;
  Status registered = unavailable("not yet");
  const AgentRegistration registration(loop, at.address, agent_of("b"), kMeshToken, nullptr,
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
