// How the tensors of a call travel between the caller's memory and the operation. Pure: what a call
// is comes in, one of a few ways comes out, and nothing else decides it.
#pragma once

#include <cstdint>

namespace tutti::client {

// What a call is, as far as that counts here.
struct CallShape {
  uint64_t bytes = 0;      // The larger side's; a list's are those of all its tensors.
  bool is_on_gpu = false;  // In the memory of a GPU, or on a stream.
  bool is_list = false;
  bool is_elementwise = true;  // No blocks, and no barrier.
  bool has_rows = false;       // Its blocks may pass through a window in rows: see StagedRows.
  bool is_shared = false;      // A side is in the segment; false for a list.
  // The group:
  bool is_local = true;       // All its ranks are on this host.
  uint32_t hosts = 1;         // That its ranks are on.
  uint64_t window_bytes = 0;  // 0: nothing passes through windows.
  // The caller:
  bool waits = true;        // Until the operation has ended.
  bool stays = false;       // Else: its buffers stay until then, and it will wait soon.
  bool has_thread = false;  // Else: a thread of the group may pass its tensors.
  // What the segment had no room for.
  bool lacks_records = false;
  bool lacks_window = false;
  bool lacks_copy = false;
};

struct TensorPath {
  enum class Way {
    device,   // The worker works on the GPU's memory, or on copies that the GPU makes.
    records,  // A list is used as it is, by its offsets in the segment.
    window,   // Block by block through a small buffer of the segment.
    whole,    // Each side as it is where it is in the segment, else copied there as a whole.
    none,     // The segment has no room.
  };
  // Who folds and passes blocks.
  enum class By {
    caller,  // It waits, or will soon.
    thread,  // Of the group.
    worker,
  };
  Way way = Way::whole;
  By by = By::caller;
  bool operator==(const TensorPath&) const = default;
};

TensorPath choose_path(const CallShape& call);

}  // namespace tutti::client
