// The layout of the flight recorder: what the ranks of a job on one host have called, in memory
// that they share with their worker and their agent, so that it outlives both.
//
//   0                 RecorderHeader   identification; how the clocks of this host compare
//   kGroupsOffset     RecordedGroup    by area of the board: which ranks a group has here
//   kRanksOffset      RankRecorder     by local rank: totals, and the last kRecordsKept operations
//   + local_ranks     RecordRing       the last kRecordsKept operations among hosts, by the worker
//
// A ring has a record for each operation, at its index % kRecordsKept. A record becomes valid with
// its `checked_index`, which holds the index and a checksum of the fields: a reader that copies a
// record while it is overwritten sees that the two do not belong together. `outcome` is added when
// the operation ends.
//
// The file is a sparse, sealed memfd: pages appear when touched. Readers trust nothing in it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/board.h"
#include "proto/types.h"

namespace tutti {

inline constexpr uint32_t kRecorderMagic = 0x44434552;  // "RECD"
inline constexpr uint32_t kRecordsKept = 4096;          // A power of two.

struct RecorderHeader {
  uint32_t magic;        // kRecorderMagic.
  uint32_t version;      // kProtocolVersion.
  uint32_t epoch;        // Of the job.
  uint32_t local_ranks;  // How many there are.
  uint32_t world_size;
  // One moment by two clocks of this host: CLOCK_MONOTONIC, in which all times below are, and
  // CLOCK_REALTIME.
  int64_t monotonic_ns;
  int64_t realtime_ns;
};

// Written by the worker when it makes the group.
struct RecordedGroup {
  alignas(64) std::atomic<uint32_t> size;  // Members on all hosts; 0: there is no such group yet.
  uint32_t number;                         // The same on all hosts.
  uint64_t local_ranks[4];                 // One bit for each: it is a member.
};
static_assert(sizeof(RecordedGroup) == 64 && kLocalRanksMax <= 256);

// What was asked for, packed into two words.
struct RecordedCall {
  uint16_t area;  // Of the group, on the board.
  uint8_t collective;
  uint8_t dtype;
  uint8_t op;
  uint8_t flags;    // Request::flags.
  uint16_t layout;  // Of Request::layout, folded: ranks whose values differ disagree.
};
struct RecordedChoice {
  uint16_t root;             // Rank in the group.
  uint16_t local_strategy;   // pack_short_strategy(); 0: auto. For an operation among hosts: those
  uint16_t global_strategy;  // in force.
  uint16_t reserved;
};
static_assert(sizeof(RecordedCall) == 8 && sizeof(RecordedChoice) == 8);

// From pack_strategy(): the kind in the low 4 bits, the arity, or the most that fits, in the
// upper 12.
constexpr uint16_t pack_short_strategy(uint32_t packed) {
  const uint32_t arity = packed >> 8;
  return static_cast<uint16_t>((packed & 15) | (arity < 0xfff ? arity : 0xfff) << 4);
}

// What the six fields of a record are.
enum RecordField : uint32_t {
  kRecordNumber,    // Of the calls of the group.
  kRecordCount,     // Elements, of the largest block.
  kRecordBytes,     // Of the rank's tensors.
  kRecordBegun,     // When the rank called, or all ranks of the host had, in ns.
  kRecordedCall,    // A RecordedCall.
  kRecordedChoice,  // A RecordedChoice.
  kRecordFields
};
// One operation.
struct Record {
  alignas(64) std::atomic<uint64_t> checked_index;  // See pack_checked_index(); 0: never written.
  std::atomic<uint64_t> outcome;                    // See pack_outcome(); 0: under way.
  std::atomic<uint64_t> fields[kRecordFields];
};
static_assert(sizeof(Record) == 64);

struct RecordRing {
  alignas(64) std::atomic<uint64_t> next;  // Operations that were recorded so far.
  Record records[kRecordsKept];
};

constexpr uint32_t low_half(uint64_t word) { return static_cast<uint32_t>(word); }
// For record `index`: its low half + 1 below, the checksum above.
constexpr uint64_t pack_checked_index(uint64_t index, uint32_t checksum) {
  return uint64_t{checksum} << 32 | low_half(index + 1);
}

// The duration in ns in the upper 48 bits (at most 78 hours), the generation of the record's place,
// by which the outcome of an earlier operation is known, and the code + 1.
constexpr uint64_t kDurationNsMax = (uint64_t{1} << 48) - 1;
constexpr uint8_t generation_of_record(uint64_t index) {
  return static_cast<uint8_t>(index / kRecordsKept);
}
constexpr uint64_t pack_outcome(uint64_t duration_ns, uint64_t index, uint32_t code) {
  const uint64_t duration = duration_ns < kDurationNsMax ? duration_ns : kDurationNsMax;
  return duration << 16 | uint64_t{generation_of_record(index)} << 8 | (code + 1);
}

// ---- Totals ----

// Operations by the bytes of their tensors: up to 4 KiB, 256 KiB, 16 MiB, and more.
inline constexpr uint32_t kSizeClasses = 4;
constexpr uint32_t size_class_of(uint64_t bytes) {
  return bytes <= 4 << 10 ? 0 : bytes <= 256 << 10 ? 1 : bytes <= 16 << 20 ? 2 : 3;
}
inline constexpr uint64_t kSizeClassBytes[kSizeClasses - 1] = {4 << 10, 256 << 10, 16 << 20};

// Operations by their duration: below 2^11 ns, 2^13, 2^15 ... 2^31 (2 s), and more.
inline constexpr uint32_t kDurationBuckets = 12;
constexpr uint32_t duration_bucket_of(uint64_t ns) {
  const auto bits = static_cast<uint32_t>(std::bit_width(ns >> 11));
  const uint32_t bucket = (bits + 1) / 2;
  return bucket < kDurationBuckets ? bucket : kDurationBuckets - 1;
}
// Upper bound of a bucket but the last.
constexpr uint64_t duration_bound_ns(uint32_t bucket) { return uint64_t{1} << (11 + 2 * bucket); }
inline constexpr uint32_t kCodes = 17;

// For operations of one collective and size class that ended OK.
struct RecordedTotals {
  alignas(64) std::atomic<uint64_t> durations[kDurationBuckets];  // Operations.
  std::atomic<uint64_t> duration_ns;                              // Sum.
  std::atomic<uint64_t> bytes;                                    // Sum.
};

// One rank, written by it alone, but for `rank`.
struct RankRecorder {
  uint32_t rank;  // Of the job. Written by the worker.
  RecordedTotals totals[kCollectives][kSizeClasses];
  alignas(64) std::atomic<uint64_t> ended[kCodes];  // Operations, by code.
  RecordRing ring;
};

// ---- Offsets and sizes in bytes ----

inline constexpr uint64_t kGroupsOffset = 4096;
inline constexpr uint64_t kRanksOffset = kGroupsOffset + kAreasMax * sizeof(RecordedGroup);
inline constexpr uint64_t kRankRecorderBytes = page_up(sizeof(RankRecorder));
static_assert(sizeof(RecorderHeader) <= kGroupsOffset && kRanksOffset % 4096 == 0);
constexpr uint64_t rank_recorder_offset(uint32_t local_rank) {
  return kRanksOffset + local_rank * kRankRecorderBytes;
}
constexpr uint64_t recorder_bytes(uint32_t local_ranks) {
  return rank_recorder_offset(local_ranks) + page_up(sizeof(RecordRing));
}

}  // namespace tutti
