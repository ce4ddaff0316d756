// The layout of the board: memory that all ranks of a job on one host share with their worker.
// Every operation starts here, and the ranks of the host meet here.
//
//   0                BoardHeader   identification; which areas need the worker; counters and a
//                                  sub-group request for each local rank
//   kAreasOffset     area 0        the group of the whole job
//   + area_bytes     area 1 ...    sub-groups, in the order in which the worker creates them
//   folds_offset()   BoardFolds    folds of operations among hosts, which the worker shares
//   wire_offset()    wire memory   values from and for other hosts, which those folds read and
//                                  write; then windows of results (BoardSlot::results)
//
// A *local rank* is a rank's index among the job's ranks on this host, in ascending order of rank.
//
// An area serves one group. It holds its header, then kBoardSlots slots with one entry for each
// local rank, then one failure for each slot. Every rank numbers its operations on a group 0, 1, 2,
// ...; operation N of all ranks uses slot N % kBoardSlots, in generation N / kBoardSlots + 1 of
// that slot. A rank writes its request to its entry, then the number as its arrival, and counts
// itself in the slot's word. The last rank to arrive compares the requests. Where they agree,
// waiting ranks fold the tensors block by block; the rank that finishes the last block ends the
// operation for all ranks with one change of the word.
//
//   open ──last arrival, all agree──> folding ──last block──> done ──all settled──> open again
//     │ └────any rank──> called ──worker──┘ │                  │                        ↑
//     │                    │ └──worker──────┼──────────────────┘                        │
//     └───────worker───────┴────────────────┴──> failed ────────────────────────────────┘
//
// `called` means that the worker decides. Ranks call the worker for every operation that goes on to
// other hosts, and wherever ranks disagree, are late or die. The outcome is in one word, so all
// ranks see the same one, however late they arrive. A slot is reused only after all members have
// read its outcome: see BoardRankProgress::settled.
//
// daemon/board/transitions.h has the rules of every change. The file is a sparse, sealed memfd.
// Ranks of a job trust each other as threads do; the worker trusts nothing it reads here.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "proto/segment.h"

