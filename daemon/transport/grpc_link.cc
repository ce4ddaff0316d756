#include "daemon/transport/grpc_link.h"

#include <utility>

#include "daemon/transport/grpc_message.h"

namespace tutti {

std::string metadata_of(const GrpcMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

// ---- Beginning and end ----

void GrpcLink::finish_locked() {
  if (!std::exchange(finishing_, true)) finish_stream();
}

void GrpcLink::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  if (!writing_) finish_locked();
}

void GrpcLink::cut() {
  {
    const std::lock_guard lock(mutex_);
    cancel();
  }
  give_up();
}

void GrpcLink::over(Status cause) {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.Clear();
  }
  finished(std::move(cause));
}

// ---- Writing ----

void GrpcLink::wake_writer_locked() {
  if (writing_ || given_up_) return;
  if (std::unique_ptr<Borrow> next = next_locked()) {
    outgoing_ = pack_frame(std::move(next), hub_->loop);
    writing_ = true;
    start_write(&outgoing_);
  } else if (said_all_locked()) {
    finish_locked();
  }
}

void GrpcLink::was_written(bool ok) {
  grpc::ByteBuffer written;
  const std::lock_guard lock(mutex_);
  written.Swap(&outgoing_);
  writing_ = false;
  given_up_ = given_up_ || !ok;
  given_up_ ? finish_locked() : wake_writer_locked();
}

// ---- Reading ----

void GrpcLink::was_read(bool ok) {
  if (!ok) return give_up();
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  receive(message);
  message.Clear();
  if (holds_back()) return;
  const std::lock_guard lock(mutex_);
  // A dialler reads on while the link ends, for gRPC gives it the status behind the last message.
  start_read(&incoming_);
}

void GrpcLink::wake_reader_locked() {
  if (!finishing_) start_read(&incoming_);
}

void GrpcLink::receive(const grpc::ByteBuffer& message) {
  auto frame = unpack_frame(message);
  const Status good =
      frame.ok() ? checker_.check(frame->header, frame->payload_bytes) : frame.status();
  if (!good.ok()) return refuse_frame(good);
  deliver(frame->header, std::move(frame->fragments), std::move(frame->slices));
}

}  // namespace tutti
