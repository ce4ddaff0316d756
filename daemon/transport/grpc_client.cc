#include "daemon/transport/grpc_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include "daemon/transport/grpc_options.h"

namespace tutti {
namespace {

void add_hello(const LinkHello& hello, grpc::ClientContext& context) {
  context.AddMetadata(kJobKey, hello.job);
  context.AddMetadata(kEpochKey, std::to_string(hello.epoch));
  context.AddMetadata(kHostKey, hello.host);
  context.AddMetadata(kSecretKey, hello.secret);
}

// Why the stream ended, in our terms: in the listener's words where it gave some, else in gRPC's
// behind `what`.
Status cause_of(const grpc::Status& status, bool in_their_words, const std::string& what) {
  const Code code = code_of(status.error_code());
  if (in_their_words && code != Code::ok) return {code, status.error_message()};
  const std::string why = what + ": " + status.error_message();
  if (code == Code::resource_exhausted) return invalid_argument(why);
  return unavailable(why);
}

// Holds: the stream stays usable from outside its reactions until finish() drops the one hold.
class ClientLink : public GrpcLink,
                   public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientLink(std::shared_ptr<GrpcHub> hub, const std::string& address, const LinkHello& hello)
      : GrpcLink(std::move(hub), address),
        stub_(std::make_unique<grpc::GenericStub>(
            grpc::CreateCustomChannel("dns:" + address, grpc::InsecureChannelCredentials(),
                                      channel_arguments(hub_->limits)))),
        context_(std::make_unique<grpc::ClientContext>()) {
    add_hello(hello, *context_);
  }

  void start(std::shared_ptr<LinkHandler> handler) {
    set_handler(std::move(handler));
    std::lock_guard lock(mutex_);
    stub_->PrepareBidiStreamingCall(context_.get(), kExchangeMethod, {}, this);
    AddHold();
    set_alarm(hub_->limits.connect_timeout_ms);
    StartCall();
  }

 private:
  void start_read(grpc::ByteBuffer* message) override { StartRead(message); }
  void start_write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void finish(const Status& cause, Ending ending) override {
    if (ending == Ending::told) say_goodbye(cause);
    // A broken stream has its status on the way, which a cancellation would replace.
    if (ending == Ending::unheard) cancel();
    RemoveHold();
  }
  void cancel() override { context_->TryCancel(); }
  // Elsewhere: the last channel to go joins gRPC's callback threads, and this is one of them.
  void drop_stream() override {
    hub_->courier.post([context = std::shared_ptr(std::move(context_)),
                        stub = std::shared_ptr(std::move(stub_))]() mutable {
      context.reset();
      stub.reset();
    });
  }

  void OnReadInitialMetadataDone(bool ok) override { ok ? opened() : break_off(); }
  void OnReadDone(bool ok) override { was_read(ok); }
  void OnWriteDone(bool ok) override { was_written(ok); }
  void OnDone(const grpc::Status& status) override { done(explain(status)); }
  Status explain(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    const bool in_their_words = context_->GetServerTrailingMetadata().count(kCauseKey) > 0;
    return cause_of(status, in_their_words, "the link to " + peer_ + " failed");
  }

  void say_goodbye(const Status& cause) {
    const std::string text = cut_text(cause.message());
    FrameHeader header;
    header.kind = FrameKind::goodbye;
    goodbye_ = pack_goodbye(sealer_.seal(header, text.size()), text);
    StartWriteLast(&goodbye_, {});
  }

  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  grpc::ByteBuffer goodbye_;
};

}  // namespace

std::shared_ptr<Link> dial(std::shared_ptr<GrpcHub> hub, const std::string& address,
                           const LinkHello& hello, std::shared_ptr<LinkHandler> handler) {
  auto link = std::make_shared<ClientLink>(hub, address, hello);
  require(hub->keep(link), "connect() on a transport that ends");
  link->start(std::move(handler));
  return link;
}

}  // namespace tutti
