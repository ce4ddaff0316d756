// What the board of a host tells its worker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/base/call.h"
#include "daemon/base/fd.h"
#include "daemon/base/op_id.h"
#include "proto/board.h"

namespace tutti {

// Memory that a rank offers to its worker, as in MemoryOffer of proto/board.h; copied and checked
// as far as that goes without a driver.
struct OfferedMemory {
  OfferKind kind = OfferKind::ipc;
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // Of words and staging: from the start of the segment.
  std::array<char, sizeof(MemoryOffer::gpu)> gpu{};
  std::vector<std::byte> ipc;
  std::vector<uint64_t> chunk_bytes;
  std::vector<Fd> descriptors;        // Of the chunks.
  std::byte* pinned = nullptr;        // Words and staging, as mapped here.
  std::shared_ptr<const void> keeps;  // What `pinned` lies in.
};

// Called on the loop's thread, until the last rank of the board has ended. Ranks are ranks of the
// job; one that has ended asks for nothing more.
class BoardEvents {
 public:
  virtual ~BoardEvents() = default;
  // A checked request of an operation that the ranks of the host do not settle among themselves.
  // Called once for each; those of one group come in any order.
  virtual void on_request(uint32_t rank, Call call) = 0;
  // More of the operation's tensor is in the window of some rank.
  virtual void on_window_filled(const EpochOp& op) = 0;
  // The rank asks for a sub-group of these ranks; `channel` is as in BoardSubgroupRequest. Answer
  // with HostBoard::answer_subgroup(), once.
  virtual void on_subgroup_request(uint32_t rank, std::vector<uint32_t> ranks,
                                   uint64_t channel) = 0;
  // The rank offers memory. Answer with HostBoard::answer_offer(), once. In requests, device memory
  // is named by the offers' numbers, and words by their offsets from the start of the segment.
  virtual void on_offer(uint32_t rank, OfferedMemory offer) = 0;
  // A rank stopped or ended while memory of other ranks depended on it: it may still write there,
  // or never write the rest. The epoch must end.
  virtual void on_stuck(Status why) = 0;
};

}  // namespace tutti
