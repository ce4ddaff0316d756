// Runs an operation on ordinary memory block by block through a window, a small bounce buffer in
// the segment (kRequestStaged in proto/board.h). A large tensor so passes through the cache once: a
// block is copied in, folded and copied out. A list of tensors passes as if it were concatenated, a
// tensor with blocks row by row (daemon/base/staged_rows.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "client/operations/input_copy.h"
#include "client/operations/op_queue.h"
#include "client/rank/tensor_sides.h"
#include "daemon/board/board.h"

namespace tutti::client {

// What passes through the window.
struct StagedTensors {
  std::span<const TensorSides> tensors;
  std::byte* window = nullptr;  // In the segment.
  uint32_t window_blocks = 0;   // Or rows, that it holds.
  uint64_t count = 0;           // Elements of all tensors.
  Dtype dtype = Dtype::f32;
  InputCopy input_copy;
  // Where the one tensor has blocks, and how many its sides have; else the part is 0.
  StagedRows rows;
  uint64_t in_blocks = 0;
  uint64_t out_blocks = 0;
};

class StagedOp {
 public:
  // `op` was submitted with kRequestStaged.
  StagedOp(OpQueue& queue, PendingOp& op, const StagedTensors& staged)
      : queue_(queue),
        op_(op),
        staged_(staged),
        blocks_(staged.rows.part != 0 ? static_cast<uint32_t>(staged.rows.rows())
                                      : board::staged_blocks(staged.count, staged.dtype)),
        past_cache_(is_past_cache()) {}

  // Blocks until the operation has an outcome, copies out, releases the window, and returns the
  // outcome. CANCELLED: `stops` became true before; the window is still held.
  Status run(Backoff backoff, const std::atomic<bool>* stops = nullptr);

 private:
  // A position in the list of tensors.
  struct Cursor {
    size_t tensor = 0;
    size_t offset = 0;
  };

  bool is_past_cache() const;
  bool make_progress();
  bool copy_in();
  void copy_out();
  std::byte* results() const;
  template <class Copy>
  void for_each_piece(std::byte* window, Cursor& cursor, uint32_t block, const Copy& copy);
  template <class Copy>
  void for_each_part(std::byte* window, uint32_t row, uint64_t blocks, uint64_t first,
                     const Copy& copy);
  // Where it lies in a window.
  uint64_t place_of(uint32_t block) const {
    return staged_.rows.part != 0 ? staged_.rows.offset(block)
                                  : block % staged_.window_blocks * kBoardBlockBytes;
  }

  OpQueue& queue_;
  PendingOp& op_;
  const StagedTensors staged_;
  const uint32_t blocks_;
  const bool past_cache_;
  const Kernel kernel_ = choose_kernel();
  uint32_t copied_in_ = 0;  // Numbers of blocks.
  uint32_t copied_out_ = 0;
  Cursor in_;
  Cursor out_;
};

}  // namespace tutti::client
