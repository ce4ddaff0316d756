// What a transport shares with its links: the loop, the limits, the set of live links, and those
// whose handshake is incomplete.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "daemon/base/fair_queue.h"
#include "daemon/base/loop.h"
#include "daemon/transport/pending_frame.h"
#include "daemon/transport/transport.h"

namespace tutti {

class LinkCore;
using LinkSet = std::set<std::shared_ptr<LinkCore>>;

// Thread-safe, except for the half-open links, which belong to the loop's thread.
class TransportCore {
 public:
  TransportCore(Loop& loop, const LinkLimits& limits)
      : loop(loop), limits(limits), pending_frames(std::make_shared<PendingFrameCount>()) {}

  // Keeps `link` alive until remove(). Returns false once close_all() was called.
  bool add(std::shared_ptr<LinkCore> link);
  void remove(const std::shared_ptr<LinkCore>& link);
  LinkSet links();
  void close_all(const Status& cause);
  // Blocks until no link is left. Must not be called on the loop's thread.
  void wait_no_links();

  // Links whose diallers' proofs the acceptor has not verified yet, with their addresses. If they
  // are more than half_open_max, the oldest of the address that has most is closed.
  void add_half_open(const std::string& address, std::shared_ptr<LinkCore> link);
  void remove_half_open(const std::shared_ptr<LinkCore>& link);

  Loop& loop;
  const LinkLimits limits;
  const std::shared_ptr<PendingFrameCount> pending_frames;

 private:
  std::mutex mutex_;
  std::condition_variable removed_;
  bool closing_ = false;                            // Guarded by mutex_.
  LinkSet links_;                                   // Guarded by mutex_.
  FairQueue<std::shared_ptr<LinkCore>> half_open_;  // Loop thread only.
};

}  // namespace tutti
