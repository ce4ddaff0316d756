// Who takes part: one epoch of a job, as seen by the worker of one host. Loop thread only.
//
// THE LIFE OF AN OPERATION HERE. A local rank's call gets the next sequence number of its group and
// is announced to the leader, the worker of rank 0's host. The leader compares the ranks'
// signatures (matcher.h) and answers every host with one verdict: start, with the strategies to
// use, or fail, with one status for all. On start, the cached plan's moves and the ranks' tensors
// go to the engine; its end completes every local call. A group of one host's ranks alone is folded
// by them.
//
// MANY SMALL ONES. What is said to one host in one turn of the loop travels in one frame, and word
// of a small operation may wait while an older one has no verdict (outbox.h). Small all_reduces
// that start together run as one (fuse.h).
//
// A rank that is gone fails the operations it had not reached, and no others. A host, worker or
// link that is lost, or an operation that passes its deadline while data moves, ends the epoch:
// once, with the cause, for everyone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/engine/engine.h"
#include "daemon/group/links.h"
#include "daemon/group/signature.h"
#include "daemon/group/tuner.h"
#include "daemon/transport/transport.h"

namespace tutti {

// One rank's part in one operation.
struct Call {
  Signature signature;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint32_t timeout_ms = 0;                  // 0: WorldOptions::op_timeout_ms.
  Status invalid;                           // Not OK: refused, for everyone.
  std::shared_ptr<const void> memory;       // Of `in` and `out`.
  std::function<void(const Status&)> done;  // Called once, perhaps from inside submit().
  uint64_t number = 0;                      // Its place in its rank's calls on the group.
  bool ranks_only = false;                  // `in` and `out` are nullptr: only its ranks can fold.
  uint32_t waited_ms = 0;                   // Of `timeout_ms`, before it came.
};

struct WorldOptions {
  uint32_t op_timeout_ms = 30'000;
  uint64_t slice_bytes = uint64_t{1} << 20;
  // Small all_reduces. See settings.cc.
  uint64_t fuse_bytes_max = uint64_t{64} << 10;
  uint32_t fuse_ops_max = 256;
  uint32_t coalesce_us = 1000;
  bool auto_tries_all = false;  // Also where the bits of a result depend on the strategy.
};

struct WorldStats {
  uint64_t operations = 0;  // Calls of local ranks that ended OK.
  uint64_t failures = 0;    // ... with an error.
  uint64_t bytes = 0;       // Of the tensors of those that ended OK.
  uint64_t sent_bytes = 0;
  uint64_t sent_frames = 0;
  uint64_t received_bytes = 0;
};

// Of one epoch; subgroup() refuses more, RESOURCE_EXHAUSTED.
inline constexpr size_t kGroupsMost = 4096;

class World {
 public:
  virtual ~World() = default;
  // Group 0 is the whole job; its ranks are the job's.
  virtual void submit(int rank, uint32_t group, Call call) = 0;
  // The group of these ranks of group 0, in this order, as seen by local rank `rank`, which must be
  // one of them. Ranks that ask for the same list the same number of times get the same group.
  // INVALID_ARGUMENT.
  virtual Result<uint32_t> subgroup(int rank, const std::vector<uint32_t>& ranks) = 0;
  // A local rank takes part no more; OK: on purpose.
  virtual void leave(int rank, const Status& cause) = 0;
  virtual void abort(const Status& cause) = 0;
  virtual void set_strategy(const Strategies& strategies) = 0;

  // A link that `host` dialled and that showed this epoch's secret.
  virtual void adopt(const std::string& host, std::shared_ptr<Link> link,
                     std::shared_ptr<LoopHandler> handler) = 0;
  // The engine's way out, for keys of this epoch.
  virtual Status send(const OpKey& key, int rank, Outgoing frame) = 0;

  virtual const Roster& roster() const = 0;
  // Other hosts may still need this one: for its verdicts, or for what is under way.
  virtual bool needed() const = 0;
  // Every rank of the job is gone: nothing will come any more.
  virtual bool over() const = 0;
  // Some rank is gone or the epoch was aborted: its ranks may want to form the next one.
  virtual bool broken() const = 0;
  virtual const Status& cause() const = 0;  // Of the abort; OK: none.
  // The ranks that are gone, in the order in which this host learned of it.
  virtual const std::vector<int>& departures() const = 0;
  virtual WorldStats stats() const = 0;
};

struct WorldParts {
  Loop& loop;
  Transport& transport;
  Engine& engine;
  std::shared_ptr<Tuner> tuner = nullptr;  // Of all epochs of the job. Null: one of its own.
  // Lets the ranks of this host fold an operation of a group that has no others. False: they
  // cannot. Null: they never do.
  std::function<bool(uint32_t group, uint64_t number)> fold = nullptr;
  // The epoch is over, whatever ended it. May be null.
  std::function<void(const Status& cause)> on_over = nullptr;
};
// `host` must be in the roster.
std::unique_ptr<World> make_world(const WorldParts& parts, Roster roster, const std::string& host,
                                  const WorldOptions& options);

}  // namespace tutti
