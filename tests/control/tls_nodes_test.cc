// The control plane with TLS: agents, workers and tools that prove who they are by certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "daemon/control/admin_client.h"
#include "daemon/control/certificate_store.h"
#include "daemon/control/channel.h"
#include "daemon/control/kept_stubs.h"
#include "proto/mesh.grpc.pb.h"
#include "tests/control/net.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kCallMs = 10'000;

// With which the agent of a host signs passes; known to that host alone.
std::string key_of(const std::string& host) { return "a key of the agent of host " + host; }
v1::Pass pass_by(const std::string& own_key, const std::string& host,
                 const std::string& job = "demo") {
  v1::Pass pass = pass_of(host, job);
  sign_pass(pass, Credentials{.own_key = own_key, .certified_hosts = true});
  return pass;
}
v1::Pass certified_pass(const std::string& host) { return pass_by(key_of(host), host); }

// What tools find in their environment, while it lives.
struct ToolEnvironment {
  ToolEnvironment(const std::string& mode, const std::string& directory)
      : tls("TUTTI_TLS", mode), tls_dir("TUTTI_TLS_DIR", directory) {}
  const Variable tls, tls_dir;
};

struct TlsNode {
  TlsNode(const std::string& host, const std::string& directory, const std::string& published,
          const std::string& coordinator = "", const std::string& listen = "127.0.0.1:0",
          const std::vector<Token>& tokens = test_credentials().tokens)
      : agent(host) {
    Credentials credentials{.tokens = tokens, .own_key = key_of(host)};
    const auto tls = open_agent_tls(directory);
    EXPECT_TRUE(tls.ok()) << tls.status().to_string();
    auto served = serve_control({.listen = listen,
                                 .coordinator = coordinator,
                                 .host = host,
                                 .credentials = std::move(credentials),
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

struct MeshTlsNodes : ::testing::Test {
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
  // As anyone who has no certificate needs it.
  void mount_authority(const std::string& name) const {
    fs::create_directories(root + "/" + name);
    std::ofstream(root + "/" + name + "/ca.crt") << ca.certificate();
  }
  std::string published_of(const std::string& host) const { return root + "/public-" + host; }

  // How the coordinator ends the stream of an agent that has this certificate and the token, and
  // says that it is `host`; OK: it is registered.
  Status enlist(const std::string& coordinator, const std::string& directory,
                const std::string& host, const std::string& token = kMeshToken) {
    const auto tls = open_client_tls(directory);
    EXPECT_TRUE(tls.ok());
    grpc::ClientContext context;
    show_token(context, token);
    const auto stub = v1::Mesh::NewStub(make_channel(coordinator, *tls));
    const auto stream = stub->Enlist(&context);
    v1::AgentMessage self;
    self.set_host(host);
    stream->Write(self);
    stream->WritesDone();
    return from_grpc(stream->Finish(), coordinator, *tls);
  }

  const TestCa ca{"authority"};
  const TemporaryDirectory directory;
  const std::string root = directory;
};

TEST_F(MeshTlsNodes, StatusThroughEitherAgentShowsBoth) {
  const TlsNode first = make_coordinator();
  const TlsNode second = make_node("b", first.address(), ",IP:127.0.0.1");
  const ToolEnvironment tool("require", mount("tool", "DNS:tool"));
  for (const TlsNode* asked : {&first, &second}) {
    Result<v1::StatusReply> reply = v1::StatusReply();
    Loop loop;
    ASSERT_TRUE(await(loop, [&] {
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
  ASSERT_TRUE(await(loop, [&] {
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
  ASSERT_TRUE(await(loop, [&] {
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
  EXPECT_THAT(none.message(), HasSubstr("no certificate; with tls = require"));
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
  const v1::Pass pass = certified_pass("a");
  worker.join(0, 1, 60'000, &pass);
  ASSERT_TRUE(await(loop, [&] { return !worker.rosters.empty(); }));
  EXPECT_EQ(worker.rosters[0].epoch, 1u);
}

// Its agent may start, or come back, after the worker.
TEST_F(MeshTlsNodes, WorkerIsTakenOnceAnAgentOfItsHostIsRegistered) {
  const TlsNode first = make_coordinator();
  mount_authority("authority");
  const auto tls = open_client_tls(root + "/authority");
  ASSERT_TRUE(tls.ok()) << tls.status().to_string();
  Loop loop;
  FakeWorkerClient early(loop, first.address(), "b", *tls);
  const v1::Pass pass = certified_pass("b");
  early.join(0, 1, 1'500, &pass);
  ASSERT_TRUE(await(loop, [&] { return !early.refused.empty(); }));
  EXPECT_EQ(early.refused[0].second.code(), Code::unavailable);
  EXPECT_THAT(early.refused[0].second.message(),
              HasSubstr("rank 0 of job \"demo\" cannot join: no agent of host b is registered"));
  early.join(0, 1, 60'000, &pass);
  auto second =
      std::make_unique<TlsNode>("b", mount("b", "DNS:b"), published_of("b"), first.address());
  ASSERT_TRUE(await(loop, [&] { return early.rosters.size() == 1; }));
  second.reset();  // The stream is open, but nobody vouches for a further join.
  early.client->report_gone(1, 0, {});
  early.join(0, 1, 60'000, &pass);
  second = std::make_unique<TlsNode>("b", mount("b", "DNS:b"), published_of("b"), first.address());
  ASSERT_TRUE(await(loop, [&] { return early.rosters.size() == 2; }));
  EXPECT_EQ(early.refused.size(), 1u);
}

// Another host's certificate, its key, and the agents' token prove nothing of this one.
TEST_F(MeshTlsNodes, NobodyElsesSecretSignsPassesOfAHost) {
  const TlsNode first = make_coordinator();
  const TlsNode second = make_node("b", first.address());
  const TlsNode third = make_node("c", first.address());
  mount_authority("authority");
  const auto tls = open_client_tls(root + "/authority");
  ASSERT_TRUE(tls.ok()) << tls.status().to_string();
  Loop loop;
  for (const std::string host : {"a", "b"})
    for (const std::string& key : {std::string(kMeshToken), key_of("c"), std::string()}) {
      FakeWorkerClient worker(loop, first.address(), host, *tls);
      const v1::Pass pass = pass_by(key, host);
      worker.join(0, 1, 60'000, &pass);
      ASSERT_TRUE(await(loop, [&] { return !worker.refused.empty(); })) << host << key;
      EXPECT_EQ(worker.refused[0].second.code(), Code::unauthenticated);
      EXPECT_THAT(worker.refused[0].second.message(),
                  HasSubstr("the agent of host " + host + " did not sign this pass"));
    }
}

// A coordinator that keeps what the agents tell it.
struct CuriousCoordinator final : v1::Mesh::Service {
  explicit CuriousCoordinator(const std::string& directory)
      : credentials(tls_server_credentials(*open_agent_tls(directory))) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.RegisterService(this);
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    server = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
  }
  ~CuriousCoordinator() override { server->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Enlist(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::AgentAnswer, v1::AgentMessage>* stream) override {
    v1::AgentMessage message;
    stream->SendInitialMetadata();
    if (!stream->Read(&message)) return grpc::Status::OK;
    const std::lock_guard lock(mutex);
    told = message;
    return grpc::Status::OK;
  }
  std::string pass_key() const {
    const std::lock_guard lock(mutex);
    return told.pass_key();
  }

  mutable std::mutex mutex;
  v1::AgentMessage told;  // Guarded by mutex.
  const std::shared_ptr<grpc::ServerCredentials> credentials;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

// With etcd every agent may have been the coordinator once.
TEST_F(MeshTlsNodes, WhatTheCoordinatorLearnsSignsNoPasses) {
  CuriousCoordinator curious(mount("x", "DNS:x,IP:127.0.0.1"));
  auto second =
      std::make_unique<TlsNode>("b", mount("b", "DNS:b"), published_of("b"), curious.address);
  Loop loop;
  ASSERT_TRUE(await(loop, [&] { return !curious.pass_key().empty(); }));
  const std::string key = curious.pass_key();
  const TlsNode first = make_coordinator();
  second = std::make_unique<TlsNode>("b", mount("b", "DNS:b"), published_of("b"), first.address());
  mount_authority("authority");
  const auto tls = open_client_tls(root + "/authority");
  ASSERT_TRUE(tls.ok()) << tls.status().to_string();
  FakeWorkerClient good(loop, first.address(), "b", *tls);
  const v1::Pass certified = certified_pass("b");
  good.join(0, 1, 60'000, &certified);
  ASSERT_TRUE(await(loop, [&] { return !good.rosters.empty(); }));
  for (const v1::Pass& pass : {pass_of("b", "demo", 1'000, key), pass_by(key, "b")}) {
    FakeWorkerClient worker(loop, first.address(), "b", *tls);
    worker.join(0, 1, 60'000, &pass);
    ASSERT_TRUE(await(loop, [&] { return !worker.refused.empty(); }));
    EXPECT_EQ(worker.refused[0].second.code(), Code::unauthenticated);
  }
}

// A stream of somebody without a certificate to the coordinator, who shows this pass.
struct Attendance {
  Attendance(const std::string& coordinator, const std::string& directory, const v1::Pass& pass)
      : coordinator(coordinator), tls(*open_client_tls(directory)) {
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    show_pass(context, pass);
    stream = stub->Attend(&context);
    stream->WaitForInitialMetadata();
  }
  // For an epoch of one rank on the pass's host.
  void resume(const v1::Pass& pass, uint32_t epoch) {
    v1::WorkerMessage message;
    v1::Resume& resume = *message.mutable_resume();
    resume.set_job(pass.job());
    resume.set_host(pass.host());
    resume.set_epoch(epoch);
    resume.add_ranks(0);
    resume.mutable_roster()->set_job(pass.job());
    resume.mutable_roster()->set_epoch(epoch);
    resume.mutable_roster()->set_secret("of a stranger");
    resume.mutable_roster()->add_ranks()->set_host(pass.host());
    resume.mutable_roster()->mutable_ranks(0)->set_address("127.0.0.1:9");
    *resume.mutable_pass() = pass;
    stream->Write(message);
  }
  // How the coordinator ends it; OK: it does when we do.
  Status end() {
    stream->WritesDone();
    v1::CoordinatorMessage answer;
    while (stream->Read(&answer)) {
    }
    return from_grpc(stream->Finish(), coordinator, tls);
  }

  const std::string coordinator;
  const Tls tls;
  const std::unique_ptr<v1::Mesh::Stub> stub = v1::Mesh::NewStub(make_channel(coordinator, tls));
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream;
};

TEST_F(MeshTlsNodes, NobodyElsesSecretResumesOrTakesOverAnEpoch) {
  const TlsNode first = make_coordinator();
  const TlsNode second = make_node("b", first.address());
  mount_authority("authority");
  const std::string none = root + "/authority";
  const auto tls = open_client_tls(none);
  ASSERT_TRUE(tls.ok());
  Loop loop;
  FakeWorkerClient a(loop, first.address(), "a", *tls);
  FakeWorkerClient b(loop, first.address(), "b", *tls);
  const v1::Pass of_a = certified_pass("a");
  const v1::Pass of_b = certified_pass("b");
  a.join(0, 2, 60'000, &of_a);
  b.join(1, 2, 60'000, &of_b);
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 1 && b.rosters.size() == 1; }));
  for (const std::string host : {"a", "b"})
    for (const std::string& key : {std::string(kMeshToken), key_of("c"), std::string()})
      for (const uint32_t epoch : {1u, 99u}) {
        const v1::Pass pass = pass_by(key, host);
        Attendance outsider(first.address(), none, pass);
        outsider.resume(pass, epoch);
        EXPECT_EQ(outsider.end().code(), Code::unauthenticated) << host << key;
      }
  const v1::Pass unknown = certified_pass("z");
  Attendance outsider(first.address(), none, unknown);
  outsider.resume(unknown, 99);
  EXPECT_THAT(outsider.end().message(), HasSubstr("no agent of host z is registered"));
  b.client->report_gone(1, 1, {});
  b.join(1, 2, 60'000, &of_b);
  a.client->report_gone(1, 0, {});
  a.join(0, 2, 60'000, &of_a);
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 2; }));
  EXPECT_EQ(a.rosters[1].epoch, 2u) << "no epoch of an outsider was heard of";
  EXPECT_TRUE(a.aborted.empty() && b.aborted.empty());
}

// The stream was opened while the agent was registered.
TEST_F(MeshTlsNodes, AnEpochIsNotTakenOverFromAHostWhoseAgentIsGone) {
  const TlsNode first = make_coordinator();
  auto second =
      std::make_unique<TlsNode>("b", mount("b", "DNS:b"), published_of("b"), first.address());
  mount_authority("authority");
  const std::string none = root + "/authority";
  const auto tls = open_client_tls(none);
  ASSERT_TRUE(tls.ok());
  const v1::Pass of_b = certified_pass("b");
  Loop loop;
  const auto agents = [&] {
    const ToolEnvironment tool("require", none);
    const auto reply = admin_status(first.address(), false, kCallMs);
    return reply.ok() ? std::ranges::count(reply->agents(), "serving", &v1::AgentReport::state) : 0;
  };
  ASSERT_TRUE(await(loop, [&] { return agents() == 2; }));
  Attendance outsider(first.address(), none, of_b);
  second.reset();
  ASSERT_TRUE(await(loop, [&] { return agents() == 1; }));
  outsider.resume(of_b, 99);
  EXPECT_EQ(outsider.end().code(), Code::cancelled);
  FakeWorkerClient a(loop, first.address(), "a", *tls);
  const v1::Pass of_a = certified_pass("a");
  a.join(0, 1, 60'000, &of_a);
  ASSERT_TRUE(await(loop, [&] { return !a.rosters.empty(); }));
  EXPECT_EQ(a.rosters[0].epoch, 1u);
}

// A caller with one of the mesh's secrets alone. Letters: what it may do of enlisting as host
// b and as host a, looking at the status, draining, and joining from host a.
TEST_F(MeshTlsNodes, EachSecretAloneOpensWhatItIsForAndNothingElse) {
  const std::string agents(32, 'g');
  const std::string admins(32, 'm');
  const std::string trainers(32, 't');
  const std::string a = mount("a", "DNS:a,IP:127.0.0.1");
  TlsNode node("a", a, published_of("a"), "", "127.0.0.1:0",
               {{.text = agents, .agent = true},
                {.text = admins, .admin = true},
                {.text = trainers, .trainer = true}});
  mount_authority("authority");
  const std::string none = root + "/authority";
  const std::string b = mount("b", "DNS:b");
  const TestCa strange("strange");
  const std::string other =
      mount("other", "DNS:b", strange, strange.certificate() + ca.certificate());
  struct Outsider {
    std::string secret, token, directory, may;
  };
  const std::vector<Outsider> outsiders = {{"nothing", "", none, ""},
                                           {"the agents' token", agents, none, ""},
                                           {"an administrator's token", admins, none, "sd"},
                                           {"a job's token", trainers, none, ""},
                                           {"the key of another host", key_of("b"), none, ""},
                                           {"what workers find", "", published_of("a"), ""},
                                           {"a certificate of another authority", "", other, ""},
                                           {"the agents' token beside one", agents, other, ""},
                                           {"the certificate of host b", "", b, ""},
                                           {"the agents' token beside it", agents, b, "bs"}};
  for (const Outsider& outsider : outsiders) {
    const ShownToken token(outsider.token);
    const ToolEnvironment tool("require", outsider.directory);
    std::string done;
    for (const std::string host : {"b", "a"})
      if (enlist(node.address(), outsider.directory, host, outsider.token).ok()) done += host;
    if (admin_status(node.address(), false, kCallMs).ok()) done += "s";
    if (admin_drain(node.address(), false, kCallMs).ok()) done += "d";
    const auto tls = open_client_tls(outsider.directory);
    ASSERT_TRUE(tls.ok());
    Loop loop;
    FakeWorkerClient worker(loop, node.address(), "a", *tls);
    const v1::Pass pass = pass_by(outsider.token, "a");
    worker.join(0, 1, 2'000, &pass);
    ASSERT_TRUE(await(loop, [&] { return !worker.refused.empty() || !worker.rosters.empty(); }));
    if (!worker.rosters.empty()) done += "j";
    EXPECT_EQ(done, outsider.may) << outsider.secret;
  }
}

TEST_F(MeshTlsNodes, APassIsOfOneJobAndHost) {
  const TlsNode first = make_coordinator();
  const TlsNode second = make_node("b", first.address());
  mount_authority("authority");
  const auto tls = open_client_tls(root + "/authority");
  ASSERT_TRUE(tls.ok());
  Loop loop;
  for (const v1::Pass& pass : {pass_by(key_of("a"), "a", "another"), pass_by(key_of("b"), "b")}) {
    FakeWorkerClient worker(loop, first.address(), "a", *tls);
    worker.join(0, 1, 60'000, &pass);
    ASSERT_TRUE(await(loop, [&] { return !worker.refused.empty(); }));
    EXPECT_EQ(worker.refused[0].second.code(), Code::permission_denied);
    EXPECT_THAT(worker.refused[0].second.message(),
                HasSubstr("was shown for job \"demo\" on host a"));
  }
}

TEST_F(MeshTlsNodes, RenewedCertificatesArePublished) {
  const TlsNode node = make_coordinator();
  const auto published = open_client_tls(published_of("a"));
  ASSERT_TRUE(published.ok());
  const auto name = [&] { return (*published)->current()->names.to_string(); };
  EXPECT_EQ(name(), "DNS a, IP 127.0.0.1, CN a");
  mount("a", "DNS:renewed");
  Loop loop;
  EXPECT_TRUE(await(loop, [&] { return name() == "DNS renewed, CN a"; })) << name();
}

TEST_F(MeshTlsNodes, AKeptWayToAnAgentShowsTheCertificatesOfNow) {
  const auto tls = open_agent_tls(mount("a", "DNS:a"));
  ASSERT_TRUE(tls.ok());
  KeptStubs stubs(*tls);
  KeptStubs::Stub first = stubs.take("b", "10.0.0.2:7601");
  const v1::Admin::Stub* stub = first.stub.get();
  stubs.give_back(std::move(first));
  first = stubs.take("b", "10.0.0.2:7601");
  EXPECT_EQ(first.stub.get(), stub);
  mount("a", "DNS:renewed");
  stubs.give_back(std::move(first));
  const KeptStubs::Stub second = stubs.take("b", "10.0.0.2:7601");
  EXPECT_EQ(second.certificates->names.to_string(), "DNS renewed, CN a");
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
  const v1::Pass pass = certified_pass("a");
  worker.join(0, 1, 60'000, &pass);
  ASSERT_TRUE(await(loop, [&] { return !worker.rosters.empty(); }));
  node.reset();
  const std::string directory = mount("a", "DNS:a,IP:127.0.0.1", next, next.certificate());
  node = std::make_unique<TlsNode>("a", directory, published_of("a"), "", address);
  worker.client->report_gone(1, 0, {});
  const auto is_back = [&] {  // A join over the old stream is refused.
    if (worker.refused.size() == 1) worker.join(0, 1, 60'000, &pass);
    return worker.rosters.size() == 2;
  };
  worker.join(0, 1, 60'000, &pass);
  ASSERT_TRUE(await(loop, is_back));
  EXPECT_EQ(worker.rosters[1].epoch, 2u);
}

TEST_F(MeshTlsNodes, SideWithoutTlsLearnsTheSetting) {
  const TlsNode node = make_coordinator();
  const Node plain("b");
  EXPECT_THAT(admin_drain(node.address(), false, kCallMs).message(),
              HasSubstr("if tuttid there has tls = require, set it here, too"));
  Loop loop;
  FakeWorkerClient worker(loop, node.address(), "b");
  worker.join(0, 1, 1'000);
  ASSERT_TRUE(await(loop, [&] { return !worker.refused.empty(); }));
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
