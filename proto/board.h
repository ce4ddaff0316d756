// The memory that all ranks of a job on one host share with their worker: where every operation
// begins, and where the ranks meet.
//
//   0                BoardHeader   what this is; calls to the worker; a line of counters and a
//                                  mailbox for each seat
//   kAreasOffset     area 0        the whole job's group
//   + area_bytes     area 1 ...    sub-groups, as the worker makes them
//
// A *seat* is a rank's place among the job's ranks on this host, in the order of their ranks.
// An area serves one group: its header, then kBoardSlots slots with an entry a seat, then a failure
// a slot. The calls of a rank on one group are numbered 0, 1, 2, ...; call N of every rank meets at
// slot N % kBoardSlots in turn N / kBoardSlots. A rank writes its request to its entry, stamps the
// entry with the number, and counts itself in the slot's word. The last to come compares the
// requests. Where all agree the ranks that wait fold, block by block; whoever finishes the last
// block ends the operation for everybody by one change of the word.
//
//   open ──last arrival, all agree──> folding ──last block──> done ──all settled──> open, next turn
//     │ └─────anybody──> called ──worker──┘ │                  │                        ↑
//     │                    │ └──worker──────┼──────────────────┘                        │
//     └───────worker───────┴────────────────┴──> failed ────────────────────────────────┘
//
// Called: the worker decides what becomes of the operation. Whatever is out of the ordinary (ranks
// that disagree, are late, or die) is called, and so is what goes on to other hosts. One word
// holds the verdict, so it is the same for all ranks, whenever they come. A slot is used again only
// when all members have taken note of its verdict: see BoardSeatProgress::settled.
//
// daemon/board/transitions.h has the rules of every change. The file is a sparse, sealed memfd.
// Ranks of a job trust each other as threads do; the worker trusts nothing here.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/segment.h"

