// Windows on the board for results that ranks of a host have in common, and copy out from there.
//
// A place of one is written again for the block that follows by a window's length. By then every
// rank has copied the earlier result out: before, it does not copy that block of its input in.
#pragma once

#include <vector>

#include "daemon/engine/engine.h"
#include "daemon/session/board_ops.h"

namespace tutti {

class ResultWindows {
 public:
  // `wire`: of the board's wire memory. Both must outlive it.
  ResultWindows(const BoardOps& ops, ScratchPool& wire) : ops_(ops), wire_(wire) {}

  // For an operation that begins; its ranks learn of it with the first result. The window is used
  // again once all of them have settled the operation. Null: there is no room.
  std::byte* make(const BoardOp& op, uint64_t bytes);

 private:
  struct Window {
    const HostGroup* group = nullptr;
    uint64_t number = 0;
    ScratchPool::Block block;
  };
  static bool is_in_use(const Window& window);

  const BoardOps& ops_;
  ScratchPool& wire_;
  std::vector<Window> windows_;
};

}  // namespace tutti
