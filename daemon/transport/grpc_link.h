// What both ends of a gRPC link share: the queue, the one write and the one read in flight, and the
// link's end. grpc_client.cc and grpc_server.cc add their side's calls into gRPC.
//
// The life of a link:  waiting -> open -> ending -> done. It ends once, by end() (this side closes
// or refuses a frame) or by break_off() (the stream failed under it), whichever is first. Then
// nothing is written but the goodbye, and when gRPC is done with the stream (done(), its last
// call), the handler learns the cause.
//
// Locks: gRPC is called with mutex_ held. It never calls a reaction from within such a call, and
// frames it drops there go to the courier; so nothing of the caller's runs under the lock.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "daemon/transport/frame_codec.h"
#include "daemon/transport/grpc_message.h"
#include "daemon/transport/lending.h"
#include "daemon/transport/mailbox.h"
#include "daemon/transport/transport.h"

namespace tutti {

class GrpcLink;

// The method the data links call, and the metadata that explain a stream's start and end.
inline constexpr char kExchangeMethod[] = "/tutti.v1.Data/Exchange";
inline constexpr char kJobKey[] = "tutti-job-bin";
inline constexpr char kEpochKey[] = "tutti-epoch";
inline constexpr char kHostKey[] = "tutti-host-bin";
inline constexpr char kSecretKey[] = "tutti-secret-bin";
// In the trailers when the listener ended the stream in words of its own, not gRPC's.
inline constexpr char kCauseKey[] = "tutti-cause";

// The part of a transport that its links hold on to. Any thread.
class GrpcHub {
 public:
  explicit GrpcHub(const LinkLimits& limits)
      : limits(limits), lending(std::make_shared<Lending>()) {}

  // Keeps `link` alive until forget(). False once close_all() was called.
  bool keep(std::shared_ptr<GrpcLink> link);
  void forget(const std::shared_ptr<GrpcLink>& link);
  // Closes every link and waits until their handlers know.
  void close_all(const Status& cause);

  const LinkLimits limits;
  const std::shared_ptr<Lending> lending;
  Mailbox courier;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;  // Guarded by mutex_, as is links_.
  std::set<std::shared_ptr<GrpcLink>> links_;
};

class GrpcLink : public Link, public std::enable_shared_from_this<GrpcLink> {
 public:
  Status send(Outgoing frame) override;
  void close(Status cause) override;

 protected:
  enum class State { waiting, open, ending, done };
  // How a link ends: with a peer to tell, before there was one, or by the stream's own failure.
  enum class Ending { told, unheard, broken };

  GrpcLink(std::shared_ptr<GrpcHub> hub, std::string peer);

  // A side's calls into gRPC; mutex_ is held.
  virtual void start_read(grpc::ByteBuffer* message) = 0;
  virtual void start_write(const grpc::ByteBuffer* message) = 0;
  // Ends the stream, once; nothing but a dialler's reads is started afterwards.
  virtual void finish(const Status& cause, Ending ending) = 0;
  // Cuts the stream without a word, where finish() does not come through.
  virtual void cancel() = 0;
  // Lets go of whatever gRPC gave for the stream.
  virtual void drop_stream() = 0;

  // A side's reactions call these, mutex_ not held.
  void opened();
  void was_read(bool ok);
  void was_written(bool ok);
  void break_off();
  // `cause` where nothing better is known; the last call.
  void done(Status cause);
  // Closes with `mine` here and `theirs` at the peer.
  void end(Status mine, Status theirs);

  void set_handler(std::shared_ptr<LinkHandler> handler);
  // Cuts the link if it has not come further by then: opened, or ended.
  void set_alarm(int delay_ms);

  const std::shared_ptr<GrpcHub> hub_;
  const std::string peer_;  // For messages: "host b at 10.0.0.2:7000".
  std::mutex mutex_;

 private:
  void receive(const grpc::ByteBuffer& message);
  Status check(const Frame& frame);
  void take(Frame frame);
  void dropped(size_t bytes);
  void expired();
  void pump_locked();
  void drop_queue_locked();
  void resume_locked();
  void stop_locked();
  void finish_locked();

  const std::shared_ptr<SendBudget> budget_;
  grpc::ByteBuffer incoming_;  // gRPC's, or the one reaction's to a read.

  // Guarded by mutex_.
  State state_ = State::waiting;
  std::shared_ptr<LinkHandler> handler_;
  FrameChecker checker_;
  std::deque<std::unique_ptr<Borrow>> queue_;
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;   // gRPC has outgoing_.
  size_t kept_bytes_ = 0;  // Of delivered payloads that the handler has not dropped.
  bool paused_ = false;    // No read is under way until some are.
  bool finished_ = false;  // finish() was called.
  Ending ending_ = Ending::broken;
  std::optional<Status> cause_;
  Status their_cause_;

 protected:
  FrameSealer sealer_;  // Guarded by mutex_.
};

}  // namespace tutti
