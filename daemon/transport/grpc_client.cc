#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "daemon/transport/grpc_link.h"
#include "daemon/transport/grpc_options.h"
#include "daemon/transport/handshake.h"

namespace tutti {
namespace {

// Two calls: the first asks for a challenge, the second is the link. Holds: a call stays usable
// from outside its reactions until finish_stream() drops the one hold.
class ClientLink final : public GrpcLink,
                         public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientLink(std::shared_ptr<LinkHub> hub, const std::string& address, const LinkHello& hello,
             std::shared_ptr<LinkHandler> handler)
      : GrpcLink(std::move(hub), address, std::move(handler)),
        handshake_(hello, hub_->limits, address),
        stub_(std::make_unique<grpc::GenericStub>(
            grpc::CreateCustomChannel("dns:" + address, grpc::InsecureChannelCredentials(),
                                      channel_arguments(hub_->limits)))) {}

  void start() {
    expect_opening("did not accept the link");
    call({});
  }

 private:
  // Where `proof` is empty, a challenge is asked for.
  void call(const std::string& proof) {
    const std::lock_guard lock(mutex_);
    context_ = std::make_unique<grpc::ClientContext>();
    context_->AddMetadata(kHelloKey, handshake_.hello());
    if (!proof.empty()) context_->AddMetadata(kProofKey, proof);
    stub_->PrepareBidiStreamingCall(context_.get(), kExchangeMethod, {}, this);
    held_ = !proof.empty();
    if (held_) AddHold();
    StartCall();
  }

  void start_read(grpc::ByteBuffer* message) override { StartRead(message); }
  void start_write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void finish_stream() override {
    if (!std::exchange(held_, false)) return;
    if (said_all_locked()) StartWritesDone();
    RemoveHold();
  }
  void cancel() override {
    if (context_) context_->TryCancel();
  }
  // A listener is not told; it has asked nobody yet, or has answered.
  void welcome(const std::string&) override {}
  void refuse(const Status&) override { context_ ? cut() : finished({}); }

  void OnReadInitialMetadataDone(bool ok) override {
    const std::string answer =
        ok ? metadata_of(context_->GetServerInitialMetadata(), kAnswerKey) : "";
    if (!answer.empty())
      return post([this, self = shared_from_this(), answer] { answered(answer); });
    if (is_held()) give_up();  // The status says why.
  }
  void OnReadDone(bool ok) override { was_read(ok); }
  void OnWriteDone(bool ok) override { was_written(ok); }
  void OnDone(const grpc::Status& status) override {
    post([this, self = shared_from_this(), status] { ended(status); });
  }

  bool is_held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

  void answered(const std::string& answer) {
    if (state() != State::waiting) return;
    if (const Status accepted = handshake_.check(answer); !accepted.ok())
      return break_off(accepted);
    (void)opened(handshake_.silence_ms());
  }

  void ended(const grpc::Status& status) {
    const std::string challenge = metadata_of(context_->GetServerTrailingMetadata(), kChallengeKey);
    if (challenge.empty() || std::exchange(challenged_, true) || state() != State::waiting)
      return gone(cause_of(status));
    const Result<std::string> proof = handshake_.prove(challenge);
    proof.ok() ? call(challenge + *proof) : gone(proof.status());
  }

  // In the listener's words where it refused in some, else in gRPC's.
  Status cause_of(const grpc::Status& status) {
    const std::string refusal = metadata_of(context_->GetServerTrailingMetadata(), kAnswerKey);
    if (!refusal.empty()) {
      const Status words = handshake_.check(refusal);
      if (!words.ok()) return words;
    }
    const std::string why = "the link to " + peer_ + " failed: " + status.error_message();
    return code_of(status.error_code()) == Code::resource_exhausted ? invalid_argument(why)
                                                                    : unavailable(why);
  }

  void gone(Status cause) {
    context_.reset();
    stub_.reset();
    over(std::move(cause));
  }

  DiallerHandshake handshake_;  // The loop's.
  bool challenged_ = false;     // The loop's.
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  bool held_ = false;  // Guarded by mutex_.
};

}  // namespace

std::shared_ptr<Link> dial_grpc(std::shared_ptr<LinkHub> hub, const std::string& address,
                                const LinkHello& hello, std::shared_ptr<LinkHandler> handler) {
  auto link = std::make_shared<ClientLink>(hub, address, hello, std::move(handler));
  require(hub->keep(link), "connect() on a transport that ends");
  hub->loop.post([link] { link->start(); });
  return link;
}

}  // namespace tutti
