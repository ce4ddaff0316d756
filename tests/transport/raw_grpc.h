// Bare gRPC clients and servers that play the peer of a gRPC link.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "daemon/transport/endpoint.h"
#include "daemon/transport/grpc_link.h"
#include "daemon/transport/grpc_tls.h"
#include "tests/transport/bare.h"

namespace tutti {

struct GrpcListener : Listener {
  GrpcListener() : Listener({.frame_bytes_max = kMax}, nullptr, "grpc") {}
};

inline grpc::ByteBuffer buffer_of(const Bytes& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// A bare client's stream to `address`, with this metadata.
class RawCall {
 public:
  using Metadata = std::vector<std::pair<const char*, Bytes>>;
  RawCall(const std::string& address, const Metadata& metadata)
      : stub_(
            grpc::CreateCustomChannel(host_and_port(address), credentials_for(address), alone())) {
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    call_ = stub_.PrepareCall(&context_, kExchangeMethod, &queue_);
    call_->StartCall(this);
    next();
  }
  ~RawCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) continue;
  }
  // Waits until gRPC has taken the message, but not longer than `limit`.
  bool write(const Bytes& message, std::chrono::milliseconds limit = kPatience) {
    call_->Write(buffer_of(message), this);
    return next(limit);
  }
  // Waits until the write is over, successful or not.
  void wait() { (void)next(); }
  // Appends the next message to `heard`. Returns false if the stream has ended.
  bool read() {
    grpc::ByteBuffer message;
    std::vector<grpc::Slice> slices;
    call_->Read(&message, this);
    if (!next() || !message.Dump(&slices).ok()) return false;
    for (const grpc::Slice& slice : slices) heard.append(slice.begin(), slice.end());
    return true;
  }
  // Reads until the stream ends; `heard` has its messages.
  grpc::Status end() {
    while (read()) continue;
    grpc::Status status;
    call_->Finish(&status, this);
    next();
    return status;
  }
  Bytes initial(const char* key) {
    call_->ReadInitialMetadata(this);
    next();
    return metadata_of(context_.GetServerInitialMetadata(), key);
  }
  Bytes trailing(const char* key) const {
    return metadata_of(context_.GetServerTrailingMetadata(), key);
  }
  Bytes heard;

 private:
  static std::shared_ptr<grpc::ChannelCredentials> credentials_for(const std::string& address) {
    const size_t mark = address.find('#');
    if (mark == std::string::npos) return grpc::InsecureChannelCredentials();
    return tls_channel_credentials(address.substr(mark + 1), std::make_shared<std::atomic<bool>>());
  }
  static grpc::ChannelArguments alone() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    return arguments;
  }
  // Waits for the pending operation and returns whether it succeeded.
  bool next(std::chrono::milliseconds limit = kPatience) {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + limit;
    return queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// The first call of a dialler, and the proof for its second.
struct RawHandshake {
  RawHandshake(const std::string& address, const std::string& secret) : hello(hello_of(secret)) {
    RawCall first(address, {{kHelloKey, hello}});
    EXPECT_EQ(first.end().error_code(), grpc::StatusCode::UNAUTHENTICATED);
    const Bytes challenge = first.trailing(kChallengeKey);
    EXPECT_EQ(challenge.size(), sizeof(LinkChallenge));
    said = hello + challenge;
    proof = challenge + to_bytes(prove(secret, "d" + said));
  }
  Bytes hello, said, proof;
};

// A bare client that proves `secret`.
class RawClient : public RawHandshake, public RawCall {
 public:
  RawClient(const std::string& address, const std::string& secret)
      : RawHandshake(address, secret), RawCall(address, {{kHelloKey, hello}, {kProofKey, proof}}) {}
};

// A bare server that accepts every dialler, proving `secret`, and sends it these messages.
class RawServer : public grpc::CallbackGenericService {
 public:
  RawServer(std::string secret, std::vector<Bytes> messages)
      : secret_(std::move(secret)), messages_(std::move(messages)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~RawServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // All metadata of all calls.
  Bytes told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  int frames() const { return frames_; }

 private:
  class Stream : public grpc::ServerGenericBidiReactor {
   public:
    explicit Stream(RawServer& server) : server_(server) {}
    void challenge(grpc::GenericCallbackServerContext& context) {
      context.AddTrailingMetadata(kChallengeKey, write_challenge({}));
      Finish({grpc::StatusCode::UNAUTHENTICATED, ""});
    }
    void welcome(grpc::GenericCallbackServerContext& context, const Bytes& said) {
      context.AddInitialMetadata(kAnswerKey, write_welcome(prove(server_.secret_, "l" + said)));
      StartSendInitialMetadata();
      StartRead(&incoming_);
      OnWriteDone(true);
    }
    void OnWriteDone(bool ok) override {
      if (!ok || written_ == server_.messages_.size()) return;
      outgoing_ = buffer_of(server_.messages_[written_++]);
      StartWrite(&outgoing_);
    }
    void OnReadDone(bool ok) override {
      if (ok && incoming_.Length() > 0) ++server_.frames_;
      Finish(grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    RawServer& server_;
    size_t written_ = 0;
    grpc::ByteBuffer incoming_, outgoing_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, value] : context->client_metadata())
        told_ += Bytes(value.data(), value.size());
    }
    auto* stream = new Stream(*this);
    const Bytes hello = metadata_of(context->client_metadata(), kHelloKey);
    const Bytes proof = metadata_of(context->client_metadata(), kProofKey);
    if (proof.empty())
      stream->challenge(*context);
    else
      stream->welcome(*context, hello + proof.substr(0, sizeof(LinkChallenge)));
    return stream;
  }

  const std::string secret_;
  const std::vector<Bytes> messages_;
  std::mutex mutex_;
  Bytes told_;
  std::atomic<int> frames_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tutti
