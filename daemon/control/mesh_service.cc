#include "daemon/control/mesh_service.h"

#include "daemon/base/foreign_text.h"
#include "daemon/control/channel.h"
#include "daemon/control/stream_writer.h"
#include "daemon/membership/rules.h"

namespace tutti {
namespace {

// Each stream deletes itself when gRPC is done with it. It may be sent to until its reads end.
class AttendStream final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  AttendStream(grpc::CallbackServerContext& context, Coordinator& coordinator)
      : context_(context), coordinator_(coordinator) {
    StartSendInitialMetadata();  // Tells the worker that the stream is open.
    worker_ = coordinator_.attach({.send =
                                       [this](const v1::CoordinatorMessage& message) {
                                         if (!writer_.send(message)) context_.TryCancel();
                                       },
                                   .close = [this] { context_.TryCancel(); }});
    if (worker_ == 0) context_.TryCancel();  // It was deposed meanwhile.
    StartRead(&in_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      receive();
      StartRead(&in_);
      return;
    }
    coordinator_.detach(worker_);
    if (writer_.close()) Finish(grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override {
    if (writer_.write_done(ok)) Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

  void receive() {
    if (!in_.has_part()) return receive(in_);
    parts_ += in_.part();
    if (parts_.size() > kMessageBytesMax) return context_.TryCancel();
    if (!in_.part_ends()) return;
    v1::WorkerMessage whole;
    if (whole.ParseFromString(std::exchange(parts_, {}))) receive(whole);
  }
  void receive(v1::WorkerMessage& message) {
    clean_texts(message);
    coordinator_.receive(worker_, message);
  }

  grpc::CallbackServerContext& context_;
  Coordinator& coordinator_;
  Membership::Worker worker_ = 0;
  v1::WorkerMessage in_;
  std::string parts_;  // Of a long message, so far.
  StreamWriter<AttendStream, v1::CoordinatorMessage> writer_{*this};
};

class EnlistStream final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentAnswer> {
 public:
  EnlistStream(grpc::CallbackServerContext& context, Coordinator& coordinator, const ServerTls& tls)
      : context_(context),
        coordinator_(coordinator),
        tls_(tls),
        caller_(peer_names(*context.auth_context())) {
    StartSendInitialMetadata();
    agent_ = coordinator_.attach_agent([this] { context_.TryCancel(); });
    if (agent_ == 0) context_.TryCancel();  // It was deposed meanwhile.
    StartRead(&in_);
  }

 private:
  void OnReadDone(bool ok) override {
    const Status named = ok ? check_host() : Status();
    if (!named.ok()) coordinator_.agent_refused(caller_address(context_), named);
    if (ok && named.ok()) {
      clean_texts(in_);
      coordinator_.enlist(agent_, in_);
      StartRead(&in_);
      return;
    }
    Finish(to_grpc(named));
  }
  // Only now it is certain whether the agent ended the stream, or the stream broke.
  void OnDone() override {
    coordinator_.detach_agent(agent_, !context_.IsCancelled());
    delete this;
  }

  Status check_host() const {
    const Status named = check_name("the host's name", in_.host(), kHostNameBytesMax);
    return named.ok() ? check_host_name(tls_, caller_, in_.host()) : named;
  }

  grpc::CallbackServerContext& context_;
  Coordinator& coordinator_;
  const ServerTls& tls_;
  const std::optional<CertificateNames> caller_;
  uint64_t agent_ = 0;
  v1::AgentMessage in_;
};

template <class In, class Out>
class RefusedStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  explicit RefusedStream(const grpc::Status& why) { this->Finish(why); }

 private:
  void OnDone() override { delete this; }
};

grpc::Status coordinates_not(const Coordinator& coordinator) {
  return {grpc::StatusCode::FAILED_PRECONDITION,
          "this agent does not coordinate; " + coordinator.describe_leader()};
}

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* MeshService::Attend(
    grpc::CallbackServerContext* context) {
  if (!coordinator_.leads())
    return new RefusedStream<v1::WorkerMessage, v1::CoordinatorMessage>(
        coordinates_not(coordinator_));
  const Result<v1::Pass> pass = shown_pass(*context);
  const Status shown = pass.ok() ? coordinator_.check(*pass) : pass.status();
  if (!shown.ok()) {
    coordinator_.worker_refused(caller_address(*context), pass.ok() ? *pass : v1::Pass(), shown);
    return new RefusedStream<v1::WorkerMessage, v1::CoordinatorMessage>(to_grpc(shown));
  }
  return new AttendStream(*context, coordinator_);
}

grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentAnswer>* MeshService::Enlist(
    grpc::CallbackServerContext* context) {
  using Refused = RefusedStream<v1::AgentMessage, v1::AgentAnswer>;
  if (!coordinator_.leads()) return new Refused(coordinates_not(coordinator_));
  if (const Status allowed = check_agent(*context, credentials_, tls_); !allowed.ok()) {
    coordinator_.agent_refused(caller_address(*context), allowed);
    return new Refused(to_grpc(allowed));
  }
  return new EnlistStream(*context, coordinator_, tls_);
}

}  // namespace tutti
