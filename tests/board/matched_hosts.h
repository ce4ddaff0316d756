// The segments and entries of the ranks of a host, without a board: for tests of what the ranks
// make of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/board/board.h"
#include "tests/support/reference.h"

namespace tutti::board {
using tutti::testing::Bytes;
using tutti::testing::contribution;
using tutti::testing::get;
using tutti::testing::held;
using tutti::testing::inputs_of;
using tutti::testing::put;
using tutti::testing::Reference;

inline constexpr uint64_t kSegmentBytes = kArenaOffset + (4 << 20);
inline constexpr uint64_t kOutOffset = kArenaOffset + (2 << 20);
inline constexpr uint64_t kCountsOffset = kSegmentBytes - (16 << 10);

// The segments and entries of `ranks` ranks that agree on one operation.
class Hosts {
 public:
  Hosts(Collective collective, Dtype dtype, Op op, uint32_t ranks, uint64_t count)
      : Hosts(
            Reference{
                collective, static_cast<int>(ranks), op, count, static_cast<int>(ranks) - 1, {}},
            dtype) {}
  Hosts(Reference reference, Dtype dtype)
      : reference_(std::move(reference)),
        dtype_(dtype),
        ranks_(static_cast<uint32_t>(reference_.ranks)) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      memories_.emplace_back(static_cast<std::byte*>(std::calloc(1, kSegmentBytes)));
      mapped_.push_back({memories_.back().get(), kSegmentBytes});
    }
    requests_.resize(ranks_);
    each([this](uint32_t, Request& request) { ask(request); });
    if (!reference_.counts.empty()) ask_with_counts();
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
  const Reference& reference() const { return reference_; }
  std::byte* at(uint32_t rank, uint64_t offset) { return memories_[rank].get() + offset; }

  // In any order of blocks: here the last first.
  void run() {
    ASSERT_TRUE(read());
    const Kernel kernel = choose_kernel();
    for (uint32_t block = op_read_.blocks; block-- != 0;) run_block(op_read_, block, kernel);
  }

  void in_place() {
    const Collective collective = reference_.collective;
    each([this, collective](uint32_t rank, Request& request) {
      const uint64_t before = reference_.before(static_cast<int>(rank)) * size_of(dtype_);
      if (has_output_blocks(collective))
        request.in_offset = request.out_offset + before;
      else if (has_input_blocks(collective))
        request.out_offset = request.in_offset + before;
      else
        request.out_offset = request.in_offset;
    });
  }

  void fill() {
    each([this](uint32_t rank, const Request& request) {
      std::ranges::copy(inputs_of(reference_, dtype_, static_cast<int>(rank)),
                        at(rank, request.in_offset));
    });
  }

  void check() {
    for (uint32_t rank = 0; rank < ranks_; ++rank) check_rank(rank);
  }

 private:
  void ask(Request& request) {
    request = {};
    request.collective = static_cast<uint8_t>(reference_.collective);
    request.dtype = static_cast<uint8_t>(dtype_);
    request.op = static_cast<uint8_t>(reference_.op);
    request.root = static_cast<uint32_t>(reference_.root);
    request.count = reference_.count;
    request.in_offset = kArenaOffset;
    request.out_offset = kOutOffset;
  }
  void ask_with_counts() {
    const std::vector<uint64_t> counts(reference_.counts.begin(), reference_.counts.end());
    each([&](uint32_t rank, Request& request) {
      std::memcpy(at(rank, kCountsOffset), counts.data(), counts.size() * sizeof(uint64_t));
      request.flags |= kRequestCounts;
      request.count = kCountsOffset;
      request.layout = layout_of(counts);
    });
  }
  // What the root broadcasts stays where it is.
  uint64_t out_elements(int rank) const {
    const bool gives = reference_.collective == Collective::broadcast && rank == reference_.root;
    return gives ? 0 : reference_.outputs(rank);
  }

  void check_rank(uint32_t at_rank) {
    const int rank = static_cast<int>(at_rank);
    const uint64_t count = out_elements(rank);
    const std::byte* out = at(at_rank, request(at_rank).out_offset);
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(get(out, dtype_, i), held(dtype_, reference_.output(rank, i)))
          << name_of(reference_.collective) << " " << name_of(dtype_) << " "
          << name_of(reference_.op) << ", " << ranks_ << " ranks, count " << reference_.count
          << ", rank " << rank << ", element " << i;
    }
    const std::byte* behind = out + count * size_of(dtype_);
    const bool apart = request(at_rank).out_offset == kOutOffset &&
                       (count != 0 || request(at_rank).in_offset < kOutOffset);
    for (int i = 0; apart && i < 64; ++i)
      ASSERT_EQ(behind[i], std::byte{0}) << "written behind the output";
  }

  const Reference reference_;
  const Dtype dtype_;
  const uint32_t ranks_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memories_;
  std::vector<SegmentView> mapped_;
  std::vector<Request> requests_;
  MatchedOp op_read_;
};

}  // namespace tutti::board
