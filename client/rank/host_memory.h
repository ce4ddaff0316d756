// The memory that the ranks of this host share: mappings of the board, of the flight recorder and
// of every rank's segment.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/rank/error.h"
#include "client/rank/mapped_segment.h"
#include "daemon/base/fd.h"
#include "daemon/board/board.h"
#include "daemon/trace/trace.h"

namespace tutti::client {

// The Status that a failure on the board describes. Without its message if memory runs out.
Status read_failure(const BoardFailure& failure) noexcept;

class HostMemory {
 public:
  // `segments`: memfds by local rank. That of this rank, `local_rank`, is mapped already, as
  // `own`, which must outlive the object.
  static Status open(Fd board, Fd recorder, std::vector<Fd> segments, uint32_t local_rank,
                     const MappedSegment& own, std::unique_ptr<HostMemory>& made);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const board::View& view() const { return view_; }
  // What this rank has called.
  RankRecorder& recorder() const { return recorder_.rank(local_rank_); }
  uint32_t local_rank() const { return local_rank_; }
  uint32_t local_ranks() const { return view_.local_ranks(); }
  const board::SegmentView& segment(uint32_t local_rank) const { return mapped_[local_rank]; }
  std::span<const board::SegmentView> segments() const { return mapped_; }  // By local rank.
  // Size of the last-level cache.
  uint64_t cache_bytes() const { return cache_bytes_; }

 private:
  HostMemory() = default;

  board::View view_;
  std::byte* recorder_base_ = nullptr;
  trace::RecorderView recorder_;
  uint32_t local_rank_ = 0;
  std::vector<std::unique_ptr<MappedSegment>> others_;  // By local rank; not mapped for this rank.
  std::vector<board::SegmentView> mapped_;              // By local rank.
  uint64_t cache_bytes_ = 0;
};

}  // namespace tutti::client
