// The memory that the ranks of this host share: mappings of the board, of the flight recorder and
// of every rank's segment.
#pragma once

#include <cstdint>
#include <memory>
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
  // `segments`: memfds by seat. That of this rank, `seat`, is mapped already, as `own`, which must
  // outlive the object.
  static Status open(Fd board, Fd recorder, std::vector<Fd> segments, uint32_t seat,
                     const MappedSegment& own, std::unique_ptr<HostMemory>& made);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const board::View& view() const { return view_; }
  // What this rank has called.
  RankRecorder& recorder() const { return recorder_.rank(seat_); }
  uint32_t seat() const { return seat_; }
  uint32_t seats() const { return view_.seats(); }
  const board::SegmentView& segment(uint32_t seat) const { return mapped_[seat]; }
  // Size of the last-level cache.
  uint64_t cache_bytes() const { return cache_bytes_; }

 private:
  HostMemory() = default;

  board::View view_;
  std::byte* recorder_base_ = nullptr;
  trace::RecorderView recorder_;
  uint32_t seat_ = 0;
  std::vector<std::unique_ptr<MappedSegment>> others_;  // By seat; not mapped for this rank.
  std::vector<board::SegmentView> mapped_;              // By seat.
  uint64_t cache_bytes_ = 0;
};

}  // namespace tutti::client
