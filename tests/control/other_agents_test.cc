// How an agent asks others: over ways that it keeps, and what it says of those that do not answer.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <mutex>
#include <thread>

#include "daemon/control/admin_client.h"
#include "daemon/control/channel.h"
#include "daemon/control/kept_stubs.h"
#include "proto/mesh.grpc.pb.h"
#include "proto/segment.h"
#include "tests/control/net.h"
#include "tests/support/loopback.h"

namespace tutti {
namespace {

TEST(MeshKeptStubs, OneThatIsGivenBackServesAgain) {
  KeptStubs stubs(nullptr);
  KeptStubs::Stub first = stubs.take("b", "10.0.0.2:7601");
  const v1::Admin::Stub* stub = first.stub.get();
  EXPECT_EQ(stubs.count(), 0u);
  stubs.give_back(std::move(first));
  EXPECT_EQ(stubs.count(), 1u);
  EXPECT_EQ(stubs.take("b", "10.0.0.2:7601").stub.get(), stub);
  EXPECT_EQ(stubs.count(), 0u) << "what is taken and fails is not kept";
}

TEST(MeshKeptStubs, QuestionsAtOnceHaveOneEach) {
  KeptStubs stubs(nullptr);
  KeptStubs::Stub first = stubs.take("b", "10.0.0.2:7601");
  KeptStubs::Stub second = stubs.take("b", "10.0.0.2:7601");
  EXPECT_NE(first.stub.get(), second.stub.get());
  stubs.give_back(std::move(first));
  stubs.give_back(std::move(second));
  EXPECT_EQ(stubs.count(), 1u);
}

TEST(MeshKeptStubs, OfAgentsThatLeaveOrMoveAreDropped) {
  KeptStubs stubs(nullptr);
  for (const std::string host : {"b", "c", "d"}) stubs.give_back(stubs.take(host, "10.0.0.2:7601"));
  stubs.keep_only({{"b", "10.0.0.2:7601"}, {"c", "10.0.0.3:7601"}});
  EXPECT_EQ(stubs.count(), 1u);
  (void)stubs.take("b", "10.0.0.2:7601");
  EXPECT_EQ(stubs.count(), 0u);
}

TEST(MeshOtherAgents, AStatusHasTheCallsOfTheSameAgentsWhereTheyAreAskedFor) {
  Node first("a");
  Node second("b", first.address());
  first.agent.uids = {1'000, 1'001};
  second.agent.uids = {1'000, 0};
  Loop loop;
  for (const Node* asked : {&first, &second}) {
    Caller caller{.kind = Caller::Kind::user, .uid = 1'000, .name = "user 1000"};
    v1::AdminRequest request;
    request.mutable_status();
    const auto reply = [&] { return asked->server->admin(request, caller).status(); };
    ASSERT_TRUE(await(loop, [&] { return reply().agents_size() == 2; }));
    EXPECT_FALSE(reply().has_calls());
    request.mutable_status()->mutable_calls()->mutable_owner()->set_uid(0);  // As if.
    const v1::TraceReply seen = reply().calls();
    ASSERT_EQ(seen.hosts_size(), 2);
    EXPECT_EQ(seen.hosts(0).host(), "a");
    EXPECT_EQ(seen.hosts(1).host(), "b");
    for (const v1::HostTrace& host : seen.hosts()) EXPECT_EQ(host.owner().uid(), 1'000u);
    caller.kind = Caller::Kind::admin;
    request.mutable_status()->mutable_calls()->clear_owner();
    EXPECT_EQ(reply().calls().hosts_size(), 4);
  }
}

TEST(MeshOtherAgents, ARefusedAgentSaysSoAndWhatToDo) {
  Node first("a");
  Node second("b", first.address(), "127.0.0.1:0", test_credentials("another"));
  v1::AdminRequest request;
  request.mutable_status();
  v1::StatusReply seen;
  Loop loop;
  ASSERT_TRUE(await(loop, [&] {
    seen = second.server->admin(request, {.kind = Caller::Kind::admin, .name = "test"}).status();
    return seen.agents_size() == 2 &&
           seen.agents(0).state() ==
               "refuses this agent: wrong token; give both the same token_file";
  })) << seen.agents(0).state();
  EXPECT_EQ(seen.agents(0).address(), first.address());
  EXPECT_EQ(seen.agents(1).host(), "b");
}

// An agent of which nothing but its registration is there: `listener` takes its connections.
struct SilentAgent {
  SilentAgent(const std::string& coordinator, const std::string& address)
      : stub(v1::Mesh::NewStub(make_channel(coordinator, nullptr))) {
    show_token(context, kMeshToken);
    stream = stub->Enlist(&context);
    v1::AgentMessage self;
    self.set_host("b");
    self.set_address(address);
    self.set_version(kProtocolVersion);
    stream->Write(self);
  }

  grpc::ClientContext context;
  std::unique_ptr<v1::Mesh::Stub> stub;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::AgentAnswer>> stream;
};

// Answers questions as a test has it, at a port of its own.
struct FakeAdmin final : v1::Admin::Service {
  using Answers = std::function<grpc::Status(const std::string& peer, const v1::AdminRequest&,
                                             v1::AdminAnswer&)>;
  explicit FakeAdmin(Answers answers) : answers(std::move(answers)) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
  }
  grpc::Status Call(grpc::ServerContext* context, const v1::AdminRequest* request,
                    v1::AdminAnswer* answer) override {
    return answers(context->peer(), *request, *answer);
  }

  const Answers answers;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

v1::StatusReply ask_with_calls(const Node& node) {
  v1::AdminRequest request;
  request.mutable_status()->mutable_calls();
  return node.server->admin(request, {.kind = Caller::Kind::admin, .name = "test"}).status();
}

TEST(MeshOtherAgents, AnAgentOfAReleaseThatTellsNoCallsWithItsStatusIsMissingInThem) {
  Node first("a");
  const FakeAdmin older([](const auto&, const v1::AdminRequest&, v1::AdminAnswer& answer) {
    answer.mutable_status()->add_agents()->set_host("b");
    return grpc::Status();
  });
  const SilentAgent enlisted(first.address(), older.address);
  v1::StatusReply seen;
  Loop loop;
  ASSERT_TRUE(await(loop, [&] {
    seen = ask_with_calls(first);
    return seen.agents_size() == 2;
  }));
  ASSERT_EQ(seen.calls().missing_size(), 1);
  EXPECT_EQ(seen.calls().missing(0).host(), "b");
  EXPECT_EQ(seen.calls().missing(0).state(),
            "its release does not tell it with the status; install the same on every host");
}

TEST(MeshOtherAgents, ACoordinatorThatTellsNoCallsWithItsStatusIsAskedForThem) {
  const FakeAdmin older([](const auto&, const v1::AdminRequest& request, v1::AdminAnswer& answer) {
    if (request.has_trace())
      answer.mutable_trace()->add_hosts()->set_job(request.trace().job());
    else
      answer.mutable_status()->add_agents()->set_host("a");
    return grpc::Status();
  });
  const Node second("b", older.address);
  v1::AdminRequest request;
  request.mutable_status()->mutable_calls()->set_job("demo");
  const v1::StatusReply seen =
      second.server->admin(request, {.kind = Caller::Kind::admin, .name = "test"}).status();
  EXPECT_EQ(seen.agents_size(), 1);
  ASSERT_EQ(seen.calls().hosts_size(), 1);
  EXPECT_EQ(seen.calls().hosts(0).job(), "demo");
}

// Over the first connection one question is answered, and then none.
struct LostWay {
  grpc::Status operator()(const std::string& peer, v1::AdminAnswer& answer) {
    bool is_lost = false;
    {
      const std::lock_guard lock(mutex);
      if (first.empty()) first = peer;
      is_lost = peer == first && questions++ > 0;
    }
    if (is_lost && is_silent) end.wait();
    answer.mutable_status()->add_agents()->set_host("b");
    return is_lost ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "lost") : grpc::Status();
  }

  const bool is_silent;
  std::mutex mutex;
  std::string first;
  int questions = 0;
  std::latch end{1};
};

TEST(MeshOtherAgents, AKeptWayThatIsLostIsNoWordOfTheAgent) {
  for (const bool is_silent : {false, true}) {
    LostWay way{.is_silent = is_silent};
    const FakeAdmin other([&](const auto& peer, const v1::AdminRequest&, v1::AdminAnswer& answer) {
      return way(peer, answer);
    });
    Node first("a");
    const SilentAgent enlisted(first.address(), other.address);
    Loop loop;
    ASSERT_TRUE(await(loop, [&] { return ask_with_calls(first).agents_size() == 2; }));
    EXPECT_EQ(ask_with_calls(first).agents(1).state(), "") << is_silent;
    EXPECT_GT(way.questions, 1);
    way.end.count_down();
  }
}

TEST(MeshOtherAgents, AKeptWayToTheCoordinatorThatIsLostIsNoWordOfIt) {
  LostWay way{.is_silent = false};
  const FakeAdmin coordinator([&](const auto& peer, const auto& request, v1::AdminAnswer& answer) {
    if (request.has_trace()) return grpc::Status();
    return way(peer, answer);
  });
  const Node second("b", coordinator.address);
  v1::AdminRequest request;
  request.mutable_status();
  for (int question = 0; question < 2; ++question) {
    const v1::StatusReply seen =
        second.server->admin(request, {.kind = Caller::Kind::admin, .name = "test"}).status();
    EXPECT_EQ(seen.agents_size(), 1) << seen.ShortDebugString();
  }
  EXPECT_GT(way.questions, 1);
}

Fd accept_one(const LoopbackListener& listener) {
  return Fd(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

TEST(MeshOtherAgents, AnAgentThatDoesNotAnswerIsNamedWithWhatToDoAndOnceWhereItGoesMeanwhile) {
  Node first("a");
  const LoopbackListener listener;
  const std::string address = listener.address();
  SilentAgent silent(first.address(), address);
  const auto ask = [&] {
    const Result<v1::StatusReply> reply = admin_status(first.address(), false, 5'000);
    return reply.ok() ? *reply : v1::StatusReply();
  };
  v1::StatusReply seen;
  Loop loop;
  ASSERT_TRUE(await(loop, [&] {
    seen = ask();
    return seen.agents_size() == 2;
  }));
  const Fd asked = accept_one(listener);
  EXPECT_EQ(seen.agents(1).state(),
            "unreachable: tuttid at " + address +
                " does not answer in time; see there whether it is stopped or starved (systemctl "
                "status tuttid), and whether the network to it loses packets");
  std::thread asks([&] { seen = ask(); });
  const Fd asked_again = accept_one(listener);
  silent.context.TryCancel();
  asks.join();
  ASSERT_EQ(seen.agents_size(), 2);
  EXPECT_EQ(seen.agents(1).host(), "b");
}

}  // namespace
}  // namespace tutti
