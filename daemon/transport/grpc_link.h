// The wire of a gRPC link: a stream, with one write and one read in flight at a time.
// grpc_client.cc and grpc_server.cc add their side's calls into gRPC.
//
// A silent peer is noticed by HTTP/2's own pings (grpc_options.cc), which count the bytes of a
// message that is still on its way; the link's pings keep proxies from ending an idle stream.
//
// Locks: gRPC is called with mutex_ held. It never calls a reaction from within such a call, and
// frames it drops there go to the loop; so nothing of the caller's runs under the lock.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

#include "daemon/transport/link_core.h"

namespace tutti {

// The method the data links call, and the metadata of proto/handshake.h's messages.
inline constexpr char kExchangeMethod[] = "/tutti.v1.Data/Exchange";
inline constexpr char kHelloKey[] = "tutti-hello-bin";
inline constexpr char kChallengeKey[] = "tutti-challenge-bin";  // Of the first call's trailers.
inline constexpr char kProofKey[] = "tutti-proof-bin";          // Behind the challenge.
inline constexpr char kAnswerKey[] = "tutti-answer-bin";        // A refusal's is in the trailers.

using GrpcMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;
// "" where there is none.
std::string metadata_of(const GrpcMetadata& metadata, const char* key);

class GrpcLink : public LinkCore {
 protected:
  using LinkCore::LinkCore;

  // ---- A side's calls into gRPC; mutex_ is held ----

  virtual void start_read(grpc::ByteBuffer* message) = 0;
  virtual void start_write(const grpc::ByteBuffer* message) = 0;
  // Ends the stream behind what was written, once.
  virtual void finish_stream() = 0;
  // Cuts the stream without a word, where finish_stream() does not come through.
  virtual void cancel() = 0;

  // ---- A side's reactions call these, mutex_ not held ----

  void was_read(bool ok);
  void was_written(bool ok);
  // Gives up the stream: behind what is being written, and without the rest.
  void give_up();

  void finish_locked();
  // After gRPC's last call: no reaction is left.
  void over(Status cause);
  void cut() override;
  bool is_finishing() const { return finishing_; }

 private:
  void wake_writer_locked() override;
  void wake_reader_locked() override;
  bool shows_life() const override { return true; }
  void receive(const grpc::ByteBuffer& message);

  FrameChecker checker_{hub_->limits.frame_bytes_max};  // The reading reaction's, as is incoming_.
  grpc::ByteBuffer incoming_;
  // Guarded by mutex_.
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;    // gRPC has outgoing_.
  bool given_up_ = false;   // Nothing more is written.
  bool finishing_ = false;  // finish_stream() was called.
};

// Dials on a channel of its own. `hub` keeps the link until its end.
std::shared_ptr<Link> dial_grpc(std::shared_ptr<LinkHub> hub, const std::string& address,
                                const LinkHello& hello, std::shared_ptr<LinkHandler> handler);

// The Data service of proto/mesh.proto, to be registered with a server; outlives it.
std::unique_ptr<grpc::Service> make_data_service(std::shared_ptr<LinkHub> hub, Acceptor acceptor);

}  // namespace tutti
