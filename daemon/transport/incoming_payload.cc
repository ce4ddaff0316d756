#include "daemon/transport/incoming_payload.h"

namespace tutti {

std::byte* IncomingPayload::place(std::optional<RecvBuffer::Hold>& hold) {
  if (buffer_ == nullptr && recv_buffer_ != nullptr) {
    hold.emplace(*recv_buffer_);
    if (hold->at() != nullptr) return hold->at();
  }
  if (buffer_ == nullptr) buffer_ = pool_->take(received_ + missing_);
  return buffer_.get();
}

Payload IncomingPayload::finish() {
  Payload payload;
  if (received_ == 0) return payload;
  payload.fragments = {
      {receive([this](const std::byte* end) { return end - received_; }), received_}};
  if (buffer_ != nullptr)
    payload.owner = std::move(buffer_);
  else
    payload.owner = std::move(recv_buffer_);
  return payload;
}

}  // namespace tutti
