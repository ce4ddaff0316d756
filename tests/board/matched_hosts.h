// The segments and entries of the ranks of a host, without a board: for tests of what the ranks
// make of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/board/board.h"
#include "tests/support/values.h"

namespace tutti::board {
using tutti::testing::Bytes;
using tutti::testing::contribution;
using tutti::testing::expected;
using tutti::testing::get;
using tutti::testing::held;
using tutti::testing::put;

inline constexpr uint64_t kSegmentBytes = kArenaOffset + (4 << 20);
inline constexpr uint64_t kOutOffset = kArenaOffset + (2 << 20);

// The segments and entries of `ranks` ranks that agree on one operation.
class Hosts {
 public:
  Hosts(Collective collective, Dtype dtype, Op op, uint32_t ranks, uint64_t count)
      : collective_(collective), dtype_(dtype), op_(op), ranks_(ranks), count_(count) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      memories_.emplace_back(static_cast<std::byte*>(std::calloc(1, kSegmentBytes)));
      mapped_.push_back({memories_.back().get(), kSegmentBytes});
    }
    requests_.resize(ranks);
    each([this](uint32_t, Request& request) { ask(request); });
  }

  void each(const std::function<void(uint32_t, Request&)>& change) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) change(rank, requests_[rank]);
  }
  Request& request(uint32_t rank) { return requests_[rank]; }
  bool read() {
    std::vector<MemberRequest> asked;
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      asked.push_back({requests_[rank], mapped_[rank]});
    return match(asked, op_read_);
  }
  MatchedOp& op() { return op_read_; }
  std::byte* at(uint32_t rank, uint64_t offset) { return memories_[rank].get() + offset; }

  // In any order of blocks: here the last first.
  void run() {
    ASSERT_TRUE(read());
    const Kernel kernel = choose_kernel();
    for (uint32_t block = op_read_.blocks; block-- != 0;) run_block(op_read_, block, kernel);
  }

  void in_place() {
    each([this](uint32_t rank, Request& request) {
      const uint64_t one = count_ * size_of(dtype_);
      if (has_output_blocks(collective_))
        request.in_offset = request.out_offset + rank * one;
      else if (has_input_blocks(collective_))
        request.out_offset = request.in_offset + rank * one;
      else
        request.out_offset = request.in_offset;
    });
  }

  void fill() {
    each([this](uint32_t rank, const Request& request) {
      Bytes tensor(in_elements(rank) * size_of(dtype_));
      for (uint64_t i = 0; i < in_elements(rank); ++i)
        put(tensor, dtype_, i, contribution(op_, static_cast<int>(rank), i));
      std::copy(tensor.begin(), tensor.end(), at(rank, request.in_offset));
    });
  }

  void check() {
    for (uint32_t rank = 0; rank < ranks_; ++rank) check_rank(rank);
  }

 private:
  void ask(Request& request) {
    request = {};
    request.collective = static_cast<uint8_t>(collective_);
    request.dtype = static_cast<uint8_t>(dtype_);
    request.op = static_cast<uint8_t>(op_);
    request.root = root();
    request.count = count_;
    request.in_offset = kArenaOffset;
    request.out_offset = kOutOffset;
  }
  uint32_t root() const { return ranks_ - 1; }
  uint64_t in_elements(uint32_t rank) const {
    if (collective_ == Collective::barrier) return 0;
    const bool from_root =
        collective_ == Collective::broadcast || collective_ == Collective::scatter;
    if (from_root && rank != root()) return 0;
    return count_ * (has_input_blocks(collective_) ? ranks_ : 1);
  }
  uint64_t out_elements(uint32_t rank) const {
    if (collective_ == Collective::barrier) return 0;
    const bool to_root = collective_ == Collective::reduce || collective_ == Collective::gather;
    if (to_root && rank != root()) return 0;
    if (collective_ == Collective::broadcast && rank == root()) return 0;
    return count_ * (has_output_blocks(collective_) ? ranks_ : 1);
  }

  void check_rank(uint32_t rank) {
    const uint64_t count = out_elements(rank);
    const std::byte* out = at(rank, request(rank).out_offset);
    const Bytes got(out, out + count * size_of(dtype_));
    for (uint64_t i = 0; i < count; ++i) {
      const double want = held(dtype_, wanted(rank, i));
      ASSERT_EQ(get(got, dtype_, i), want)
          << name_of(collective_) << " " << name_of(dtype_) << " " << name_of(op_) << ", " << ranks_
          << " ranks, count " << count_ << ", rank " << rank << ", element " << i;
    }
    const std::byte* behind = out + count * size_of(dtype_);
    const bool apart = request(rank).out_offset == kOutOffset &&
                       (count != 0 || request(rank).in_offset < kOutOffset);
    for (int i = 0; apart && i < 64; ++i)
      ASSERT_EQ(behind[i], std::byte{0}) << "written behind the output";
  }

  double wanted(uint32_t rank, uint64_t i) const {
    const int world = static_cast<int>(ranks_);
    if (collective_ == Collective::broadcast) return contribution(op_, world - 1, i);
    if (collective_ == Collective::scatter) return contribution(op_, world - 1, rank * count_ + i);
    if (has_output_blocks(collective_)) {
      const uint64_t first = collective_ == Collective::all_to_all ? rank * count_ : 0;
      return contribution(op_, static_cast<int>(i / count_), first + i % count_);
    }
    return expected(op_, world, collective_ == Collective::reduce_scatter ? rank * count_ + i : i);
  }

  const Collective collective_;
  const Dtype dtype_;
  const Op op_;
  const uint32_t ranks_;
  const uint64_t count_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memories_;
  std::vector<SegmentView> mapped_;
  std::vector<Request> requests_;
  MatchedOp op_read_;
};

}  // namespace tutti::board
