// Windows on the board for results that ranks of a host have in common, and copy out from there.
//
// A place of one is written again for the block that follows by a window's length. By then every
// rank that lives has copied the earlier result out: before, it does not copy that block of its
// input in.
#pragma once

#include <vector>

#include "daemon/session/board_ops.h"

namespace tutti {

class ResultWindows {
 public:
  // `window_bytes`: of each. `ops` must outlive it.
  ResultWindows(const BoardOps& ops, uint64_t window_bytes);

  // For an operation that begins; its ranks learn of it with the first result. The window is used
  // again once all of them have settled the operation, or are gone. Null: there is none.
  std::byte* make(const BoardOp& op, uint64_t bytes);

 private:
  struct Window {
    const HostGroup* group = nullptr;
    uint64_t number = 0;
    uint64_t offset = 0;  // In wire memory.
  };
  static bool is_in_use(const Window& window);

  const BoardOps& ops_;
  const uint64_t window_bytes_;  // A multiple of kResultsMultiple.
  std::vector<Window> used_;
  std::vector<uint64_t> free_;  // Offsets, descending at first.
};

}  // namespace tutti
