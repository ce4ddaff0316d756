// Collects outgoing control messages, so that those for one host are sent in one frame, in order.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "proto/group.pb.h"

namespace tutti {

class ControlBatcher {
 public:
  using Send = std::function<void(int host, const v1::ControlBatch& batch)>;
  // `bytes_max`: of one frame.
  ControlBatcher(size_t hosts, uint64_t bytes_max, Send send)
      : bytes_max_(bytes_max), send_(std::move(send)), waiting_(hosts) {}

  void add(int host, v1::Control control) {
    Waiting& waiting = waiting_[static_cast<size_t>(host)];
    const uint64_t bytes = control.ByteSizeLong() + kMessageExtraBytes;
    if (waiting.bytes + bytes > bytes_max_) flush(host);
    *waiting.batch.add_controls() = std::move(control);
    waiting.bytes += bytes;
    any_ = true;
  }
  // Sends everything.
  void flush() {
    if (!std::exchange(any_, false)) return;
    for (int host = 0; host < static_cast<int>(waiting_.size()); ++host) flush(host);
  }

 private:
  static constexpr uint64_t kMessageExtraBytes = 6;  // Protobuf's tag and length, at most.

  struct Waiting {
    v1::ControlBatch batch;
    uint64_t bytes = 0;
  };
  void flush(int host) {
    const Waiting waiting = std::exchange(waiting_[static_cast<size_t>(host)], {});
    if (waiting.batch.controls_size() > 0) send_(host, waiting.batch);
  }

  const uint64_t bytes_max_;
  const Send send_;
  std::vector<Waiting> waiting_;  // By host.
  bool any_ = false;
};

}  // namespace tutti
