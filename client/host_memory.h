// The memory that the ranks of this host share, as mapped here: the board and everybody's segment.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "client/error.h"
#include "client/segment.h"
#include "daemon/base/fd.h"
#include "daemon/board/board.h"

namespace tutti::client {

class HostMemory {
 public:
  // `memories`: a segment for each seat, of which this rank's is `own` already.
  static Status open(Fd board, std::vector<Fd> memories, uint32_t seat, const Segment& own,
                     std::unique_ptr<HostMemory>& made);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const board::View& view() const { return view_; }
  uint32_t seat() const { return seat_; }
  uint32_t seats() const { return view_.seats(); }
  const board::SegmentView& segment(uint32_t seat) const { return mapped_[seat]; }
  uint64_t cache_bytes() const { return cache_bytes_; }  // Of the last level.

 private:
  HostMemory() = default;

  board::View view_;
  uint32_t seat_ = 0;
  std::vector<std::unique_ptr<Segment>> others_;  // By seat; none mapped for this rank.
  std::vector<board::SegmentView> mapped_;        // By seat.
  uint64_t cache_bytes_ = 0;
};

}  // namespace tutti::client
