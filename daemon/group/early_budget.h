// Flow control for data sent to hosts that have not started its operation yet. Pure.
//
// A host stores the data of operations that it has not started, so its memory must be bounded. A
// sender may have up to a budget of bytes per receiver of operations that the receiver is not known
// to have started. It learns of the start from any data frame of the operation from that host, or
// from the answer to a WantStarted message, which it sends when the budget is exhausted and which
// is answered when the operation has started or ended. Operations known to have started need no
// budget. So an operation that all its hosts have started never waits for another one, in whatever
// order the hosts start them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "daemon/group/messages.h"

namespace tutti {

class EarlyBudget {
 public:
  EarlyBudget(size_t hosts, uint64_t budget_bytes) : budget_(budget_bytes), spent_(hosts) {}

  // ---- As the sender ----

  enum class Admission : uint8_t {
    granted,
    wait_and_ask,  // Send the host a WantStarted and wait for take_unblocked().
    wait,          // It has been asked already.
  };
  // Whether that many bytes of an operation that runs here may be sent to the host.
  Admission admit(int host, const EpochOp& op, uint64_t bytes) {
    Peer& peer = operations_[op][host];
    if (peer.started) return Admission::granted;
    if (spent_[static_cast<size_t>(host)] + bytes <= budget_) {
      spent_[static_cast<size_t>(host)] += bytes;
      peer.spent += bytes;
      return Admission::granted;
    }
    blocked_ = true;
    return std::exchange(peer.asked, true) ? Admission::wait : Admission::wait_and_ask;
  }
  // Undoes an admit() whose frame could not be sent.
  void refund(int host, const EpochOp& op, uint64_t bytes) {
    Peer& peer = operations_[op][host];
    if (peer.started) return;
    peer.spent -= bytes;
    spent_[static_cast<size_t>(host)] -= bytes;
  }
  // The host has started the operation, or drops its frames.
  void on_peer_started(int host, const EpochOp& op) {
    Peer& peer = operations_[op][host];
    peer.started = true;
    release(host, peer);
  }
  // The operation ended here, so every host uses or drops what was sent of it.
  void on_ended(const EpochOp& op) {
    waiters_.erase(op);
    auto ended = operations_.extract(op);
    if (ended.empty()) return;
    for (auto& [host, peer] : ended.mapped()) release(host, peer);
  }
  // Whether admit() may now grant what it refused. Resets itself.
  bool take_unblocked() { return std::exchange(unblocked_, false); }

  // ---- As the receiver ----

  // The host wants to know when this host has started the operation.
  void add_waiter(int host, const EpochOp& op) { waiters_[op].insert(host); }
  // Removes and returns the hosts to notify, once the operation has started or ended.
  std::set<int> take_waiters(const EpochOp& op) {
    const auto found = waiters_.extract(op);
    return found.empty() ? std::set<int>() : found.mapped();
  }
  size_t size() const { return operations_.size() + waiters_.size(); }

 private:
  // What is known of a receiver of one operation.
  struct Peer {
    bool started = false;
    bool asked = false;
    uint64_t spent = 0;
  };
  void release(int host, Peer& peer) {
    spent_[static_cast<size_t>(host)] -= std::exchange(peer.spent, 0);
    unblocked_ = std::exchange(blocked_, false) || unblocked_;
  }

  const uint64_t budget_;
  std::vector<uint64_t> spent_;  // By host.
  std::map<EpochOp, std::map<int, Peer>> operations_;
  std::map<EpochOp, std::set<int>> waiters_;
  bool blocked_ = false;
  bool unblocked_ = false;
};

}  // namespace tutti
