// Requests that ranks match and fold, in segments of whose bytes anything may be said. What is
// matched touches nothing outside of the segments; address sanitizer looks.
#include <cstring>
#include <memory>

#include "daemon/base/signature.h"
#include "daemon/board/board.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

constexpr uint64_t kSegmentBytes = kArenaOffset + 64 * 1024;
constexpr uint64_t kStagedBytes = kArenaOffset + kWindowBlocks * kBoardBlockBytes;

// Gives requests with counts the layout of what lies where they say.
void set_layout(board::MemberRequest& asked) {
  Request& request = asked.request;
  if ((request.flags & kRequestCounts) == 0) return;
  const uint64_t counts = request.collective == TUTTI_ALL_TO_ALL ? 4 : 2;
  request.count = kArenaOffset + request.count % 64 * sizeof(uint64_t);
  const auto* at = reinterpret_cast<const uint64_t*>(asked.memory.base + request.count);
  request.layout = layout_of({at, counts});
}

void fold(board::MatchedOp& op) {
  constexpr uint32_t kBlocksMax = 64;  // Staged tensors may be of any length.
  for (uint32_t block = 0; block < std::min(op.blocks, kBlocksMax); ++block)
    run_block(op, block, choose_kernel());
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Input input(data, size);
  std::vector<board::MemberRequest> asked(2);
  for (board::MemberRequest& one : asked) one.request = input.take<Request>();
  const bool staged = ((asked[0].request.flags | asked[1].request.flags) & kRequestStaged) != 0;
  const uint64_t bytes = staged ? kStagedBytes : kSegmentBytes;
  std::vector<std::unique_ptr<std::byte[]>> segments;
  const std::string_view records = input.rest().substr(0, 4096);
  for (board::MemberRequest& one : asked) {
    segments.push_back(std::make_unique<std::byte[]>(bytes));
    std::memcpy(segments.back().get() + kArenaOffset, records.data(), records.size());
    one.memory = {segments.back().get(), bytes};
    set_layout(one);
  }
  board::MatchedOp op;
  if (!board::match(asked, op)) return 0;
  const board::Decision decision = board::decide(op);
  const bool empty = decision.next == board::Phase::done;
  if (empty != (op.blocks == 0)) __builtin_trap();
  fold(op);
  return 0;
}
