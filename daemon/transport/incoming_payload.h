// A payload that is being received: straight into its final memory, the handler's RecvBuffer or a
// pooled buffer once that is withdrawn.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "daemon/transport/buffer_pool.h"
#include "daemon/transport/transport.h"

namespace tutti {

// One thread at a time.
class IncomingPayload {
 public:
  // `recv_buffer` may be null.
  IncomingPayload(std::shared_ptr<BufferPool> pool, size_t bytes,
                  std::shared_ptr<RecvBuffer> recv_buffer)
      : pool_(std::move(pool)), recv_buffer_(std::move(recv_buffer)), missing_(bytes) {}

  size_t missing() const { return missing_; }
  // Returns what `write(to)` returns; at `to` is memory for all that is missing, which is not
  // withdrawn meanwhile.
  template <class Write>
  auto receive(Write write) {
    std::optional<RecvBuffer::Hold> hold;
    return write(place(hold) + received_);
  }
  void note_received(size_t bytes) {
    received_ += bytes;
    missing_ -= bytes;
  }
  // The whole payload. A buffer that was withdrawn since its last byte is replaced.
  Payload finish();

 private:
  std::byte* place(std::optional<RecvBuffer::Hold>& hold);

  std::shared_ptr<BufferPool> pool_;
  std::shared_ptr<RecvBuffer> recv_buffer_;
  BufferPool::Buffer buffer_;  // Null while recv_buffer_ is used.
  size_t received_ = 0;
  size_t missing_;
};

}  // namespace tutti
