// The control plane with TLS: agents, workers and tools that prove who they are by certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "daemon/mesh/channel.h"
#include "proto/mesh.grpc.pb.h"
#include "tests/mesh/net.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kCallMs = 10'000;

// What tools find in their environment, while it lives.
struct ToolEnvironment {
  ToolEnvironment(const std::string& tls, const std::string& directory) {
    setenv("TUTTI_TLS", tls.c_str(), 1);
    setenv("TUTTI_TLS_DIR", directory.c_str(), 1);
  }
  ~ToolEnvironment() {
    for (const char* name : {"TUTTI_TLS", "TUTTI_TLS_DIR"}) unsetenv(name);
  }
};

struct TlsNode {
  TlsNode(const std::string& host, const std::string& directory, const std::string& published,
          const std::string& coordinator = "", const std::string& listen = "127.0.0.1:0")
      : agent(host) {
    const auto tls = open_agent_tls(directory);
    EXPECT_TRUE(tls.ok()) << tls.status().to_string();
    auto served = serve_control({.listen = listen,
                                 .coordinator = coordinator,
                                 .host = host,
                                 .credentials = test_credentials(),
                                 .tls = *tls,
                                 .tls_admin = "tutti-admin",
                                 .tls_published = published},
                                agent);
    EXPECT_TRUE(served.ok()) << served.status().to_string();
    if (served.ok()) server = *std::move(served);
  }
  std::string address() const { return server->address(); }

  FakeAgent agent;
  std::unique_ptr<ControlServer> server;
};

struct MeshTlsNodes : testing::Test {
  MeshTlsNodes() {
    std::string name = testing::TempDir() + "tutti_tls_XXXXXX";
    root = mkdtemp(name.data());
  }
  ~MeshTlsNodes() override { fs::remove_all(root); }

  std::string mount(const std::string& name, const std::string& names) {
    return mount(name, names, ca, ca.certificate());
  }
  std::string mount(const std::string& name, const std::string& names, const TestCa& issuer,
                    const std::string& authorities) {
    const IssuedCertificate issued = issuer.issue({.common_name = name, .names = names});
    mount_secret(root + "/" + name, issued, authorities);
    return root + "/" + name;
  }
  // Like a container of Kubernetes, whose certificate has no addresses.
  TlsNode make_node(const std::string& host, const std::string& coordinator = "",
                    const std::string& more = "") {
    return {host, mount(host, "DNS:" + host + more), published_of(host), coordinator};
  }
  TlsNode make_coordinator() { return make_node("a", "", ",IP:127.0.0.1"); }
  std::string published_of(const std::string& host) const { return root + "/public-" + host; }

  // How the coordinator ends the stream of an agent that has this certificate and the token, and
  // says that it is `host`; OK: it is registered.
  Status enlist(const std::string& coordinator, const std::string& directory,
                const std::string& host) {
    const auto tls = open_client_tls(directory);
    EXPECT_TRUE(tls.ok());
    grpc::ClientContext context;
    show_token(context, kMeshToken);
    const auto stub = v1::Mesh::NewStub(make_channel(coordinator, *tls));
    const auto stream = stub->Enlist(&context);
    v1::AgentMessage self;
    self.set_host(host);
    stream->Write(self);
    stream->WritesDone();
    return from_grpc(stream->Finish(), coordinator, *tls);
  }

  const TestCa ca{"authority"};
  std::string root;
};

TEST_F(MeshTlsNodes, StatusThroughEitherAgentShowsBoth) {
  const TlsNode first = make_coordinator();
  const TlsNode second = make_node("b", first.address(), ",IP:127.0.0.1");
  const ToolEnvironment tool("require", mount("tool", "DNS:tool"));
  for (const TlsNode* asked : {&first, &second}) {
    Result<v1::StatusReply> reply = v1::StatusReply();
    Loop loop;
    ASSERT_TRUE(turn_until(loop, [&] {
      reply = admin_status(asked->address(), false, kCallMs);
      return reply.ok() && reply->agents_size() == 2;
    })) << reply.status().to_string();
    EXPECT_EQ(reply->agents(1).host(), "b");
    EXPECT_EQ(reply->agents(1).state(), "serving");
  }
}

