#include "daemon/transport/grpc_server.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <charconv>

#include "daemon/transport/secrets.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {
namespace {

using ServerReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Says why in trailers of our own, so that the dialler can tell our words from gRPC's.
grpc::Status explain(grpc::CallbackServerContext& context, const Status& cause) {
  context.AddTrailingMetadata(kCauseKey, "1");
  return {static_cast<grpc::StatusCode>(cause.code()), cut_text(cause.message())};
}

std::string metadata_of(const grpc::CallbackServerContext& context, const char* key) {
  const auto& all = context.client_metadata();
  const auto found = all.find(key);
  return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
}

Result<LinkGuest> read_hello(const grpc::CallbackServerContext& context) {
  LinkGuest hello;
  hello.job = metadata_of(context, kJobKey);
  hello.host = metadata_of(context, kHostKey);
  hello.knows = [shown = metadata_of(context, kSecretKey)](const std::string& secret) {
    return same_secret(secret, shown);
  };
  const std::string epoch = metadata_of(context, kEpochKey);
  const char* end = epoch.data() + epoch.size();
  const auto parsed = std::from_chars(epoch.data(), end, hello.epoch);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    return invalid_argument("a data link begins with its job, epoch, host and secret");
  return hello;
}

// Answers a stream that never becomes a link; deletes itself.
class Refusal : public ServerReactor {
 public:
  Refusal(grpc::CallbackServerContext& context, const Status& cause) {
    Finish(explain(context, cause));
  }
  void OnDone() override { delete this; }
};

class ServerLink : public GrpcLink, public ServerReactor {
 public:
  ServerLink(std::shared_ptr<GrpcHub> hub, grpc::CallbackServerContext* context,
             const LinkGuest& hello)
      : GrpcLink(std::move(hub), "host " + hello.host + " at " + context->peer()),
        context_(context) {}

  // Within the method's handler: asks who takes this link. Whatever starts here waits until the
  // handler has returned.
  void start(const LinkGuest& hello, const Acceptor& acceptor) {
    auto handler = acceptor(hello, shared_from_this());
    if (!handler.ok()) return end(handler.status(), handler.status());
    set_handler(*std::move(handler));
    StartSendInitialMetadata();
    opened();
  }

 private:
  void start_read(grpc::ByteBuffer* message) override {
    if (!finishing_) StartRead(message);
  }
  void start_write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void finish(const Status& cause, Ending) override {
    finishing_ = true;
    Finish(explain(*context_, cause));
  }
  void cancel() override { context_->TryCancel(); }
  void drop_stream() override { context_ = nullptr; }

  void OnReadDone(bool ok) override { was_read(ok); }
  void OnWriteDone(bool ok) override { was_written(ok); }
  void OnDone() override { done(broken()); }
  Status broken() {
    std::lock_guard lock(mutex_);
    return unavailable("the link from " + peer_ + " broke");
  }

  grpc::CallbackServerContext* context_;
  bool finishing_ = false;  // Guarded by mutex_.
};

class DataService : public v1::Data::WithRawCallbackMethod_Exchange<v1::Data::Service> {
 public:
  DataService(std::shared_ptr<GrpcHub> hub, Acceptor acceptor)
      : hub_(std::move(hub)), acceptor_(std::move(acceptor)) {}

  ServerReactor* Exchange(grpc::CallbackServerContext* context) override {
    auto hello = read_hello(*context);
    if (!hello.ok()) return new Refusal(*context, hello.status());
    auto link = std::make_shared<ServerLink>(hub_, context, *hello);
    if (!hub_->keep(link)) return new Refusal(*context, unavailable("the listener ends"));
    link->start(*hello, acceptor_);
    return link.get();
  }

 private:
  const std::shared_ptr<GrpcHub> hub_;
  const Acceptor acceptor_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_data_service(std::shared_ptr<GrpcHub> hub, Acceptor acceptor) {
  return std::make_unique<DataService>(std::move(hub), std::move(acceptor));
}

}  // namespace tutti
