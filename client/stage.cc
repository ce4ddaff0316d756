#include "client/stage.h"

#include <cstring>

namespace tutti::client {
namespace {

// Few, so that what was folded is copied out while it is in the cache.
constexpr uint32_t kHelpBlocks = 2;

}  // namespace

bool Stage::step() {
  bool any = feed();
  any |= board_.help(number_, kHelpBlocks);
  while (taken_ < fed_ && board_.is_folded(number_, taken_)) {
    take();
    any = true;
  }
  return any;
}

void Stage::drain() {
  while (taken_ < blocks_) take();
}

// A block's place is free when the one kStageBlocks before it was taken.
bool Stage::feed() {
  if (fed_ == blocks_ || fed_ == taken_ + kStageBlocks) return false;
  if (staged_.in != nullptr) copy_in(fed_);
  board_.set_ready(number_, ++fed_);
  return true;
}

void Stage::copy_in(uint32_t block) {
  const StagedBlock at = staged_block(staged_.count, staged_.dtype, block);
  const size_t element = size_of(staged_.dtype);
  std::memcpy(staged_.window + at.offset, staged_.in + at.first * element, at.count * element);
}

void Stage::take() {
  const StagedBlock at = staged_block(staged_.count, staged_.dtype, taken_++);
  const size_t element = size_of(staged_.dtype);
  if (staged_.out != nullptr)
    std::memcpy(staged_.out + at.first * element, staged_.window + at.offset, at.count * element);
}

}  // namespace tutti::client
