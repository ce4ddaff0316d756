// The flight recorder of a job's ranks on one host: writing to it, and reading what it holds, which
// is possible after trainers and worker have ended. proto/recorder.h draws the memory. Used by the
// client library, the worker and the agent.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/trace/recording.h"  // IWYU pragma: export
#include "proto/recorder.h"

namespace tutti::trace {

// What one rank called; or, of a host's worker, one operation among hosts. Every value was checked
// as far as it can be alone; any program of the job may have written it.
struct Operation {
  uint64_t index = 0;   // Of the rank's operations, in the order in which it called them.
  uint32_t group = 0;   // The same on all hosts.
  uint64_t number = 0;  // Of the calls of the group.
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint8_t flags = 0;             // Request::flags.
  uint16_t root = 0;             // Rank in the group.
  uint16_t layout = 0;           // Operations of different layouts disagree.
  uint16_t local_strategy = 0;   // pack_short_strategy(); 0: auto.
  uint16_t global_strategy = 0;  //
  uint64_t count = 0;            // Elements, of the largest block.
  uint64_t bytes = 0;            // Of the rank's tensors.
  uint64_t begun_ns = 0;         // When the rank called; since 1970, by the host's clock.
  struct Outcome {
    uint64_t duration_ns = 0;  // Until the rank took note of the end.
    Code code = Code::ok;
  };
  std::optional<Outcome> outcome = std::nullopt;  // nullopt: under way.
};

// For operations of one collective and size class that ended OK.
struct Totals {
  std::array<uint64_t, kDurationBuckets> durations{};  // Operations; see duration_bucket_of().
  uint64_t duration_ns = 0;
  uint64_t bytes = 0;
};

struct Rank {
  uint32_t rank = 0;                  // Below the world size; ranks differ.
  uint64_t recorded = 0;              // Operations in all.
  std::vector<Operation> operations;  // The last ones, ascending.
  std::array<std::array<Totals, kSizeClasses>, kCollectives> totals{};
  std::array<uint64_t, kCodes> ended{};  // Operations, by code.
};

struct Group {
  uint32_t number = 0;
  uint32_t size = 0;            // Members on all hosts.
  std::vector<uint32_t> ranks;  // Of the job, on this host, ascending.
};

struct Trace {
  uint32_t epoch = 0;
  uint32_t world_size = 0;
  std::vector<Rank> ranks;
  std::vector<Operation> among_hosts;  // The worker's, ascending.
  std::vector<Group> groups;           // By area.
};

// Reads bytes of a recorder at an offset. False: they are not there.
using Read = std::function<bool(uint64_t offset, std::span<std::byte> into)>;

// Reads the last `last` operations of each ring, at most kRecordsKept; 0: none, the totals alone.
// FAILED_PRECONDITION: it is no recorder of this version. Never fails or blocks by what programs of
// the job wrote, or write meanwhile: records that make no sense are left out.
Result<Trace> read_trace(const Read& read, uint64_t last);

// Reads a recorder's memory by its descriptor, which may be anything: the program that sent it is
// not trusted. Does not map it, so that its pages stay as they are.
Result<Trace> read_trace(int descriptor, uint64_t last);
// Whether the descriptor is one of memory that a recorder may be in, so that reading never blocks.
Status check_recorder(int descriptor);
// Bytes of the memory's pages that have been touched.
uint64_t touched_bytes(int descriptor);

}  // namespace tutti::trace
