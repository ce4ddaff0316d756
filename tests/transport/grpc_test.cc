// What a network can do to a gRPC link: peers that do not authenticate, send invalid frames or
// never answer, played by bare gRPC and bare sockets.
#include "tests/transport/raw_grpc.h"

namespace tutti {
namespace {

// Invalid messages, and the code with which the receiving end must close.
struct GrpcLie {
  const char* name;
  std::vector<Bytes> messages;
  Code code;
};

std::vector<GrpcLie> grpc_lies() {
  FrameHeader stranger = first_header(4), newer = first_header(4), odd = first_header(4),
              late = first_header(4);
  stranger.magic = 0;
  newer.version = kFrameVersion + 1;
  odd.kind = static_cast<FrameKind>(9);
  late.link_seq = 1;
  return {{"wrong magic", {frame(stranger, 4)}, Code::invalid_argument},
          {"wrong version", {frame(newer, 4)}, Code::invalid_argument},
          {"unknown kind", {frame(odd, 4)}, Code::invalid_argument},
          {"a gap", {frame(late, 4)}, Code::data_loss},
          {"a repeat", {frame(first_header(4), 4), frame(first_header(4), 4)}, Code::data_loss},
          {"too large", {frame(first_header(kMax + 1), kMax + 1)}, Code::invalid_argument},
          {"says more", {frame(first_header(5), 4)}, Code::data_loss},
          {"says less", {frame(first_header(3), 4)}, Code::data_loss},
          {"says far more", {frame(first_header(~size_t{0}), 4)}, Code::invalid_argument},
          {"half a header", {Bytes(20, 'x')}, Code::data_loss},
          {"nothing", {Bytes()}, Code::data_loss}};
}

TEST(GrpcListener, ClosesOnFramesThatLie) {
  for (const GrpcLie& lie : grpc_lies()) {
    GrpcListener listener;
    RawClient liar(listener.address, kSecret);
    for (const Bytes& message : lie.messages) liar.write(message);
    EXPECT_EQ(listener.end->closed_code(), lie.code) << lie.name;
    EXPECT_EQ(liar.end().error_code(), grpc::StatusCode::UNAVAILABLE) << lie.name;
    EXPECT_EQ(from_bytes<FrameHeader>(liar.heard).kind, FrameKind::goodbye) << lie.name;
  }
}

TEST(GrpcListener, RefusesWhatIsFarTooLargeUnread) {
  GrpcListener listener;
  RawClient liar(listener.address, kSecret);
  liar.write(frame(first_header(10 * kMax), 10 * kMax));
  EXPECT_EQ(listener.end->closed_code(), Code::unavailable);
  EXPECT_EQ(liar.end().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(GrpcListener, RefusesAStreamWithoutAHello) {
  LinkHelloHead newer, wordy;
  newer.version = 9;
  wordy.job_bytes = ~uint32_t{0};
  const Bytes hello = hello_of(kSecret);
  for (const Bytes& words :
       {Bytes(), Bytes(64, 'x'), to_bytes(newer), to_bytes(wordy), hello.substr(1), hello + "x"}) {
    GrpcListener listener;
    RawCall stranger(listener.address, {{kHelloKey, words}});
    EXPECT_EQ(stranger.end().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(listener.asked, 0);
  }
}

// Proxies may end idle streams.
TEST(GrpcListener, PingsWhereNothingElseIsSaid) {
  Listener listener({.silence_ms = 2'000}, nullptr, "grpc");
  RawClient client(listener.address, kSecret);
  ASSERT_TRUE(client.read());
  ASSERT_EQ(client.heard.size(), sizeof(FrameHeader));
  EXPECT_EQ(from_bytes<FrameHeader>(client.heard).kind, FrameKind::ping);
}

TEST(GrpcListener, ProvesThatItKnowsTheSecretToo) {
  GrpcListener listener;
  RawClient client(listener.address, kSecret);
  const auto answer = from_bytes<LinkAnswerHead>(client.initial(kAnswerKey));
  EXPECT_TRUE(equal_proofs(answer.proof, prove(kSecret, "l" + client.said)));
  EXPECT_FALSE(equal_proofs(answer.proof, prove(kSecret, "d" + client.said)));
}

TEST(GrpcListener, TurnsAwayAWrongProof) {
  GrpcListener listener;
  RawClient client(listener.address, "a guess");
  const grpc::Status end = client.end();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(end.error_message(), "a stranger");
}

// A recorded handshake cannot be replayed.
TEST(GrpcListener, TakesAProofOnceAndOnlyForItsOwnChallenge) {
  GrpcListener listener;
  RawClient client(listener.address, kSecret);
  EXPECT_FALSE(client.initial(kAnswerKey).empty());
  for (const Bytes& proof : {client.proof, client.proof.substr(1), client.proof + "x",
                             to_bytes(LinkChallenge()) + to_bytes(LinkProof())}) {
    RawCall thief(listener.address, {{kHelloKey, client.hello}, {kProofKey, proof}});
    EXPECT_EQ(thief.end().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(listener.asked, 1);
}

TEST(GrpcDialler, ClosesOnFramesThatLie) {
  std::vector<GrpcLie> all = grpc_lies();
  all.push_back(
      {"far too large", {frame(first_header(10 * kMax), 10 * kMax)}, Code::invalid_argument});
  for (const GrpcLie& lie : all) {
    RawServer liar(kSecret, lie.messages);
    auto transport = make_grpc_transport({.frame_bytes_max = kMax});
    auto end = std::make_shared<Recorder>();
    auto link = transport->connect(liar.address(), {"demo", 7, "a", kSecret}, end);
    EXPECT_EQ(end->closed_code(), lie.code) << lie.name;
  }
}

TEST(GrpcDialler, TellsNobodyTheSecretAndSendsNothingToAnImpostor) {
  RawServer impostor("a guess", {});
  auto transport = make_grpc_transport({});
  auto end = std::make_shared<Recorder>();
  auto link = transport->connect(impostor.address(), {"demo", 7, "a", kSecret}, end);
  EXPECT_TRUE(link->send({{}, {}, nullptr}).ok());
  EXPECT_EQ(end->closed_code(), Code::unauthenticated);
  transport.reset();
  EXPECT_NE(impostor.told().find("demo"), Bytes::npos);
  EXPECT_EQ(impostor.told().find(kSecret), Bytes::npos);
  EXPECT_EQ(impostor.frames(), 0) << "not one frame";
}

TEST(GrpcDialler, GivesUpOnADeafPortInTime) {
  Sender sender;
  LoopbackListener deaf;
  auto transport = make_grpc_transport({.connect_timeout_ms = 500});
  auto end = std::make_shared<Recorder>();
  auto link = transport->connect(deaf.address(), {}, end);
  EXPECT_TRUE(sender.send(*link, 10, 0).ok());
  EXPECT_FALSE(end->closed(std::chrono::milliseconds(300)).has_value());
  auto cause = end->closed(std::chrono::seconds(20));
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->code(), Code::deadline_exceeded);
  EXPECT_NE(cause->message().find(deaf.address()), std::string::npos);
}

TEST(GrpcDialler, LeavesADeafPortWhenItsTransportEnds) {
  LoopbackListener deaf;
  auto transport = make_grpc_transport({.connect_timeout_ms = 120'000});
  auto end = std::make_shared<Recorder>();
  auto link = transport->connect(deaf.address(), {}, end);
  transport.reset();
  EXPECT_EQ(end->closed_code(), Code::unavailable);
}

// Connects to `address`, sends `words`, reads until the peer closes or sends something, and closes.
void speak(const std::string& address, const std::string& words) {
  const Fd fd = connect_loopback(port_of(address));
  ASSERT_TRUE(fd.valid());
  if (words.empty()) return;
  ASSERT_EQ(::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  char answer[256];
  (void)::recv(fd.get(), answer, sizeof(answer), 0);
}

TEST(GrpcListener, IsUnharmedByStrangersOnThePort) {
  Sender sender;
  Pair pair("grpc");
  Joined before = pair.join();
  for (int i = 0; i < 20; ++i) {
    speak(pair.address, "");
    speak(pair.address, "GET / HTTP/1.1\r\nHost: tutti\r\n\r\n");
    speak(pair.address, std::string(1'000, '\xff'));
    speak(pair.address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(1'000, 'q'));
  }
  Joined after = pair.join();
  for (Joined* link : {&before, &after}) {
    ASSERT_TRUE(sender.send(*link->near, 5'000, 1).ok());
    EXPECT_TRUE(link->far_end->next().value().bytes == pattern(5'000, 1));
  }
}

}  // namespace
}  // namespace tutti