// The coordinator knows the agent's name, and dials its address.
TEST_F(MeshTlsNodes, AgentIsKnownByItsNameAtAnyAddress) {
  const TlsNode first = make_coordinator();
  const TlsNode second = make_node("b", first.address());
  const ToolEnvironment tool("require", mount("tool", "DNS:tool"));
  Result<v1::StatusReply> reply = v1::StatusReply();
  Loop loop;
  ASSERT_TRUE(turn_until(loop, [&] {
    reply = admin_status(first.address(), false, kCallMs);
    return reply.ok() && reply->agents_size() == 2;
  }));
  EXPECT_EQ(reply->agents(1).state(), "serving");
  EXPECT_THAT(admin_status(second.address(), false, kCallMs).status().message(),
              HasSubstr("its certificate is for DNS b, CN b, not for 127.0.0.1"));
}

// As csi-driver-spiffe issues them to the pods of one service account.
TEST_F(MeshTlsNodes, AgentsMayShareASpiffeId) {
  const std::string shared = "URI:spiffe://x/ns/tutti/sa/agent";
  const TlsNode first("a", mount("a", shared), published_of("a"));
  const TlsNode second("b", mount("b", shared), published_of("b"), first.address());
  const ShownToken none("");
  const ToolEnvironment tool("require", mount("t", "URI:spiffe://x/ns/tutti/sa/tutti-admin"));
  Result<v1::StatusReply> reply = v1::StatusReply();
  Loop loop;
  ASSERT_TRUE(turn_until(loop, [&] {
    reply = admin_status(second.address(), false, kCallMs);
    return reply.ok() && reply->agents_size() == 2;
  })) << reply.status().to_string();
  EXPECT_EQ(reply->agents(1).host(), "b");
  EXPECT_EQ(reply->agents(1).state(), "serving");
  const ToolEnvironment other("require", mount("u", "URI:spiffe://x/ns/else/sa/tutti-admin"));
  EXPECT_THAT(admin_status(second.address(), false, kCallMs).status().message(),
              HasSubstr("its certificate is for URI spiffe://x/ns/tutti/sa/agent"));
}

TEST_F(MeshTlsNodes, AgentIsRegisteredUnderTheNameOfItsCertificateAlone) {
  const TlsNode first = make_coordinator();
  const std::string b = mount("b", "DNS:b");
  EXPECT_EQ(enlist(first.address(), b, "b").to_string(), "OK");
  const Status wrong = enlist(first.address(), b, "c");
  EXPECT_EQ(wrong.code(), Code::permission_denied);
  EXPECT_THAT(wrong.message(), HasSubstr("calls itself host c, but its certificate is for DNS b"));
  fs::remove(b + "/..data/tls.key");
  const Status none = enlist(first.address(), b, "b");
  EXPECT_EQ(none.code(), Code::unauthenticated);
  EXPECT_THAT(none.message(), HasSubstr("an agent's token and no certificate"));
}

TEST_F(MeshTlsNodes, AdministratorsAreKnownByTheirCertificates) {
  TlsNode node = make_coordinator();
  const ShownToken none("");
  const std::string admin = mount("tutti-admin", "");
  {
    const ToolEnvironment tool("require", mount("b", "DNS:b"));
    for (const Status& status :
         {admin_drain(node.address(), false, kCallMs), admin_stop(node.address(), true, kCallMs)}) {
      EXPECT_EQ(status.code(), Code::unauthenticated) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("certificate of DNS b, CN b"));
      EXPECT_THAT(status.message(), HasSubstr("tls_admin"));
    }
  }
  EXPECT_FALSE(node.agent.draining);
  EXPECT_EQ(node.agent.stopped, 0);
  const ToolEnvironment tool("require", admin);
  EXPECT_EQ(admin_drain(node.address(), false, kCallMs).to_string(), "OK");
  EXPECT_TRUE(node.agent.draining);
  fs::remove(admin + "/..data/tls.key");
  EXPECT_EQ(admin_stop(node.address(), true, kCallMs).code(), Code::unauthenticated);
  const ShownToken token(kMeshToken);
  EXPECT_EQ(admin_stop(node.address(), true, kCallMs).to_string(), "OK");
}

