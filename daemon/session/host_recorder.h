// The worker's side of a flight recorder (proto/recorder.h): makes its memory, tells its readers
// which groups there are, and records the operations among hosts.
//
// Loop thread only. What ranks record of themselves is not read here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/op_id.h"
#include "daemon/base/signature.h"
#include "daemon/base/status.h"
#include "daemon/trace/trace.h"

namespace tutti {

class Mapping;

// How an operation failed, and when.
struct FailedOperation {
  Status status;        // OK: none has failed.
  int64_t time_ms = 0;  // Since 1970.
  uint64_t after = 0;   // Operations of the host's ranks that had ended OK.
};

class HostRecorder {
 public:
  // `ranks`: the job's ranks on this host, by local rank.
  static Result<std::shared_ptr<HostRecorder>> make(std::span<const uint32_t> ranks,
                                                    uint32_t world_size, uint32_t epoch);
  // Use make().
  HostRecorder(Fd memory, std::shared_ptr<const Mapping> mapping, std::span<const uint32_t> ranks);

  // The memory. Kept until the recorder is gone.
  int descriptor() const { return memory_.get(); }
  // `local_ranks`: of the members on this host; `size`: of all members. Idempotent.
  void add_group(uint32_t area, uint32_t number, uint32_t size,
                 std::span<const uint32_t> local_ranks);

  // An operation of a group over several hosts: all ranks of this host have called it.
  void on_started(const EpochOp& op, const Signature& signature, const Strategies& strategies);
  void on_ended(const EpochOp& op, Code code);

  // An operation of ranks of this host has failed, before which `ended_ok` had ended OK.
  void on_failed(const Status& why, uint64_t ended_ok);
  // The newest that failed; where several did without one between them that ended OK, the first:
  // the others are its consequences.
  const FailedOperation& failure() const { return failure_; }

 private:
  struct Started {
    uint64_t index = 0;
    uint64_t at_ns = 0;
  };

  const Fd memory_;
  const std::shared_ptr<const Mapping> mapping_;
  const trace::RecorderView view_;
  std::map<uint32_t, uint32_t> area_of_;  // By the group's number.
  std::map<EpochOp, Started> started_;
  FailedOperation failure_;
};

}  // namespace tutti
