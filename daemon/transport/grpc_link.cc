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

void GrpcLink::stop_writing() {
  const std::lock_guard lock(mutex_);
  write_stopped_ = true;
  if (!writing_) finish_locked();
}

void GrpcLink::close_wire() {
  {
    const std::lock_guard lock(mutex_);
    cancel();
  }
  stop_writing();
}

void GrpcLink::on_stream_closed(Status cause) {
  {
    const std::lock_guard lock(mutex_);
    outgoing_.Clear();
  }
  on_wire_closed(std::move(cause));
}

// ---- Writing ----

void GrpcLink::wake_writer_locked() {
  if (writing_ || write_stopped_) return;
  if (std::unique_ptr<PendingFrame> next = next_frame_locked()) {
    outgoing_ = pack_frame(std::move(next), transport_->loop);
    writing_ = true;
    start_write(&outgoing_);
  } else if (all_sent_locked()) {
    finish_locked();
  }
}

void GrpcLink::on_written(bool ok) {
  grpc::ByteBuffer written;
  const std::lock_guard lock(mutex_);
  written.Swap(&outgoing_);
  writing_ = false;
  write_stopped_ = write_stopped_ || !ok;
  write_stopped_ ? finish_locked() : wake_writer_locked();
}

// ---- Reading ----

void GrpcLink::on_read(bool ok) {
  if (!ok) return stop_writing();
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  receive(message);
  message.Clear();
  if (pause_reading_if_full()) return;
  const std::lock_guard lock(mutex_);
  // A dialler keeps reading while the link closes: gRPC delivers the status after the last message.
  start_read(&incoming_);
}

void GrpcLink::wake_reader_locked() {
  if (!finishing_) start_read(&incoming_);
}

void GrpcLink::receive(const grpc::ByteBuffer& message) {
  auto frame = unpack_frame(message);
  const Status good =
      frame.ok() ? checker_.check(frame->header, frame->payload_bytes) : frame.status();
  if (!good.ok()) return close_on_bad_frame(good);
  auto slices = std::make_shared<std::vector<grpc::Slice>>(std::move(frame->slices));
  deliver({frame->header, {std::move(frame->fragments), std::move(slices)}});
}

}  // namespace tutti
