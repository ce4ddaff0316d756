// The listening side of gRPC links: the Data service and its challenges.
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "daemon/base/fair_queue.h"
#include "daemon/transport/grpc_link.h"
#include "daemon/transport/handshake.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {
namespace {

using ServerReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

grpc::Status grpc_status(const Status& cause) {
  return {static_cast<grpc::StatusCode>(cause.code()), cause.message()};
}

// Ends a stream that does not become a link, without reading from it. Deletes itself.
class RejectedStream final : public ServerReactor {
 public:
  RejectedStream(grpc::CallbackServerContext& context, const std::string& challenge) {
    context.AddTrailingMetadata(kChallengeKey, challenge);
    Finish({grpc::StatusCode::UNAUTHENTICATED, "prove that you know the job's secret"});
  }
  RejectedStream(grpc::CallbackServerContext& context, const Status& refusal) {
    context.AddTrailingMetadata(kAnswerKey, write_refusal(refusal));
    Finish(grpc_status(refusal));
  }
  void OnDone() override { delete this; }
};

// "10.0.0.2" of "ipv4:10.0.0.2:7000", for links of the same machine to be counted.
std::string address_of(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

// Issued challenges. Each is valid once and for connect_timeout_ms; of more than half_open_max the
// oldest of the address that has most is dropped. Thread-safe.
class Challenges {
 public:
  explicit Challenges(const LinkLimits& limits) : limits_(limits) {}

  std::string issue(const std::string& hello, const std::string& address) {
    const std::string challenge = write_challenge(limits_);
    const TimePoint until = Clock::now() + Millis(limits_.connect_timeout_ms);
    const std::lock_guard lock(mutex_);
    issued_.push(address, {hello + challenge, until});
    (void)issued_.pop_beyond(limits_.half_open_max);
    return challenge;
  }
  bool redeem(const std::string& transcript) {
    const TimePoint now = Clock::now();
    const std::lock_guard lock(mutex_);
    while (issued_.remove_if([&](const Issued& each) { return each.until < now; })) continue;
    return issued_.remove_if([&](const Issued& each) { return each.transcript == transcript; })
        .has_value();
  }

 private:
  struct Issued {
    std::string transcript;
    TimePoint until;
  };
  const LinkLimits limits_;
  std::mutex mutex_;
  FairQueue<Issued> issued_;  // Guarded by mutex_.
};

class ServerLink final : public GrpcLink, public ServerReactor {
 public:
  ServerLink(std::shared_ptr<TransportCore> transport, grpc::CallbackServerContext* context,
             const std::string& host)
      : GrpcLink(std::move(transport), "host " + host + " at " + context->peer(), nullptr),
        context_(context) {}

 private:
  void start_read(grpc::ByteBuffer* message) override {
    if (!is_finishing()) StartRead(message);
  }
  void start_write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void finish_stream() override { Finish(end_); }
  void cancel() override {
    if (context_ != nullptr) context_->TryCancel();
  }
  void welcome(const std::string& answer, const LinkTerms& terms) override {
    {
      const std::lock_guard lock(mutex_);
      if (is_finishing()) return;
      context_->AddInitialMetadata(kAnswerKey, answer);
      StartSendInitialMetadata();
    }
    (void)set_open(terms.silence_ms);
  }
  void refuse(const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (is_finishing()) return;
    end_ = grpc_status(why);
    context_->AddTrailingMetadata(kAnswerKey, write_refusal(why));
    finish_locked();
  }

  void OnReadDone(bool ok) override { on_read(ok); }
  void OnWriteDone(bool ok) override { on_written(ok); }
  void OnCancel() override { post_fail(broken()); }
  void OnDone() override {
    {
      const std::lock_guard lock(mutex_);
      context_ = nullptr;
    }
    post([this, self = shared_from_this()] { on_stream_closed(broken()); });
  }
  Status broken() const { return unavailable("the link from " + peer_ + " broke"); }

  // Guarded by mutex_.
  grpc::CallbackServerContext* context_;
  grpc::Status end_{grpc::StatusCode::UNAVAILABLE, "the link has ended"};
};

class DataService : public v1::Data::WithRawCallbackMethod_Exchange<v1::Data::Service> {
 public:
  DataService(std::shared_ptr<TransportCore> transport, Acceptor acceptor)
      : transport_(std::move(transport)),
        acceptor_(std::move(acceptor)),
        challenges_(transport_->limits) {}

  // Reads no message: only an accepted link does.
  ServerReactor* Exchange(grpc::CallbackServerContext* context) override {
    const std::string hello = metadata_of(context->client_metadata(), kHelloKey);
    const std::string proof = metadata_of(context->client_metadata(), kProofKey);
    const Result<size_t> whole = hello_size(hello);
    if (!whole.ok() || *whole != hello.size())
      return new RejectedStream(*context, invalid_argument("a data link begins with its hello"));
    if (proof.empty())
      return new RejectedStream(*context, challenges_.issue(hello, address_of(context->peer())));
    const std::string transcript = hello + proof.substr(0, sizeof(LinkChallenge));
    if (proof.size() != sizeof(LinkChallenge) + sizeof(LinkProof) ||
        !challenges_.redeem(transcript))
      return new RejectedStream(
          *context, unavailable("the challenge is not, or no longer, valid: dial again"));
    const auto link = std::make_shared<ServerLink>(transport_, context, host_of(transcript));
    if (!transport_->add(link))
      return new RejectedStream(*context, unavailable("the listener ends"));
    transport_->loop.post([link, acceptor = acceptor_, transcript,
                           address = address_of(context->peer()),
                           proof = from_bytes<LinkProof>(proof.substr(sizeof(LinkChallenge)))] {
      link->offer_to(acceptor, transcript, proof, address);
    });
    return link.get();
  }

 private:
  const std::shared_ptr<TransportCore> transport_;
  const Acceptor acceptor_;
  Challenges challenges_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_data_service(std::shared_ptr<TransportCore> transport,
                                                 Acceptor acceptor) {
  return std::make_unique<DataService>(std::move(transport), std::move(acceptor));
}

}  // namespace tutti
