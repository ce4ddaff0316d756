// The Admin service as people and tools use it, and the port under unexpected traffic.
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "daemon/control/address.h"
#include "daemon/control/admin_client.h"
#include "daemon/control/channel.h"
#include "tests/control/net.h"
#include "tests/support/loopback.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Health and reflection have no .proto here; their few messages are encoded by hand.
std::string serialized(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// Calls `method` with one message and returns the first answer.
std::string call(const std::string& address, const std::string& method,
                 const std::string& request) {
  grpc::GenericStub stub(make_channel(address, nullptr));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto stream = stub.PrepareCall(&context, method, &queue);
  stream->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(request);
  stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer answer;
  stream->Read(&answer, nullptr);
  queue.Next(&tag, &ok);
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  bool ignored = false;
  queue.Next(&tag, &ignored);
  return ok ? serialized(answer) : "failed: " + status.error_message();
}

// Sends `bytes` to the port and waits for the server to answer or hang up.
void intrude(const std::string& address, const std::string& bytes) {
  const Fd socket = connect_loopback(port_of(address));
  ASSERT_TRUE(socket.valid());
  if (bytes.empty()) return;
  ASSERT_GT(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  char answer = 0;
  (void)recv(socket.get(), &answer, 1, 0);
}

TEST(MeshAdmin, HealthServiceSaysServing) {
  Node node("a");
  // HealthCheckResponse{status: SERVING} is field 1, value 1.
  EXPECT_EQ(call(node.address(), "/grpc.health.v1.Health/Check", ""), std::string("\x08\x01"));
}

// HealthCheckResponse{status: NOT_SERVING} is field 1, value 2.
TEST(MeshAdmin, HealthServiceFollowsDrainingAndRegistration) {
  Node node("a");
  const auto health = [](const Node& of) {
    return call(of.address(), "/grpc.health.v1.Health/Check", "");
  };
  node.server->set_serving(false);
  EXPECT_EQ(health(node), std::string("\x08\x02"));
  node.server->set_serving(true);
  EXPECT_EQ(health(node), std::string("\x08\x01"));
  EXPECT_TRUE(node.server->registered().ok());
  // Another that is to register where nobody is, then where one is.
  Node lonely("b", "127.0.0.1:1");
  EXPECT_EQ(health(lonely), std::string("\x08\x02"));
  EXPECT_THAT(lonely.server->registered().message(), HasSubstr("coordinator 127.0.0.1:1"));
  Node joined("c", node.address());
  Loop loop;
  EXPECT_TRUE(await(loop, [&] { return joined.server->registered().ok(); }));
  EXPECT_EQ(health(joined), std::string("\x08\x01"));
  node.server.reset();
  EXPECT_TRUE(await(loop, [&] { return health(joined) == std::string("\x08\x02"); }));
}

TEST(MeshAdmin, ReflectionListsTheServices) {
  Node node("a");
  const std::string list_services("\x3a\x01*");  // Field 7: list_services.
  const std::string answer =
      call(node.address(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           list_services);
  EXPECT_THAT(answer, HasSubstr("tutti.v1.Mesh"));
  EXPECT_THAT(answer, HasSubstr("tutti.v1.Admin"));
  EXPECT_THAT(answer, HasSubstr("grpc.health.v1.Health"));
}

TEST(MeshAdmin, StrangersOnThePortHarmNothing) {
  Node node("a");
  std::string garbage(100'000, '\0');
  for (size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * 131 + i / 7);
  for (int i = 0; i < 20; ++i) {
    intrude(node.address(), "");
    intrude(node.address(), garbage);
    intrude(node.address(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    intrude(node.address(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage);
  }
  const auto reply = admin_status(node.address(), true, 5'000);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->agents(0).state(), "serving");
}

TEST(MeshAdmin, StatusThroughEitherAgentShowsBoth) {
  Node first("a");
  Node second("b", first.address());
  EXPECT_EQ(second.server->coordinator(), first.address());
  for (const Node* asked : {&first, &second}) {
    Result<v1::StatusReply> reply = v1::StatusReply();
    Loop loop;
    ASSERT_TRUE(await(loop, [&] {
      reply = admin_status(asked->address(), false, 5'000);
      return reply.ok() && reply->agents_size() == 2;
    }));
    EXPECT_EQ(reply->agents(0).host(), "a");
    EXPECT_TRUE(reply->agents(0).coordinator());
    EXPECT_EQ(reply->agents(1).host(), "b");
    EXPECT_EQ(reply->agents(1).address(), second.address());
    EXPECT_FALSE(reply->agents(1).coordinator());
    EXPECT_EQ(reply->agents(1).state(), "serving");
  }
  const auto local = admin_status(second.address(), true, 5'000);
  ASSERT_TRUE(local.ok());
  ASSERT_EQ(local->agents_size(), 1);
  EXPECT_EQ(local->agents(0).host(), "b");
}

TEST(MeshAdmin, AgentThatEndsIsListedAsStopped) {
  Node first("a");
  auto second = std::make_unique<Node>("b", first.address());
  const std::string address = second->address();
  Result<v1::StatusReply> reply = v1::StatusReply();
  const auto second_is = [&](const std::string& state) {
    reply = admin_status(first.address(), false, 5'000);
    return reply.ok() && reply->agents_size() == 2 && reply->agents(1).state().starts_with(state);
  };
  Loop loop;
  ASSERT_TRUE(await(loop, [&] { return second_is("serving"); }));
  second.reset();
  ASSERT_TRUE(await(loop, [&] { return second_is("stopped "); }));
  EXPECT_EQ(reply->agents(1).host(), "b");
  EXPECT_EQ(reply->agents(1).address(), address);
  EXPECT_FALSE(reply->agents(1).lost());
  Node again("b", first.address());
  EXPECT_TRUE(await(loop, [&] { return second_is("serving"); }));
}

TEST(MeshAdmin, LostCoordinatorIsShownAsUnreachable) {
  auto first = std::make_unique<Node>("a");
  const std::string coordinator = first->address();
  Node second("b", coordinator);
  first.reset();
  const auto reply = admin_status(second.address(), false, 10'000);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  ASSERT_EQ(reply->agents_size(), 2);
  EXPECT_EQ(reply->agents(0).address(), coordinator);
  EXPECT_THAT(reply->agents(0).state(), StartsWith("unreachable: "));
  EXPECT_EQ(reply->agents(1).state(), "serving");
}

TEST(MeshAdmin, StrategyIsCheckedByTheCoordinatorWhereverItIsAsked) {
  Node first("a");
  Node second("b", first.address());
  for (const Node* asked : {&first, &second}) {
    const Status text = admin_set_strategy(asked->address(), "demo", "tree:0", 5'000);
    EXPECT_EQ(text.code(), Code::invalid_argument) << text.to_string();
    EXPECT_THAT(text.message(), HasSubstr("arity"));
    const Status job = admin_set_strategy(asked->address(), "demo", "ring", 5'000);
    EXPECT_EQ(job.code(), Code::not_found) << job.to_string();
    EXPECT_THAT(job.message(), HasSubstr("\"demo\""));
  }
}

TEST(MeshAdmin, TwoAgentsThatTakeEachOtherForTheCoordinatorSaySo) {
  Node first("a");
  Node second("b", first.address());
  const std::string address = first.address();
  first.server.reset();
  Node third("c", second.address(), address);
  const Status status = admin_set_strategy(third.address(), "demo", "ring", 5'000);
  EXPECT_EQ(status.code(), Code::failed_precondition) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("does not coordinate"));
}

TEST(MeshAdmin, DrainAndStopReachTheAgent) {
  Node node("a");
  ASSERT_TRUE(admin_drain(node.address(), false, 5'000).ok());
  EXPECT_TRUE(node.agent.draining);
  ASSERT_TRUE(admin_drain(node.address(), true, 5'000).ok());
  EXPECT_FALSE(node.agent.draining);
  ASSERT_TRUE(admin_stop(node.address(), true, 5'000).ok());
  EXPECT_EQ(node.agent.stopped, 2);
}

Credentials credentials_of(const std::string& lines) {
  return {.tokens = *parse_tokens(lines, "tokens")};
}

// All calls, and whether each is allowed.
std::vector<Status> try_all(const std::string& address) {
  return {admin_status(address, true, 5'000).status(),
          admin_status(address, false, 5'000).status(),
          admin_trace(address, "demo", 0, 5'000).status(),
          admin_set_strategy(address, "demo", "ring", 5'000),
          admin_drain(address, false, 5'000),
          admin_stop(address, true, 5'000)};
}

TEST(MeshAdmin, WhoShowsNoTokenOrAWrongOneMayNothing) {
  Node node("a", "", "127.0.0.1:0", credentials_of("boss role=admin\nrank role=trainer"));
  for (const std::string token : {"", "bos", "boss2", "rank"}) {
    const ShownToken shown(token);
    for (const Status& status : try_all(node.address())) {
      EXPECT_EQ(status.code(), Code::unauthenticated) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("set TUTTI_TOKEN to a token with role=admin"));
    }
  }
  EXPECT_FALSE(node.agent.draining);
  EXPECT_EQ(node.agent.stopped, 0);
}

TEST(MeshAdmin, WithoutTokensNobodyOnTheNetworkMayAnything) {
  Node node("a", "", "127.0.0.1:0", {.own_key = "own"});
  for (const std::string token : {"", "own"}) {
    const ShownToken shown(token);
    for (const Status& status : try_all(node.address()))
      EXPECT_EQ(status.code(), Code::unauthenticated) << status.to_string();
  }
  EXPECT_EQ(node.agent.stopped, 0);
}

TEST(MeshAdmin, AnAgentMayLookAndPassOnButNotDrainOrStop) {
  Node node("a", "", "127.0.0.1:0", credentials_of("peer role=agent"));
  const ShownToken shown("peer");
  EXPECT_TRUE(admin_status(node.address(), false, 5'000).ok());
  EXPECT_TRUE(admin_trace(node.address(), "demo", 0, 5'000).ok());
  EXPECT_EQ(admin_set_strategy(node.address(), "demo", "ring", 5'000).code(), Code::not_found);
  EXPECT_EQ(admin_drain(node.address(), false, 5'000).code(), Code::permission_denied);
  EXPECT_EQ(admin_stop(node.address(), true, 5'000).code(), Code::permission_denied);
  EXPECT_FALSE(node.agent.draining);
  EXPECT_EQ(node.agent.stopped, 0);
}

TEST(MeshAdmin, AnAdministratorMayAll) {
  Node node("a", "", "127.0.0.1:0", credentials_of("boss role=admin"));
  const ShownToken shown("boss");
  EXPECT_TRUE(admin_status(node.address(), false, 5'000).ok());
  EXPECT_EQ(admin_set_strategy(node.address(), "demo", "ring", 5'000).code(), Code::not_found);
  EXPECT_TRUE(admin_drain(node.address(), false, 5'000).ok());
  EXPECT_TRUE(admin_stop(node.address(), false, 5'000).ok());
}

TEST(MeshAdmin, WhoTrustsTheNetworkTakesAllForAgents) {
  Node node("a", "", "127.0.0.1:0", {.trust_network = true});
  const ShownToken none("");
  EXPECT_TRUE(admin_status(node.address(), false, 5'000).ok());
  EXPECT_EQ(admin_drain(node.address(), false, 5'000).code(), Code::permission_denied);
  Node second("b", node.address(), "127.0.0.1:0", {.trust_network = true});
  Loop loop;
  EXPECT_TRUE(await(loop, [&] {
    const auto reply = admin_status(second.address(), false, 5'000);
    return reply.ok() && reply->agents_size() == 2;
  }));
  const ShownToken wrong("wrong");
  EXPECT_EQ(admin_status(node.address(), false, 5'000).status().code(), Code::unauthenticated);
}

// Any bytes; a node asks the others with its own.
TEST(MeshAdmin, AgentsWithATokenListEachOtherAndNobodyElse) {
  const std::string token = "t\x01\xff \n";
  Node first("a", "", "127.0.0.1:0", test_credentials(token));
  Node second("b", first.address(), "127.0.0.1:0", test_credentials(token));
  Node stranger("c", first.address(), "127.0.0.1:0", test_credentials("another"));
  const ShownToken shown(token);
  for (const Node* asked : {&first, &second}) {
    Loop loop;
    Result<v1::StatusReply> reply = v1::StatusReply();
    ASSERT_TRUE(await(loop, [&] {
      reply = admin_status(asked->address(), false, 5'000);
      return reply.ok() && reply->agents_size() == 2;
    }));
    EXPECT_EQ(reply->agents(1).host(), "b");
    EXPECT_EQ(reply->agents(1).state(), "serving");
  }
}

TEST(MeshAdmin, WithoutATokenForAgentsACoordinatorElsewhereIsRefused) {
  FakeAgent agent("b");
  const auto server = serve_control({.listen = "127.0.0.1:0",
                                     .coordinator = "192.0.2.1:7601",
                                     .host = "b",
                                     .credentials = credentials_of("x role=trainer")},
                                    agent);
  EXPECT_EQ(server.status().code(), Code::failed_precondition);
  EXPECT_THAT(server.status().message(), HasSubstr("set trust_network = yes"));
}

// What a user asks through the Unix socket.
struct AsUser {
  ControlServer& server;
  Caller caller{.kind = Caller::Kind::user, .uid = 1'000, .name = "user 1000"};

  v1::AdminAnswer status() {
    v1::AdminRequest request;
    request.mutable_status();
    return server.admin(request, caller);
  }
  v1::TraceReply trace() {
    v1::AdminRequest request;
    request.mutable_trace()->set_job("demo");
    request.mutable_trace()->mutable_owner()->set_uid(0);  // As if.
    if (caller.kind != Caller::Kind::user) request.mutable_trace()->clear_owner();
    return server.admin(request, caller).trace();
  }
  Code set_strategy(const std::string& job) {
    v1::AdminRequest request;
    request.mutable_set_strategy()->set_job(job);
    request.mutable_set_strategy()->set_strategy("ring");
    request.mutable_set_strategy()->mutable_owner()->set_uid(0);  // As if.
    return code_of(server.admin(request, caller).code());
  }
  Code stop() {
    v1::AdminRequest request;
    request.mutable_stop()->set_jobs(true);
    return code_of(server.admin(request, caller).code());
  }
};

TEST(MeshAdmin, UsersSeeAndChangeTheirOwnJobsOnly) {
  Node first("a");
  Node second("b", first.address());
  first.agent.uids = {1'000, 1'001, 0};
  Loop loop;
  FakeWorkerClient worker(loop, first.address(), "a");
  worker.join(0, 2);
  for (const Node* asked : {&first, &second}) {
    AsUser user{*asked->server};
    ASSERT_TRUE(await(loop, [&] { return user.set_strategy("demo") == Code::ok; }));
    ASSERT_TRUE(await(loop, [&] { return user.status().status().agents_size() == 2; }));
    const v1::StatusReply seen = user.status().status();
    ASSERT_EQ(seen.agents(0).workers_size(), 1);
    EXPECT_EQ(seen.agents(0).workers(0).uid(), 1'000u);
    EXPECT_EQ(user.stop(), Code::permission_denied);
    AsUser other{*asked->server};
    other.caller.uid = 1'001;
    EXPECT_EQ(other.set_strategy("demo"), Code::not_found);
    AsUser other_subject{*asked->server};
    other_subject.caller.subject = "vision";
    EXPECT_EQ(other_subject.set_strategy("demo"), Code::not_found);
  }
  EXPECT_EQ(first.agent.stopped + second.agent.stopped, 0);
}

TEST(MeshAdmin, UsersSeeTheTracesOfTheirOwnJobsOnlyWhereverTheyAsk) {
  Node first("a");
  Node second("b", first.address());
  first.agent.uids = {1'000, 1'001};
  second.agent.uids = {1'000, 0};
  Loop loop;
  for (const Node* asked : {&first, &second}) {
    AsUser user{*asked->server};
    ASSERT_TRUE(await(loop, [&] { return user.trace().hosts_size() == 2; }));
    const v1::TraceReply seen = user.trace();
    EXPECT_EQ(seen.hosts(0).host(), "a");
    EXPECT_EQ(seen.hosts(1).host(), "b");
    for (const v1::HostTrace& host : seen.hosts()) {
      EXPECT_EQ(host.owner().uid(), 1'000u);
      EXPECT_EQ(host.job(), "demo");
    }
    user.caller.subject = "vision";
    EXPECT_EQ(user.trace().hosts_size(), 0);
    user.caller.kind = Caller::Kind::admin;
    EXPECT_EQ(user.trace().hosts_size(), 4);
  }
}

TEST(MeshAdmin, AgentsThatDoNotAnswerAreMissingInATrace) {
  auto first = std::make_unique<Node>("a");
  Node second("b", first->address());
  second.agent.uids = {1'000};
  first.reset();
  AsUser user{*second.server};
  const v1::TraceReply seen = user.trace();
  ASSERT_EQ(seen.hosts_size(), 1) << "its own";
  ASSERT_EQ(seen.missing_size(), 1);
  EXPECT_THAT(seen.missing(0).state(), HasSubstr("unreachable: "));
}

// Its etcd is not there.
struct Unelected {
  Unelected() {
    auto result = serve_control({.listen = "127.0.0.1:0",
                                 .host = "a",
                                 .credentials = test_credentials(),
                                 .etcd = {.members = "127.0.0.1:1", .prefix = "/test"},
                                 .on_coordinator = [](const auto&, const auto&) {}},
                                agent);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (result.ok()) server = std::move(*result);
  }
  FakeAgent agent{"a"};
  std::unique_ptr<ControlServer> server;
};

TEST(MeshAdmin, WhileNobodyIsElectedTheStatusIsOfTheAgentThatIsAsked) {
  const Unelected node;
  const auto reply = admin_status(node.server->address(), false, 5'000);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  ASSERT_EQ(reply->agents_size(), 1);
  EXPECT_EQ(reply->agents(0).host(), "a");
  EXPECT_FALSE(reply->agents(0).coordinator());
  EXPECT_EQ(reply->agents(0).coordinator_address(), "");
}

TEST(MeshAdmin, WhileNobodyIsElectedWhatNeedsTheCoordinatorIsRefusedWithTheReason) {
  Unelected node;
  node.agent.uids = {1'000};
  Loop loop;
  Status strategy;
  ASSERT_TRUE(await(loop, [&] {
    strategy = admin_set_strategy(node.server->address(), "demo", "ring", 5'000);
    return strategy.message().find("has not answered for") != std::string::npos;
  })) << strategy.to_string();
  EXPECT_EQ(strategy.code(), Code::unavailable);
  EXPECT_THAT(strategy.message(), StartsWith("tuttid at " + node.server->address() +
                                             ": nobody coordinates: etcd at 127.0.0.1:1 has not"));
  const v1::TraceReply seen = AsUser{*node.server}.trace();
  ASSERT_EQ(seen.hosts_size(), 1) << "its own";
  ASSERT_EQ(seen.missing_size(), 1);
  EXPECT_THAT(seen.missing(0).state(), StartsWith("nobody coordinates: etcd at 127.0.0.1:1 has"));
}

TEST(MeshAdmin, LongRequestsAreRefusedBeforeAnybodyReadsThem) {
  Node node("a");
  const std::string text(20'000, 'x');
  const Status status = admin_set_strategy(node.address(), "demo", text, 5'000);
  EXPECT_EQ(status.code(), Code::resource_exhausted) << status.to_string();
}

TEST(MeshAdmin, UsersOfOneNumberAreDistinguishedByTheirSubjects) {
  Node node("a");
  node.agent.uids = {1'000};
  node.agent.subject = "vision";
  AsUser user{*node.server};
  EXPECT_EQ(user.status().status().agents(0).workers_size(), 0);
  user.caller.subject = "vision";
  EXPECT_EQ(user.status().status().agents(0).workers_size(), 1);
}

// Two hosts; the second asks through the first, which coordinates.
struct StopJob : testing::Test {
  StopJob() {
    a.agent.uids = {1'000};
    b.agent.uids = {1'000, 2'000};
    Loop loop;
    EXPECT_TRUE(await(loop, [&] {
      const auto reply = admin_status(b.address(), false, 5'000);
      return reply.ok() && reply->agents_size() == 2;
    }));
  }
  static v1::AdminAnswer stop_as(uint32_t uid, Node& node) {
    v1::AdminRequest request;
    request.mutable_stop_job()->set_job("demo");
    request.mutable_stop_job()->set_by("somebody else");
    return node.server->admin(request, {.kind = Caller::Kind::user, .uid = uid, .name = "user"});
  }
  Node a{"a"};
  Node b{"b", a.address()};
};

TEST_F(StopJob, ReachesAllHostsFromAnyAndSaysWhoAsked) {
  for (const Node* asked : {&a, &b}) {
    const Result<v1::StopJobReply> reply = admin_stop_job(asked->address(), "demo", 5'000);
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_THAT(reply->hosts(), testing::ElementsAre("a", "b"));
    EXPECT_EQ(reply->missing_size(), 0);
    EXPECT_EQ(a.agent.stopped_by, b.agent.stopped_by);
    EXPECT_THAT(a.agent.stopped_by, testing::EndsWith(", who asked tuttid at " + asked->address()));
  }
  EXPECT_EQ(a.agent.stopped, 0) << "the agents go on";
}

TEST_F(StopJob, IsForUsersOfTheirOwnJobsAlone) {
  v1::AdminAnswer answer = stop_as(2'000, b);
  EXPECT_EQ(answer.code(), 0) << answer.message();
  EXPECT_THAT(answer.stop_job().hosts(), testing::ElementsAre("b"));
  EXPECT_EQ(b.agent.stopped_by, "user, who asked tuttid at " + b.address());
  EXPECT_EQ(a.agent.stopped_by, "");
  answer = stop_as(3'000, b);
  EXPECT_EQ(code_of(answer.code()), Code::not_found);
  EXPECT_THAT(answer.message(), HasSubstr("no node has a worker of job \"demo\""));
}

TEST_F(StopJob, OfAnotherNameIsNotFound) {
  const Result<v1::StopJobReply> reply = admin_stop_job(b.address(), "other", 5'000);
  EXPECT_EQ(reply.status().code(), Code::not_found) << reply.status().to_string();
}

TEST(MeshAdmin, AddressesOfNoKnownFormAreNamed) {
  const Status status = admin_drain("foo", false, 5'000);
  EXPECT_EQ(status, invalid_argument("the address 'foo': expected host:port or unix:PATH"));
}

TEST(MeshAdmin, RequestsForNothingAreInvalid) {
  Node node("a");
  const v1::AdminAnswer answer =
      node.server->admin({}, {.kind = Caller::Kind::admin, .name = "root"});
  EXPECT_EQ(code_of(answer.code()), Code::invalid_argument);
  const v1::AdminAnswer to_stranger = node.server->admin({}, {.name = "somebody"});
  EXPECT_EQ(code_of(to_stranger.code()), Code::unauthenticated) << to_stranger.message();
}

TEST(MeshAdmin, NobodyThereSaysHowToStart) {
  const Status status = admin_drain("127.0.0.1:1", false, 5'000);
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_THAT(status.message(), HasSubstr("no tuttid answers at 127.0.0.1:1"));
  EXPECT_THAT(status.message(), HasSubstr("tuttid --listen 127.0.0.1:1"));
}

// As an agent of another protocol version answers.
TEST(MeshAdmin, AnAgentThatDoesNotKnowTheCallIsOfAnotherVersion) {
  grpc::CallbackGenericService nothing;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&nothing);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const Status status = admin_drain("127.0.0.1:" + std::to_string(port), false, 5'000);
  EXPECT_EQ(status.code(), Code::unimplemented);
  EXPECT_THAT(status.message(), HasSubstr("install one version of Tutti on all nodes"));
}

TEST(MeshAdmin, SecondServerOnAPortIsRefused) {
  Node node("a");
  FakeAgent other("b");
  const auto second = serve_control({.listen = node.address(), .host = "b"}, other);
  EXPECT_EQ(second.status().code(), Code::unavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(node.address()));
  EXPECT_EQ(serve_control({.listen = "nonsense"}, other).status().code(), Code::invalid_argument);
}

TEST(MeshAddress, OwnAddressIsRecognisedAsTheCoordinator) {
  const Result<Address> loopback = parse_address("127.0.0.1:7601");
  ASSERT_TRUE(loopback.ok());
  EXPECT_TRUE(is_self(*loopback, {"127.0.0.1", 7601}));
  EXPECT_TRUE(is_self(*loopback, {"0.0.0.0", 7601}));
  EXPECT_TRUE(is_self(*parse_address("localhost:7601"), {"127.0.0.1", 7601}));
  EXPECT_FALSE(is_self(*loopback, {"127.0.0.1", 7602}));
  EXPECT_FALSE(is_self(*loopback, {"127.0.0.2", 7601}));
  EXPECT_FALSE(is_self({"192.0.2.1", 7601}, {"0.0.0.0", 7601}));
}

TEST(MeshAddress, TextsAreReadStrictly) {
  EXPECT_EQ(parse_address("[::1]:7")->host, "::1");
  EXPECT_EQ(parse_address("[::1]:7")->to_string(), "[::1]:7");
  for (const char* text : {"[[]]:7", "[]]:7", "[:7", "a]b:7"})
    EXPECT_FALSE(parse_address(text).ok()) << text;
  EXPECT_EQ(parse_address("node-a:65535")->port, 65535);
  for (const char* wrong : {"", ":1", "a", "a:", "a:65536", "a:-1", "a:1x", "::1:7", "[]:1"})
    EXPECT_EQ(parse_address(wrong).status().code(), Code::invalid_argument) << wrong;
}

TEST(MeshAddress, WildcardIsNeverToldToOthers) {
  const Address told = reachable({"0.0.0.0", 7}, "127.0.0.1:9");
  EXPECT_EQ(told.to_string(), "127.0.0.1:7");
  EXPECT_EQ(reachable({"node-a", 7}, "").to_string(), "node-a:7");
}

}  // namespace
}  // namespace tutti
