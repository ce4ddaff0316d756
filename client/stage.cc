#include "client/stage.h"

#include <algorithm>
#include <cstring>

namespace tutti::client {
namespace {

// Few, so that what was folded is copied out while it is in the cache.
constexpr uint32_t kHelpBlocks = 2;

}  // namespace

Status Stage::run(Backoff backoff) {
  bool under_way = true;
  while (under_way && calls_.is_under_way(ticket_)) {
    if (step())
      backoff.reset();
    else
      under_way = calls_.pause(ticket_, backoff);
  }
  ticket_.is_staging = false;
  const Status outcome = calls_.await(ticket_, -1);
  while (outcome.ok() && taken_ < blocks_) take();
  calls_.deliver(ticket_);  // Not before: the window is another call's then.
  return outcome;
}

// Copies a block in, folds some, copies some out, as far as they are there; false: it must wait for
// the other ranks.
bool Stage::step() {
  bool any = feed();
  any |= calls_.help(ticket_.number, kHelpBlocks);
  while (taken_ < fed_ && calls_.is_through(ticket_.number, taken_)) {
    take();
    any = true;
  }
  return any;
}

// A block's place is free when the one that lay there before was taken.
bool Stage::feed() {
  if (fed_ == blocks_ || fed_ == taken_ + staged_.window_blocks) return false;
  walk(in_, fed_, [](const TensorSides& tensor, size_t offset, std::byte* window, size_t bytes) {
    if (tensor.in != nullptr) copy_bytes(window, tensor.in + offset, bytes);
  });
  ++fed_;
  const uint32_t slice = std::max(1u, staged_.window_blocks / kWindowSlices);
  calls_.feed(ticket_.number, fed_, fed_ == blocks_ || fed_ % slice == 0);
  return true;
}

void Stage::take() {
  ticket_.taken = taken_ + 1;
  walk(out_, taken_++,
       [](const TensorSides& tensor, size_t offset, const std::byte* window, size_t bytes) {
         if (tensor.out != nullptr) copy_bytes(tensor.out + offset, window, bytes);
       });
}

// Along one block's elements.
template <class Copy>
void Stage::walk(Cursor& cursor, uint32_t block, const Copy& copy) {
  const board::StagedBlock at = board::staged_block(staged_.count, staged_.dtype, block);
  std::byte* window = staged_.window + block % staged_.window_blocks * kBoardBlockBytes;
  for (size_t left = at.count * size_of(staged_.dtype); left != 0;) {
    const TensorSides& tensor = staged_.tensors[cursor.tensor];
    const size_t bytes = std::min(left, tensor.bytes - cursor.offset);
    if (bytes != 0) copy(tensor, cursor.offset, window, bytes);
    window += bytes;
    left -= bytes;
    cursor.offset += bytes;
    if (cursor.offset == tensor.bytes) cursor = {cursor.tensor + 1, 0};
  }
}

}  // namespace tutti::client
