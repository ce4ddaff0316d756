// Control messages on their way out: those for one host that come up in one turn of the loop travel
// in one frame, and those that need not hurry wait a little for others. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/base/loop.h"
#include "proto/group.pb.h"

namespace tutti {

// When a message leaves, at the latest. Messages for one host keep their order: with one that
// leaves, all before it do.
enum class Hurry {
  now,
  this_turn,  // At the end of the loop's turn.
  budget,     // When the latency budget is spent.
};

class Outbox {
 public:
  using Send = std::function<void(int host, const v1::ControlBatch& batch)>;

  // Of many messages a frame holds no more than `bytes_max`.
  Outbox(Loop& loop, size_t hosts, std::chrono::microseconds budget, uint64_t bytes_max, Send send);
  ~Outbox();

  void add(int host, const v1::Control& control, Hurry hurry);
  void flush();
  void flush_this_turn();

 private:
  void flush(int host);
  void flush_at_budget();

  Loop& loop_;
  const std::chrono::microseconds budget_;
  const uint64_t bytes_max_;
  const Send send_;
  struct Waiting {
    v1::ControlBatch batch;
    uint64_t bytes = 0;
  };
  std::vector<Waiting> waiting_;  // By host.
  bool posted_ = false;
  Loop::TimerId timer_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tutti
