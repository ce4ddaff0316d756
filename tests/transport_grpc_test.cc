// What only a network can do to a link: strangers, liars and deaf ears on the port, played by bare
// gRPC and bare sockets.
#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include "daemon/base/fd.h"
#include "daemon/transport/frame_codec.h"
#include "tests/transport_fixture.h"

namespace tutti {
namespace {

constexpr size_t kMax = 1'000;

using Bytes = std::string;

Bytes frame(FrameHeader header, size_t payload_bytes) {
  return Bytes(reinterpret_cast<const char*>(&header), sizeof(header)) + Bytes(payload_bytes, 'x');
}
FrameHeader sealed(size_t payload_bytes) { return FrameSealer().seal({}, payload_bytes); }

grpc::ByteBuffer buffer_of(const Bytes& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// Messages a liar may send, and the code the honest end must close with.
struct Lie {
  const char* name;
  std::vector<Bytes> messages;
  Code code;
};

std::vector<Lie> lies() {
  FrameHeader stranger = sealed(4), newer = sealed(4), odd = sealed(4), late = sealed(4);
  stranger.magic = 0;
  newer.version = kFrameVersion + 1;
  odd.kind = static_cast<FrameKind>(9);
  late.link_seq = 1;
  return {{"wrong magic", {frame(stranger, 4)}, Code::invalid_argument},
          {"wrong version", {frame(newer, 4)}, Code::invalid_argument},
          {"unknown kind", {frame(odd, 4)}, Code::invalid_argument},
          {"a gap", {frame(late, 4)}, Code::data_loss},
          {"a repeat", {frame(sealed(4), 4), frame(sealed(4), 4)}, Code::data_loss},
          {"too large", {frame(sealed(kMax + 1), kMax + 1)}, Code::invalid_argument},
          {"says more", {frame(sealed(5), 4)}, Code::data_loss},
          {"says less", {frame(sealed(3), 4)}, Code::data_loss},
          {"says far more", {frame(sealed(~size_t{0}), 4)}, Code::invalid_argument},
          {"half a header", {Bytes(20, 'x')}, Code::data_loss},
          {"nothing", {Bytes()}, Code::data_loss}};
}

// A bare client's stream to `address`, with the metadata of a link's beginning or without.
class RawClient {
 public:
  explicit RawClient(const std::string& address, bool with_hello = true)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    if (with_hello) context_.AddMetadata("tutti-epoch", "7");
    call_ = stub_.PrepareCall(&context_, "/tutti.v1.Data/Exchange", &queue_);
    call_->StartCall(this);
    next();
  }
  void write(const Bytes& message) {
    call_->Write(buffer_of(message), this);
    next();
  }
  grpc::Status end() {
    grpc::Status status;
    call_->Finish(&status, this);
    next();
    return status;
  }

 private:
  void next() {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + kPatience;
    ASSERT_EQ(queue_.AsyncNext(&tag, &ok, deadline), grpc::CompletionQueue::GOT_EVENT);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(GrpcListener, ClosesOnFramesThatLie) {
  for (const Lie& lie : lies()) {
    Pair pair("grpc", {.frame_bytes_max = kMax});
    auto far_end = std::make_shared<Recorder>();
    auto address = pair.here->listen(
        "127.0.0.1:0", [&](auto&, auto) { return Result<std::shared_ptr<LinkHandler>>(far_end); });
    RawClient liar(*address);
    for (const Bytes& message : lie.messages) liar.write(message);
    EXPECT_EQ(far_end->closed_code(), lie.code) << lie.name;
    EXPECT_EQ(liar.end().error_code(), grpc::StatusCode::UNAVAILABLE) << lie.name;
  }
}

TEST(GrpcListener, RefusesWhatIsFarTooLargeUnread) {
  Pair pair("grpc", {.frame_bytes_max = kMax});
  auto far_end = std::make_shared<Recorder>();
  auto address = pair.here->listen(
      "127.0.0.1:0", [&](auto&, auto) { return Result<std::shared_ptr<LinkHandler>>(far_end); });
  RawClient liar(*address);
  liar.write(frame(sealed(10 * kMax), 10 * kMax));
  EXPECT_EQ(far_end->closed_code(), Code::unavailable);
  EXPECT_EQ(liar.end().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(GrpcListener, RefusesAStreamWithoutAHello) {
  Pair pair("grpc");
  RawClient stranger(pair.address, /*with_hello=*/false);
  EXPECT_EQ(stranger.end().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(pair.heard.has_value());
}

// A bare server that accepts every stream and sends it these messages.
class RawServer : public grpc::CallbackGenericService {
 public:
  explicit RawServer(std::vector<Bytes> messages) : messages_(std::move(messages)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~RawServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  class Stream : public grpc::ServerGenericBidiReactor {
   public:
    explicit Stream(const std::vector<Bytes>& messages) : messages_(messages) {
      StartRead(&incoming_);
      OnWriteDone(true);
    }
    void OnWriteDone(bool ok) override {
      if (!ok || written_ == messages_.size()) return;
      outgoing_ = buffer_of(messages_[written_++]);
      StartWrite(&outgoing_);
    }
    void OnReadDone(bool) override { Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }

   private:
    const std::vector<Bytes>& messages_;
    size_t written_ = 0;
    grpc::ByteBuffer incoming_, outgoing_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Stream(messages_);
  }

  const std::vector<Bytes> messages_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(GrpcDialler, ClosesOnFramesThatLie) {
  std::vector<Lie> all = lies();
  all.push_back({"far too large", {frame(sealed(10 * kMax), 10 * kMax)}, Code::invalid_argument});
  for (const Lie& lie : all) {
    RawServer liar(lie.messages);
    auto transport = make_grpc_transport({.frame_bytes_max = kMax});
    auto end = std::make_shared<Recorder>();
    auto link = transport->connect(liar.address(), {}, end);
    EXPECT_EQ(end->closed_code(), lie.code) << lie.name;
  }
}

// A listening socket whose connections nobody answers.
struct DeafPort {
  DeafPort() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    EXPECT_EQ(::listen(socket.get(), 16), 0);
    socklen_t size = sizeof(name);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size);
    address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  }
  Fd socket;
  std::string address;
};

TEST(GrpcDialler, GivesUpOnADeafPortInTime) {
  Sender sender;
  DeafPort deaf;
  auto transport = make_grpc_transport({.connect_timeout_ms = 500});
  auto end = std::make_shared<Recorder>();
  auto link = transport->connect(deaf.address, {}, end);
  EXPECT_TRUE(sender.send(*link, 10, 0).ok());
  EXPECT_FALSE(end->closed(std::chrono::milliseconds(300)).has_value());
  auto cause = end->closed(std::chrono::seconds(20));
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->code(), Code::deadline_exceeded);
  EXPECT_NE(cause->message().find(deaf.address), std::string::npos);
}

TEST(GrpcDialler, LeavesADeafPortWhenItsTransportEnds) {
  DeafPort deaf;
  auto transport = make_grpc_transport({.connect_timeout_ms = 120'000});
  auto end = std::make_shared<Recorder>();
  auto link = transport->connect(deaf.address, {}, end);
  transport.reset();
  EXPECT_EQ(end->closed_code(), Code::unavailable);
}

// Connects to `address`, says `words`, reads what comes until the other side closes or says
// something, and closes.
void speak(const std::string& address, const std::string& words) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  sockaddr_in name{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
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
