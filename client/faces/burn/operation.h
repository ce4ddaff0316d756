// One operation of the peers of a process, which have met, and of the other processes.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "client/faces/base/base.h"
#include "client/faces/burn/collective_config.h"
#include "client/tutti.h"

namespace tutti::burn {

using namespace faces;

using PeerId = uint32_t;
using ReduceOperation = ReduceOp;

// One peer's call: what it asks for, and what it gets.
struct Call {
  enum class Kind { all_reduce, reduce, broadcast };
  PeerId peer = 0;
  Kind kind = Kind::all_reduce;
  ReduceOperation op = ReduceOperation::sum;
  PeerId root = 0;               // Of a reduce.
  std::optional<Tensor> tensor;  // Of a broadcast that of the provider alone.
  Status refused;                // An error of the peer's own, in place of all of these.
  std::chrono::steady_clock::time_point called = std::chrono::steady_clock::now();

  std::optional<Tensor> result;  // Its own copy; of a reduce that of the root alone.
  Status status;
  bool done = false;
};

struct OperationSetting {
  const CollectiveConfig& config;
  tutti_group* group = nullptr;  // Of the processes; null: this one is alone.
  int32_t timeout_ms = 0;        // Between processes; 0: that of the join.
  // As CollectiveOptions has it.
  std::optional<bool> reproducible = std::nullopt;
};

// Runs the operation for the peers of this process, ascending by id, and sets their results.
// Returns the error of all, in all processes: `own`, if this process cannot take part; a call that
// was refused, or which calls differ; too little memory; or the group's failure.
Status run_operation(const OperationSetting& setting, std::span<Call* const> calls,
                     const Status& own = {});

}  // namespace tutti::burn