// The worker dials an address that the certificate of its own host does not name.
TEST_F(MeshTlsNodes, WorkerNeedsWhatItsAgentPublishesAlone) {
  const TlsNode node = make_node("a");
  const auto tls = open_client_tls(published_of("a"));
  ASSERT_TRUE(tls.ok()) << tls.status().to_string();
  Loop loop;
  FakeWorkerClient worker(loop, node.address(), "a", *tls);
  worker.join(0, 1);
  ASSERT_TRUE(turn_until(loop, [&] { return !worker.rosters.empty(); }));
  EXPECT_EQ(worker.rosters[0].epoch, 1u);
}

TEST_F(MeshTlsNodes, RenewedCertificatesArePublished) {
  const TlsNode node = make_coordinator();
  const auto published = open_client_tls(published_of("a"));
  ASSERT_TRUE(published.ok());
  const auto name = [&] { return (*published)->current()->names.to_string(); };
  EXPECT_EQ(name(), "DNS a, IP 127.0.0.1, CN a");
  mount("a", "DNS:renewed");
  Loop loop;
  EXPECT_TRUE(turn_until(loop, [&] { return name() == "DNS renewed, CN a"; })) << name();
}

// Its certificates are no longer valid when the coordinator comes back.
TEST_F(MeshTlsNodes, WorkerReconnectsWithRenewedCertificates) {
  const TestCa next("next");
  auto node = std::make_unique<TlsNode>("a", mount("a", "DNS:a"), published_of("a"));
  const std::string address = node->address();
  const auto tls = open_client_tls(published_of("a"));
  ASSERT_TRUE(tls.ok());
  Loop loop;
  FakeWorkerClient worker(loop, address, "a", *tls);
  worker.join(0, 1);
  ASSERT_TRUE(turn_until(loop, [&] { return !worker.rosters.empty(); }));
  node.reset();
  const std::string directory = mount("a", "DNS:a,IP:127.0.0.1", next, next.certificate());
  node = std::make_unique<TlsNode>("a", directory, published_of("a"), "", address);
  worker.client->report_gone(1, 0, {});
  const auto is_back = [&] {  // A join over the old stream is refused.
    if (worker.refused.size() == 1) worker.join(0, 1);
    return worker.rosters.size() == 2;
  };
  worker.join(0, 1);
  ASSERT_TRUE(turn_until(loop, is_back));
  EXPECT_EQ(worker.rosters[1].epoch, 2u);
}

TEST_F(MeshTlsNodes, SideWithoutTlsIsToldTheSetting) {
  const TlsNode node = make_coordinator();
  const Node plain("b");
  EXPECT_THAT(admin_drain(node.address(), false, kCallMs).message(),
              HasSubstr("if tuttid there has tls = require, set it here, too"));
  Loop loop;
  FakeWorkerClient worker(loop, node.address(), "b");
  worker.join(0, 1, 1'000);
  ASSERT_TRUE(turn_until(loop, [&] { return !worker.refused.empty(); }));
  EXPECT_THAT(worker.refused[0].second.message(), HasSubstr("tls = require"));
  const ToolEnvironment tool("require", mount("tool", "DNS:tool"));
  EXPECT_THAT(admin_drain(plain.address(), false, kCallMs).message(),
              HasSubstr("tuttid there does not speak TLS: set tls = require there"));
  EXPECT_FALSE(plain.agent.draining);
}

TEST_F(MeshTlsNodes, SettingsThatContradictEachOtherAreRefused) {
  const auto tls = open_agent_tls(mount("a", "DNS:a"));
  FakeAgent agent("a");
  Credentials trusting = test_credentials();
  trusting.trust_network = true;
  const auto served = serve_control(
      {.listen = "127.0.0.1:0", .host = "a", .credentials = trusting, .tls = *tls}, agent);
  EXPECT_EQ(served.status().code(), Code::invalid_argument);
  EXPECT_THAT(served.status().message(), HasSubstr("remove trust_network"));
  EXPECT_EQ(open_agent_tls(root + "/none").status().code(), Code::not_found);
}

TEST_F(MeshTlsNodes, EnvironmentOfToolsIsChecked) {
  {
    const ToolEnvironment tool("maybe", root);
    EXPECT_EQ(admin_drain("127.0.0.1:1", false, kCallMs).code(), Code::invalid_argument);
  }
  const ToolEnvironment tool("require", root + "/none");
  const Status status = admin_drain("127.0.0.1:1", false, kCallMs);
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(status.message(), StartsWith(root + "/none/ca.crt cannot be read: "));
}

}  // namespace
}  // namespace tutti
