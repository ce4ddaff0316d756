// A link over a gRPC stream, with at most one write and one read in flight. grpc_client.cc and
// grpc_server.cc derive the two sides and add their calls into gRPC.
//
// HTTP/2 pings (grpc_options.cc) detect a silent peer, because they also see a message that is
// still being received. The link's own pings only keep proxies from ending an idle stream.
//
// Locks: gRPC is called with mutex_ held. It never calls a reaction from within such a call, and
// frames it drops there are released on the loop, so no code of the caller runs under the lock.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

#include "daemon/transport/link_core.h"

namespace tutti {

// The method that data links call, and the metadata keys of proto/handshake.h's messages.
inline constexpr char kExchangeMethod[] = "/tutti.v1.Data/Exchange";
inline constexpr char kHelloKey[] = "tutti-hello-bin";
inline constexpr char kChallengeKey[] = "tutti-challenge-bin";  // In the first call's trailers.
inline constexpr char kProofKey[] = "tutti-proof-bin";          // Behind the challenge.
inline constexpr char kAnswerKey[] = "tutti-answer-bin";        // In the trailers if it refuses.

using GrpcMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;
// Returns "" if the key is absent.
std::string metadata_of(const GrpcMetadata& metadata, const char* key);

class GrpcLink : public LinkCore {
 protected:
  using LinkCore::LinkCore;

  // ---- Each side's calls into gRPC; mutex_ is held ----

  virtual void start_read(grpc::ByteBuffer* message) = 0;
  virtual void start_write(const grpc::ByteBuffer* message) = 0;
  // Ends the stream after what was written. Called once.
  virtual void finish_stream() = 0;
  // Cancels the call; for when finish_stream() would not get through.
  virtual void cancel() = 0;

  // ---- Called by each side's reactions; mutex_ is not held ----

  void on_read(bool ok);
  void on_written(bool ok);
  // Ends the stream after the current write, dropping the rest of the queue.
  void stop_writing();

  void finish_locked();
  // Called after gRPC's last reaction.
  void on_stream_closed(Status cause);
  void close_wire() override;
  bool is_finishing() const { return finishing_; }
  // For a dialler that begins again on another stream.
  void restart_locked() { write_stopped_ = finishing_ = false; }

 private:
  void wake_writer_locked() override;
  void wake_reader_locked() override;
  bool peer_is_alive() const override { return true; }
  void receive(const grpc::ByteBuffer& message);

  FrameChecker checker_{transport_->limits.frame_bytes_max};  // Used by the read reaction only.
  grpc::ByteBuffer incoming_;                                 // The same.
  // Guarded by mutex_.
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;        // gRPC has outgoing_.
  bool write_stopped_ = false;  // Nothing more is written.
  bool finishing_ = false;      // finish_stream() was called.
};

// Dials `endpoint` (endpoint.h) on a channel of its own. `transport` keeps the link alive until it
// is closed.
std::shared_ptr<Link> dial_grpc(std::shared_ptr<TransportCore> transport,
                                const std::string& endpoint, const LinkHello& hello,
                                std::shared_ptr<LinkHandler> handler);

// Returns the Data service of proto/mesh.proto. It must outlive the server it is registered with.
std::unique_ptr<grpc::Service> make_data_service(std::shared_ptr<TransportCore> transport,
                                                 Acceptor acceptor);

}  // namespace tutti