namespace tutti {

inline constexpr uint32_t kBoardMagic = 0x44524f42;  // "BORD"
// Most ranks of one job on one host: a Welcome carries a descriptor for each in one sendmsg().
inline constexpr uint32_t kLocalRanksMax = 240;
inline constexpr uint32_t kWelcomeDescriptors = 4 + kLocalRanksMax;
// Most operations of one group that a rank may have under way.
inline constexpr uint32_t kBoardSlots = 256;
// Most groups of one epoch, including that of the whole job.
inline constexpr uint32_t kAreasMax = 4096;
// Blocks in the window of a staged tensor where all ranks are on this host: see kRequestStaged.
inline constexpr uint32_t kWindowBlocks = 8;
// Bytes of a rank's tensor that are folded as one block.
inline constexpr uint64_t kBoardBlockBytes = 128 * 1024;
// Least bytes of one chunk within a slice of the engine: with fewer, the fixed cost of a frame
// shows.
inline constexpr uint64_t kSlicePartBytes = 64 * 1024;
// Bytes of a slice that spans `chunks` chunks: `slice_bytes`, which must not be 0, times the least
// power of two that gives each chunk kSlicePartBytes.
constexpr uint64_t whole_slice_bytes(uint64_t slice_bytes, uint64_t chunks) {
  const uint64_t least = chunks * kSlicePartBytes;
  const uint64_t times = (least + slice_bytes - 1) / slice_bytes;
  return slice_bytes * std::bit_ceil(times == 0 ? 1 : times);
}
// Slices, at the configured slice_bytes, that BoardHeader::window_bytes holds.
inline constexpr uint32_t kWindowSlices = 8;
inline constexpr size_t kMessageBytes = 448;
inline constexpr size_t kHostBytes = 48;

// Request::flags.
inline constexpr uint8_t kRequestBlocking = 1;  // The rank waits, so it will help to fold.
// The rank's tensors are ordinary memory, which is *staged*: it passes block by block through a
// *window*, a bounce buffer in the rank's segment at in_offset. Where all ranks of the group are on
// this host the window has kWindowBlocks blocks; a block's place is reused once the block is folded
// and copied out. Otherwise byte b of the tensor is at b % BoardHeader::window_bytes of the window,
// and its place is reused once the worker has returned the result there, or to BoardSlot::results,
// and the rank has copied it out. Tensors with blocks of one size pass in rows, in place of blocks
// of the board and of bytes: see daemon/base/staged_rows.h.
inline constexpr uint8_t kRequestStaged = 2;
// The request is for a list of tensors, which are where `records` ListedTensor records at in_offset
// say. No listed tensor is empty, so there are at most `count` records.
inline constexpr uint8_t kRequestListed = 4;
// The client library refused the call. It keeps its place in the order, so the operation fails on
// all ranks: `root` is the code, and `count` bytes at in_offset are the message.
inline constexpr uint8_t kRequestRefused = 8;

// The blocks of the tensors have counts of their own (daemon/base/block_sizes.h): a uint64_t for
// each block, at the offset that `count` has, in the rank's segment. `layout` is that of the
// counts.
inline constexpr uint8_t kRequestCounts = 16;

// The tensors are in the memory of a GPU, as the DeviceRequest at in_offset says; out_offset is 0.
// With kRequestListed `records` ListedDeviceTensor follow the DeviceRequest, whose own sides do not
// count.
inline constexpr uint8_t kRequestDevice = 32;

// Reduce in the order of the ranks, whatever the strategy. Only where the collective reduces.
inline constexpr uint8_t kRequestReproducible = 64;

// The ranks compare their results afterwards, by an operation of its own. Only where the collective
// has the same result on all ranks.
inline constexpr uint8_t kRequestVerify = 128;

// Most tensors in a list, and most blocks with counts: what pack_layout() has bits for.
inline constexpr uint32_t kListedTensorsMax = (uint32_t{1} << 24) - 1;

// Request::*_strategy: tutti_strategy_kind in the low 8 bits, arity in the upper 24.
constexpr uint32_t pack_strategy(uint32_t kind, uint32_t arity) { return kind | arity << 8; }

// Request::layout: the number of tensors or blocks in the upper 24 bits, a hash of their counts in
// the lower 40.
constexpr uint64_t pack_layout(uint64_t tensors, uint64_t hash) {
  return tensors << 40 | (hash & ((uint64_t{1} << 40) - 1));
}
constexpr uint64_t tensors_of_layout(uint64_t layout) { return layout >> 40; }

struct Request {
  uint8_t collective;  // tutti_collective.
  uint8_t dtype;       // tutti_dtype.
  uint8_t op;          // tutti_op.
  uint8_t flags;
  uint32_t root;             // Rank in the group; 0 where the collective has no root.
  uint64_t count;            // Elements of one rank's tensor, or of one block. See also the flags.
  uint64_t in_offset;        // From the start of the segment; 0: the rank has no such side.
  uint64_t out_offset;       // May equal in_offset (in place).
  uint32_t timeout_ms;       // 0: the default of the worker.
  uint32_t local_strategy;   // pack_strategy(); 0: auto.
  uint32_t global_strategy;  //
  uint32_t records;          // See kRequestListed.
  uint64_t layout;           // pack_layout() of a list of tensors or of counts; else 0.
};
static_assert(sizeof(Request) == 56);
static_assert(offsetof(Request, count) == 8 && offsetof(Request, timeout_ms) == 32);

// One tensor of a list; offsets are from the start of the segment.
struct ListedTensor {
  uint64_t in_offset;
  uint64_t out_offset;
  uint64_t count;
};

// A tensor in memory that the rank has offered to the worker.
struct DeviceSide {
  uint64_t memory;  // MemoryOffer::number; 0: the rank has no such side.
  uint64_t offset;  // From the start of that memory.
};

// One tensor of a list in device memory.
struct ListedDeviceTensor {
  DeviceSide in;
  DeviceSide out;
  uint64_t count;
};

// For a request for device memory. The offsets are those of three words in the memory that the rank
// offered for words; `value` is even.
//   ready    the rank's stream stores `value` when it reaches the operation;
//   done     the worker's GPU stores `value` when its work for the operation has ended, and the
//            rank's stream goes on when the word is `value` or more, as a signed difference;
//   passed   the worker stores value - 1 when it takes the request, and `value` when none of its
//            GPUs touches the operation's memory any more, whatever came of the operation.
// What a processor stores in place of a stream is value + 1.
struct DeviceRequest {
  DeviceSide in;
  DeviceSide out;
  uint64_t ready_offset;  // From the start of the segment.
  uint64_t done_offset;
  uint64_t passed_offset;
  uint64_t value;
  double factor;  // Of premul_sum: what the input is multiplied by; else it does not count.
};

// One rank's part of a slot, written by that rank alone.
struct BoardEntry {
  alignas(64) std::atomic<uint64_t> arrived;  // Number + 1 of the operation requested below.
  Request request;
  alignas(64) std::atomic<int64_t> started_ns;  // CLOCK_MONOTONIC when the rank called; 0: unset.
  // Staged tensors: how many blocks the rank has copied into its window. Before it copies a block
  // in, it copies out the earlier block that used the same place.
  std::atomic<uint32_t> ready;
  // Index + 1 of the block that the rank is folding; 0: none. Shows the worker which block a rank
  // that died or stopped had claimed.
  std::atomic<uint32_t> holding;
};
static_assert(sizeof(BoardEntry) == 128);

// One operation at a time. `generation` is the slot's use that a value belongs to; values of an
// earlier generation count as 0.
struct BoardSlot {
  alignas(64) std::atomic<uint64_t> word;  // SlotWord of daemon/board/word.h.
  // Generation, and the number of blocks claimed so far.
  alignas(64) std::atomic<uint64_t> claimed;
  std::atomic<uint64_t> blocks;              // Generation, and the number of blocks in all.
  std::atomic<uint32_t> worker_holding;      // As BoardEntry::holding, for the worker.
  alignas(64) std::atomic<uint64_t> folded;  // Generation, and the number of blocks folded.
  // Generation, and the number of blocks whose results the worker has returned to every window, or
  // to the one below.
  std::atomic<uint64_t> passed;
  // Generation, and where results go that all ranks here have in common: in wire memory, at this
  // multiple of kResultsMultiple, counted from 1. In an earlier generation: none do; each rank's go
  // to its window. Written before `passed`.
  std::atomic<uint64_t> results;
  std::atomic<uint64_t> shared;  // Generation, and the number of SharedFold published so far.
  // Staged tensors on one host: element b % kWindowBlocks is the generation and b + 1 once block b
  // is folded.
  alignas(64) std::atomic<uint64_t> block_folded[kWindowBlocks];
  // BoardEntry entries[local_ranks] follow.
};
static_assert(sizeof(BoardSlot) == 256);

// Why an operation failed. Written before the slot's word becomes `failed`, and valid until the
// slot's next generation.
struct BoardFailure {
  uint64_t number;                // Of the operation.
  int32_t code;                   // tutti_code.
  int32_t culprit_rank;           // The rank to blame; -1: none.
  char culprit_host[kHostBytes];  // NUL-terminated; "": none.
  char message[kMessageBytes];    // NUL-terminated, truncated if necessary.
};
static_assert(sizeof(BoardFailure) == 512);

// A rank's progress in one group, on a cache line of its own. Written by that rank, or by the
// worker after the rank is gone.
struct BoardRankProgress {
  // The rank has read the outcome of every operation below this number, and copied its results out,
  // so their slots and windows of results may be reused.
  alignas(64) std::atomic<uint64_t> settled;
};

// The header of one group's area.
struct BoardArea {
  // 1: ranks decide by themselves that an operation is folded or done. 0: every operation calls the
  // worker, because a rank is gone or a failure awaits late ranks.
  alignas(64) std::atomic<uint32_t> ranks_decide;
  // One bit for each slot: the worker must look at it.
  alignas(64) std::atomic<uint64_t> called[kBoardSlots / 64];
  // BoardRankProgress settled[local_ranks], BoardSlot with entries [kBoardSlots], and
  // BoardFailure[kBoardSlots] follow.
};

// A rank's request for a sub-group, one at a time: the rank sets `asked`, the worker `answered`,
// and the rank `free` again.
enum class SubgroupRequestState : uint32_t { free = 0, asked = 1, answered = 2 };

struct BoardSubgroupRequest {
  alignas(64) std::atomic<uint32_t> state;  // SubgroupRequestState; a futex.
  uint32_t ranks;                           // Number of ranks in the list.
  uint64_t list_offset;                     // uint32_t[ranks], from the start of the segment.
  // Not 0: the list has two ranks, and the new group carries the messages that the first sends to
  // the second as ranks of the group with this number + 1. There is one such group, however often
  // it is requested.
  uint64_t channel;
  uint32_t group;        // The answer: the number of the group.
  uint32_t area;         // The answer: its area on this board.
  BoardFailure failure;  // The answer instead, where its code is not 0.
};

// What a rank offers to the worker: memory of a GPU, for tensors, or a part of its segment for
// words that streams store and wait for.
enum class OfferKind : uint32_t {
  ipc = 0,     // An allocation, by the driver's IPC handle.
  chunks = 1,  // Consecutive chunks, whose descriptors the rank has sent on its socket, in order.
  words = 2,   // [offset, offset + bytes) of the segment, of whole pages. Once.
  forget = 3,  // The memory with this number is not used any more; refused while staging is.
  // [offset, offset + bytes) of the segment, of whole pages: for tensors in memory of a GPU that
  // the worker cannot map.
  staging = 4,
};
inline constexpr uint32_t kOfferedChunksMax = 4096;

// The one byte of a message with descriptors, which a trainer sends on its socket after the hello.
inline constexpr char kChunksMessage = 0;   // Of chunks, which the next offers name.
inline constexpr char kProcessMessage = 1;  // One pidfd, of the trainer.

// The record of an offer. `chunk_bytes` follows: a uint64_t for each chunk.
struct MemoryOffer {
  uint32_t kind;    // OfferKind.
  uint32_t chunks;  // Number of them.
  uint64_t number;  // By which requests name the memory; from 1, never used again.
  uint64_t bytes;
  uint64_t offset;
  char gpu[16];  // UUID.
  char ipc[64];
};

// A rank's offer, one at a time, by the states of a sub-group's request.
struct BoardOffer {
  alignas(64) std::atomic<uint32_t> state;  // SubgroupRequestState; a futex.
  uint64_t offer_offset;                    // Of the MemoryOffer, from the start of the segment.
  BoardFailure failure;                     // The answer; code 0: the worker has the memory.
};

// A rank's totals over all groups, written by it alone.
struct BoardCounters {
  alignas(64) std::atomic<uint64_t> operations;  // That ended OK.
  std::atomic<uint64_t> failures;                // Operations that ended otherwise.
  std::atomic<uint64_t> bytes;                   // Of the tensors of operations that ended OK.
};

// ---- Folds of operations among hosts ----

// Most of them at once. The worker folds by itself what exceeds that.
inline constexpr uint32_t kSharedFolds = 256;
// Wire memory, which is sparse: the most values that are on their way between hosts and folded by
// ranks, then the windows of results that ranks have in common.
inline constexpr uint64_t kFoldBytes = 64 << 20;
inline constexpr uint64_t kResultBytes = 64 << 20;
inline constexpr uint64_t kWireBytes = kFoldBytes + kResultBytes;
inline constexpr uint64_t kResultsMultiple = 4096;  // See BoardSlot::results.
// In the place of a local rank: wire memory.
inline constexpr uint32_t kWirePlace = kLocalRanksMax;

// Where values lie: the local rank's segment or wire memory, and the offset from its start.
constexpr uint64_t pack_place(uint32_t place, uint64_t offset) {
  return uint64_t{place} << 48 | offset;
}
inline constexpr uint64_t kNowhere = UINT64_MAX;

// What a fold is: see FoldWork of daemon/board/local_folds.h.
struct FoldHead {
  uint64_t count;     // Elements.
  uint64_t carry;     // Where; kNowhere: none.
  uint32_t divisor;   //
  uint32_t strategy;  // pack_strategy() of the local strategy, which associates the sources.
  uint16_t sources;   // Numbers of them.
  uint16_t targets;
  uint8_t dtype;  // Of the sources.
  uint8_t op;
  uint8_t carry_dtype;
  uint8_t target_dtype;
  uint16_t past_cache;   // 0 or 1.
  uint16_t carry_first;  //
  uint32_t first;        // Index of the fold's first block.
  uint32_t number;       // Of the fold, among all that the worker has shared.
};
static_assert(sizeof(FoldHead) == 48);

// A block of a fold. Written by the worker before the block's word says `ready`, and read by the
// one that holds it.
struct SharedFold {
  FoldHead head;
  // In the fold's first block: its number, and how many of its blocks are not counted as done. The
  // rank that counts the last one calls the worker.
  std::atomic<uint64_t> left;
  uint64_t places[2 * kLocalRanksMax];  // Of the sources, then of the targets.
};

struct BoardFolds {
  std::atomic<uint32_t> top;                              // All words from here on are `free`.
  alignas(64) std::atomic<uint64_t> words[kSharedFolds];  // FoldWord of board/shared_folds.h.
  SharedFold folds[kSharedFolds];
};

struct BoardHeader {
  uint32_t magic;        // kBoardMagic.
  uint32_t version;      // kProtocolVersion.
  uint32_t local_ranks;  // How many there are.
  // Size of a staged tensor's window in groups over several hosts, a multiple of kBoardBlockBytes;
  // 0: such groups have no windows.
  uint64_t window_bytes;
  // One bit for each area: a bit of its BoardArea::called is set.
  alignas(64) std::atomic<uint64_t> called[kAreasMax / 64];
  // How often the worker has looked at the board.
  alignas(64) std::atomic<uint64_t> looks;
  BoardCounters counters[kLocalRanksMax];
  BoardSubgroupRequest subgroup_requests[kLocalRanksMax];
  BoardOffer offers[kLocalRanksMax];
};

// ---- Offsets and sizes in bytes, for a host with `local_ranks` ranks ----

constexpr uint64_t page_up(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
inline constexpr uint64_t kAreasOffset = page_up(sizeof(BoardHeader));
constexpr uint64_t slot_bytes(uint32_t local_ranks) {
  return sizeof(BoardSlot) + local_ranks * sizeof(BoardEntry);
}
constexpr uint64_t slots_offset(uint32_t local_ranks) {
  return page_up(sizeof(BoardArea) + local_ranks * sizeof(BoardRankProgress));
}
constexpr uint64_t failures_offset(uint32_t local_ranks) {
  return page_up(slots_offset(local_ranks) + kBoardSlots * slot_bytes(local_ranks));
}
constexpr uint64_t area_bytes(uint32_t local_ranks) {
  return failures_offset(local_ranks) + kBoardSlots * sizeof(BoardFailure);
}
constexpr uint64_t folds_offset(uint32_t local_ranks) {
  return kAreasOffset + uint64_t{kAreasMax} * area_bytes(local_ranks);
}
constexpr uint64_t wire_offset(uint32_t local_ranks) {
  return folds_offset(local_ranks) + page_up(sizeof(BoardFolds));
}
constexpr uint64_t board_bytes(uint32_t local_ranks) {
  return wire_offset(local_ranks) + kWireBytes;
}
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tutti