namespace tutti {

inline constexpr uint32_t kBoardMagic = 0x44524f42;  // "BORD"
// Ranks of one job on one host; bounds the descriptors of a welcome, which sendmsg() takes at once.
inline constexpr uint32_t kSeatsMax = 240;
inline constexpr uint32_t kWelcomeDescriptors = 3 + kSeatsMax;
// Operations of one group that a rank may have under way.
inline constexpr uint32_t kBoardSlots = 256;
// Groups of one epoch, the whole job among them.
inline constexpr uint32_t kAreasMax = 4096;
// Blocks of a staged tensor under way: see BoardEntry::ready.
inline constexpr uint32_t kWindowBlocks = 8;
// Bytes of a rank's tensor that are folded in one go.
inline constexpr uint64_t kBoardBlockBytes = 128 * 1024;
// A chunk's part of one of the engine's slices has at least this many bytes: below them a frame's
// fixed cost shows.
inline constexpr uint64_t kSlicePartBytes = 64 * 1024;
// Bytes of a slice of so many chunks: `slice_bytes`, not 0, times a power of two.
constexpr uint64_t whole_slice_bytes(uint64_t slice_bytes, uint64_t chunks) {
  const uint64_t least = chunks * kSlicePartBytes;
  const uint64_t times = (least + slice_bytes - 1) / slice_bytes;
  return slice_bytes * std::bit_ceil(times == 0 ? 1 : times);
}
// Slices of the engine's, before they grow, that BoardHeader::window_bytes holds.
inline constexpr uint32_t kWindowSlices = 8;
inline constexpr size_t kMessageBytes = 448;
inline constexpr size_t kHostBytes = 48;

// Request::flags.
inline constexpr uint8_t kRequestBlocking = 1;  // The rank waits: it will take part in the folding.
// The rank's tensors are ordinary memory that passes through a window of its segment, at in_offset.
// Where all ranks of the group are on this host it has kWindowBlocks blocks, and a block is used
// again when it is folded and copied out. Else the tensor's byte b lies at b % window_bytes of the
// header, and is used again when the worker is through with it and it is copied out.
inline constexpr uint8_t kRequestStaged = 2;
// Of a list: its tensors lie where `records` ListedTensor records at in_offset say. None is empty,
// so that there are no more than elements.
inline constexpr uint8_t kRequestListed = 4;
// The library refused the call, which keeps its place in the order: the operation fails for all.
// `root` is the code; `count` bytes at in_offset say why.
inline constexpr uint8_t kRequestRefused = 8;

// Tensors of a list: what its layout can count.
inline constexpr uint32_t kListedTensorsMax = (uint32_t{1} << 24) - 1;

// Request::*_strategy: kind in the low 8 bits, arity in the upper 24.
constexpr uint32_t pack_strategy(uint32_t kind, uint32_t arity) { return kind | arity << 8; }

// How many tensors a list has, and a hash of their counts.
constexpr uint64_t pack_layout(uint64_t tensors, uint64_t hash) {
  return tensors << 40 | (hash & ((uint64_t{1} << 40) - 1));
}
constexpr uint64_t tensors_of_layout(uint64_t layout) { return layout >> 40; }

struct Request {
  uint8_t verb;   // tutti_collective.
  uint8_t dtype;  // tutti_dtype.
  uint8_t op;     // tutti_op.
  uint8_t flags;
  uint32_t root;             // Rank within the group; 0 where the collective has none.
  uint64_t count;            // Elements of one rank's input (reduce_scatter: of its output).
  uint64_t in_offset;        // From the segment's start. Unused sides are 0.
  uint64_t out_offset;       // May equal in_offset (in place).
  uint32_t timeout_ms;       // 0: the worker's default.
  uint32_t local_strategy;   // pack_strategy(); 0: auto.
  uint32_t global_strategy;  //
  uint32_t records;          // See kRequestListed.
  uint64_t layout;           // pack_layout() of a list that is all_reduced as one tensor; else 0.
};
static_assert(sizeof(Request) == 56);
static_assert(offsetof(Request, count) == 8 && offsetof(Request, timeout_ms) == 32);

struct ListedTensor {
  uint64_t in_offset;
  uint64_t out_offset;
  uint64_t count;
};

struct BoardEntry {
  alignas(64) std::atomic<uint64_t> arrived;  // Number + 1 of the call whose request follows.
  Request request;
  alignas(64) std::atomic<int64_t> started_ns;  // CLOCK_MONOTONIC, when the rank called.
  // Staged: blocks this rank is ready for. They are copied in, and what lay in their place is
  // copied out.
  std::atomic<uint32_t> ready;
  // The block it is folding, and one; 0: none. So all can tell whether it died, or stopped, half
  // way.
  std::atomic<uint32_t> holding;
};
static_assert(sizeof(BoardEntry) == 128);

struct BoardSlot {
  alignas(64) std::atomic<uint64_t> word;     // SlotWord in transitions.h.
  alignas(64) std::atomic<uint64_t> claimed;  // Turn and how many blocks were ever claimed.
  std::atomic<uint64_t> blocks;               // Turn and how many there are.
  std::atomic<uint32_t> worker_holding;       // As BoardEntry::holding.
  alignas(64) std::atomic<uint64_t> folded;   // Turn and how many blocks are folded.
  // Turn and how many blocks of every window the worker is through with: results lie there.
  std::atomic<uint64_t> passed;
  // Turn and block + 1, at block % kWindowBlocks: that block is folded.
  alignas(64) std::atomic<uint64_t> block_folded[kWindowBlocks];
  // BoardEntry entries[seats] follow.
};
static_assert(sizeof(BoardSlot) == 256);

// Why an operation failed. Written before the word says so, and kept until its slot's next turn.
struct BoardFailure {
  uint64_t number;
  int32_t code;          // tutti_code.
  int32_t culprit_rank;  // -1: nobody in particular.
  char culprit_host[kHostBytes];
  char message[kMessageBytes];  // NUL-terminated, cut where too long.
};
static_assert(sizeof(BoardFailure) == 512);

// Of one seat in one group; written by that rank, or by the worker once it is gone.
struct BoardSeatProgress {
  // All calls below this number are over and their verdicts taken note of: their slots may be used
  // again.
  alignas(64) std::atomic<uint64_t> settled;
};

struct BoardArea {
  // 0: the worker wants every operation called (a rank is gone, failures wait for late callers).
  alignas(64) std::atomic<uint32_t> ranks_decide;
  // Bit per slot: the worker is to look at it.
  alignas(64) std::atomic<uint64_t> called[kBoardSlots / 64];
  // BoardSeatProgress settled[seats], BoardSlot with entries [kBoardSlots],
  // BoardFailure[kBoardSlots].
};

// A sub-group in the making: one at a time for each seat.
enum class SubgroupRequestState : uint32_t { free = 0, asked = 1, answered = 2 };

struct BoardSubgroupRequest {
  alignas(64) std::atomic<uint32_t> state;  // SubgroupRequestState; futex.
  uint32_t ranks;                           // How many the list has.
  uint64_t list_offset;                     // uint32_t[ranks] in the seat's segment.
  uint32_t group;                           // The answer: the group's number and area.
  uint32_t area;
  BoardFailure failure;  // The answer where code is not 0.
};

// One line a seat, written by its rank alone.
struct BoardCounters {
  alignas(64) std::atomic<uint64_t> operations;  // That ended OK.
  std::atomic<uint64_t> failures;
  std::atomic<uint64_t> bytes;  // Of the tensors of those that ended OK.
};

struct BoardHeader {
  uint32_t magic;
  uint32_t version;  // kProtocolVersion.
  uint32_t seats;
  // Of a staged tensor's window in groups over several hosts: a multiple of kBoardBlockBytes; 0:
  // there is none.
  uint64_t window_bytes;
  // Bit per area: some slot of it is called.
  alignas(64) std::atomic<uint64_t> called[kAreasMax / 64];
  BoardCounters counters[kSeatsMax];
  BoardSubgroupRequest subgroup_requests[kSeatsMax];
};

// ---- Where things lie, for `seats` ranks on the host ----

constexpr uint64_t page_up(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
inline constexpr uint64_t kAreasOffset = page_up(sizeof(BoardHeader));
constexpr uint64_t slot_bytes(uint32_t seats) {
  return sizeof(BoardSlot) + seats * sizeof(BoardEntry);
}
constexpr uint64_t slots_offset(uint32_t seats) {
  return page_up(sizeof(BoardArea) + seats * sizeof(BoardSeatProgress));
}
constexpr uint64_t failures_offset(uint32_t seats) {
  return page_up(slots_offset(seats) + kBoardSlots * slot_bytes(seats));
}
constexpr uint64_t area_bytes(uint32_t seats) {
  return failures_offset(seats) + kBoardSlots * sizeof(BoardFailure);
}
constexpr uint64_t board_bytes(uint32_t seats) {
  return kAreasOffset + uint64_t{kAreasMax} * area_bytes(seats);
}
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tutti
