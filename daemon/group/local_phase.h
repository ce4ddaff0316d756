// What an epoch needs of the ranks of its own host: their board, where calls come from and end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/base/op_id.h"
#include "daemon/base/signature.h"
#include "daemon/base/status.h"

namespace tutti {

class FoldHelpers;  // daemon/engine/engine.h.

// Loop thread only. Does nothing by itself, as on a host whose ranks make no call.
class LocalPhase {
 public:
  virtual ~LocalPhase() = default;
  // Ends the operation, in which this host's ranks were submitted, for all of them.
  virtual void complete(const EpochOp& /*op*/, const Status& /*status*/) {}
  // A window of so many bytes for results that ranks here have in common; null: there is none.
  // Called before the first result.
  virtual std::byte* result_window(const EpochOp& /*op*/, uint64_t /*bytes*/) { return nullptr; }
  // The first `blocks` of the board, or rows, of the operation's windowed tensors hold results and
  // may be overwritten.
  virtual void release_window(const EpochOp& /*op*/, uint64_t /*blocks*/) {}
  // Submits, from inside, all calls of the operation that local ranks have made and that were not
  // submitted yet.
  virtual void collect_requests(const EpochOp& /*op*/) {}
  // Lets the ranks fold an operation of a group without other hosts; they then end their calls
  // themselves. False: they cannot.
  virtual bool let_ranks_fold(const EpochOp& /*op*/) { return false; }
  // Ranks that fold for an operation among hosts, all of whose local calls were submitted. Null:
  // none.
  virtual std::shared_ptr<FoldHelpers> helpers_of(const EpochOp& /*op*/) { return nullptr; }
  // An operation among hosts begins on this one, with the strategies in force, and ends.
  virtual void on_started(const EpochOp& /*op*/, const Signature& /*signature*/,
                          const Strategies& /*strategies*/) {}
  virtual void on_ended(const EpochOp& /*op*/, Code /*code*/) {}
  // The epoch was aborted, here or elsewhere. Called once, possibly from inside another call,
  // before the ranks' calls end.
  virtual void on_over(const Status& /*cause*/) {}
};

}  // namespace tutti
