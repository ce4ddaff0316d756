// The dialling side of gRPC links.
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "daemon/base/foreign_text.h"
#include "daemon/transport/endpoint.h"
#include "daemon/transport/grpc_link.h"
#include "daemon/transport/grpc_options.h"
#include "daemon/transport/grpc_tls.h"
#include "daemon/transport/handshake.h"

namespace tutti {
namespace {

// Makes two calls: the first asks for a challenge, the second is the link. The second has a hold,
// which keeps it usable outside of reactions until finish_stream() removes it.
class ClientLink final : public GrpcLink,
                         public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientLink(std::shared_ptr<TransportCore> transport, const std::string& address,
             const LinkHello& hello, std::shared_ptr<LinkHandler> handler)
      : GrpcLink(std::move(transport), address, std::move(handler)),
        handshake_(hello, transport_->limits, address) {}

  void start(const Result<Endpoint>& endpoint) {
    if (!endpoint.ok()) return close_stream(endpoint.status());
    grpc::ChannelArguments arguments = channel_arguments(transport_->limits);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (!endpoint->fingerprint.empty()) {
      credentials = tls_channel_credentials(endpoint->fingerprint, met_another_);
      arguments.SetSslTargetNameOverride(kTlsName);
    }
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel("dns:" + endpoint->address, credentials, arguments));
    start_open_timer("did not accept the link");
    call({});
  }

 private:
  // Starts a call; an empty `proof` asks for a challenge.
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
    if (all_sent_locked()) StartWritesDone();
    RemoveHold();
  }
  void cancel() override {
    if (context_) context_->TryCancel();
  }
  // The handshake cannot carry a cause to the listener.
  void welcome(const std::string&, const LinkTerms&) override {}
  void refuse(const Status&) override { close_wire(); }
  void close_wire() override {
    if (context_) return GrpcLink::close_wire();
    transport_->loop.cancel(redial_timer_);
    on_wire_closed(unavailable("the link to " + peer_ + " was closed"));
  }

  void OnReadInitialMetadataDone(bool ok) override {
    const std::string answer =
        ok ? metadata_of(context_->GetServerInitialMetadata(), kAnswerKey) : "";
    if (!answer.empty())
      return post([this, self = shared_from_this(), answer] { on_answer(answer); });
    if (is_held()) stop_writing();  // The status says why.
  }
  void OnReadDone(bool ok) override { on_read(ok); }
  void OnWriteDone(bool ok) override { on_written(ok); }
  void OnDone(const grpc::Status& status) override {
    post([this, self = shared_from_this(), status] { on_call_done(status); });
  }

  bool is_held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

  void on_answer(const std::string& answer) {
    if (state() != State::connecting) return;
    if (const Status accepted = handshake_.check(answer); !accepted.ok()) return fail(accepted);
    (void)set_open(handshake_.terms().silence_ms);
  }

  void on_call_done(const grpc::Status& status) {
    const std::string challenge = metadata_of(context_->GetServerTrailingMetadata(), kChallengeKey);
    const Status refusal = refusal_of_listener();
    if (refusal.code() == Code::resource_exhausted && state() == State::connecting)
      return redial(refusal);
    if (challenge.empty() || std::exchange(challenged_, true) || state() != State::connecting)
      return close_stream(cause_of(status));
    const Result<std::string> proof = handshake_.prove(challenge);
    proof.ok() ? call(challenge + *proof) : close_stream(proof.status());
  }

  // Returns OK if it sent none.
  Status refusal_of_listener() const {
    const std::string refusal = metadata_of(context_->GetServerTrailingMetadata(), kAnswerKey);
    return refusal.empty() ? Status() : handshake_.check(refusal);
  }

  // The listener had to make room, or has none yet.
  void redial(const Status& refusal) {
    note_refusal(refusal);
    context_.reset();
    challenged_ = false;
    {
      const std::lock_guard lock(mutex_);
      restart_locked();
    }
    redial_timer_ = transport_->loop.at(
        Clock::now() + kRedialPause,
        [link = std::static_pointer_cast<ClientLink>(shared_from_this())] { link->call({}); });
  }

  // Returns the listener's refusal if it sent one, otherwise gRPC's error.
  Status cause_of(const grpc::Status& status) {
    if (const Status refusal = refusal_of_listener(); !refusal.ok()) return refusal;
    if (*met_another_)
      return unauthenticated(
          peer_ + ": it is not the worker of the roster: its certificate is another one");
    const std::string why =
        "the link to " + peer_ + " failed: " + clean_text(status.error_message());
    return code_of(status.error_code()) == Code::resource_exhausted ? invalid_argument(why)
                                                                    : unavailable(why);
  }

  void close_stream(Status cause) {
    context_.reset();
    stub_.reset();
    on_stream_closed(std::move(cause));
  }

  DiallerHandshake handshake_;  // Loop thread only.
  bool challenged_ = false;     // Loop thread only.
  Loop::TimerId redial_timer_ = 0;
  const std::shared_ptr<std::atomic<bool>> met_another_ = std::make_shared<std::atomic<bool>>();
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  bool held_ = false;  // Guarded by mutex_.
};

}  // namespace

std::shared_ptr<Link> dial_grpc(std::shared_ptr<TransportCore> transport,
                                const std::string& endpoint, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler) {
  const std::string peer = endpoint.substr(0, endpoint.find('#'));
  auto link = std::make_shared<ClientLink>(transport, peer, hello, std::move(handler));
  require(transport->add(link), "connect() on a transport that ends");
  transport->loop.post([link, endpoint = parse_endpoint(endpoint, transport->limits.tls)] {
    link->start(endpoint);
  });
  return link;
}

}  // namespace tutti
