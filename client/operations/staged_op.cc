#include "client/operations/staged_op.h"

#include <algorithm>

namespace tutti::client {
namespace {

// Blocks to fold in one turn: few, so that they are still in the cache when they are copied out.
constexpr uint32_t kFoldBlocks = 2;

}  // namespace

Status StagedOp::run(Backoff backoff, const std::atomic<bool>* stops) {
  const auto must_stop = [stops] { return stops != nullptr && *stops; };
  bool under_way = true;
  while (under_way && !must_stop() && queue_.group_board().is_under_way(op_.number)) {
    if (make_progress() && !op_.clock.is_late())
      backoff.reset();
    else  // After the deadline the worker is called, and ends what is too slow.
      under_way = queue_.pause(op_, backoff);
  }
  // Before it settles the operation: then the worker may use a common window again.
  const bool is_done = !must_stop() && queue_.group_board().is_done(op_.number);
  while (is_done && copied_out_ < blocks_) copy_out();
  op_.window.is_staging = false;
  if (must_stop()) return {Code::cancelled, "the operation was freed before it had ended"};
  Status outcome = queue_.await_outcome(op_, -1);
  // Then the worker did not wait for this rank to copy.
  if (outcome.ok() && queue_.is_cancelled())
    outcome = {Code::cancelled, "this rank left while the result was copied"};
  static_cast<void>(
      queue_.release(op_));  // Not earlier, because another operation may get the window then.
  return outcome;
}

// Copies a block in, folds some, and copies out those that are done. False: other ranks are behind.
bool StagedOp::make_progress() {
  bool any = copy_in();
  any |= queue_.fold_blocks(op_.number, kFoldBlocks);
  while (copied_out_ < copied_in_ && queue_.group_board().has_result(op_.number, copied_out_)) {
    copy_out();
    any = true;
  }
  return any;
}

// False: all blocks are copied in, or the next one's place in the window is in use.
bool StagedOp::copy_in() {
  if (copied_in_ == blocks_ || copied_in_ == copied_out_ + staged_.window_blocks) return false;
  const auto copy = [this](const TensorSides& tensor, size_t offset, std::byte* window,
                           size_t bytes) {
    if (tensor.in != nullptr) staged_.input_copy(window, tensor.in + offset, bytes);
  };
  if (staged_.rows.part != 0)
    for_each_part(staged_.window, copied_in_, staged_.in_blocks, staged_.rows.in, copy);
  else
    for_each_piece(staged_.window, in_, copied_in_, copy);
  ++copied_in_;
  const bool has_rows = staged_.rows.part != 0;
  const uint32_t slice_blocks = has_rows ? 1 : std::max(1u, staged_.window_blocks / kWindowSlices);
  queue_.set_ready(op_.number, copied_in_, copied_in_ == blocks_ || copied_in_ % slice_blocks == 0);
  return true;
}

// Where results are.
std::byte* StagedOp::results() const {
  if (queue_.group_board().is_local()) return staged_.window;
  const uint64_t bytes = used_window_bytes(staged_.rows, staged_.window_blocks * kBoardBlockBytes,
                                           staged_.count * size_of(staged_.dtype));
  std::byte* const common = queue_.group_board().results(op_.number, bytes);
  return common != nullptr ? common : staged_.window;
}

// Whether results do not fit the cache beside the inputs. What is written over an input is in the
// cache.
bool StagedOp::is_past_cache() const {
  const bool has_rows = staged_.rows.part != 0;
  uint64_t bytes = 0;
  for (const TensorSides& tensor : staged_.tensors) {
    const uint64_t in =
        tensor.in == nullptr ? 0 : tensor.bytes * (has_rows ? staged_.in_blocks : 1);
    const uint64_t out =
        tensor.out == nullptr ? 0 : tensor.bytes * (has_rows ? staged_.out_blocks : 1);
    const bool overlap =
        in != 0 && out != 0 && tensor.in < tensor.out + out && tensor.out < tensor.in + in;
    if (overlap) return false;
    bytes += in + out;
  }
  return queue_.group_board().exceeds_cache(bytes);
}

void StagedOp::copy_out() {
  const auto copy = [this](const TensorSides& tensor, size_t offset, const std::byte* window,
                           size_t bytes) {
    if (tensor.out == nullptr) return;
    if (!past_cache_) return copy_bytes(tensor.out + offset, window, bytes);
    const Target to{tensor.out + offset, Dtype::u8};
    const Operand from{window, Dtype::u8};
    kernel_({&to, 1, &from, 1, bytes, Op::sum, 1, true});
  };
  op_.window.copied_out = copied_out_ + 1;
  std::byte* const window = results();
  if (staged_.rows.part != 0)
    for_each_part(window, copied_out_++, staged_.out_blocks, staged_.rows.out, copy);
  else
    for_each_piece(window, out_, copied_out_++, copy);
}

// Calls `copy` for each tensor's part of a block, at the block's place in the window.
template <class Copy>
void StagedOp::for_each_piece(std::byte* window, Cursor& cursor, uint32_t block, const Copy& copy) {
  const board::StagedBlock elements = board::staged_block(staged_.count, staged_.dtype, block);
  window += place_of(block);
  for (size_t left = elements.count * size_of(staged_.dtype); left != 0;) {
    const TensorSides& tensor = staged_.tensors[cursor.tensor];
    const size_t bytes = std::min(left, tensor.bytes - cursor.offset);
    if (bytes != 0) copy(tensor, cursor.offset, window, bytes);
    window += bytes;
    left -= bytes;
    cursor.offset += bytes;
    if (cursor.offset == tensor.bytes) cursor = {cursor.tensor + 1, 0};
  }
}

// Calls `copy` for each block's part in a row of the side that begins with element `first` of the
// row's place in the window.
template <class Copy>
void StagedOp::for_each_part(std::byte* window, uint32_t row, uint64_t blocks, uint64_t first,
                             const Copy& copy) {
  const StagedRows& rows = staged_.rows;
  const size_t element = size_of(staged_.dtype);
  for (uint64_t block = 0; block < blocks; ++block)
    copy(staged_.tensors.front(), (block * rows.count + rows.first(row)) * element,
         window + place_of(row) + (first + block * rows.part) * element,
         rows.elements(row) * element);
}

}  // namespace tutti::client
