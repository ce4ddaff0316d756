#include "client/operations/tensor_path.h"

#include "proto/board.h"

namespace tutti::client {
namespace {

using Way = TensorPath::Way;
using By = TensorPath::By;

// In groups on one host, tensors of at most this size are copied as a whole.
constexpr uint64_t kCopiedBytesMax = 2 * kBoardBlockBytes;
// Where the caller does not wait, tensors of at most this size are copied as a whole: to wake a
// thread costs more. Those of a caller that will wait soon are left to the ranks of its host that
// wait: the worker, which may have no core of its own, need not be woken.
constexpr uint64_t kUnpassedBytesMax = 8 * kBoardBlockBytes;

// Between hosts the window must hold a whole slice of the engine, whose size grows with the number
// of hosts; rows are slices that it holds.
bool suits_window(const CallShape& call) {
  if (call.lacks_window || !(call.is_elementwise || call.has_rows)) return false;
  if (call.is_local) return call.bytes > kCopiedBytesMax;
  return call.bytes > call.window_bytes / kWindowSlices &&
         (call.has_rows || call.hosts * kSlicePartBytes <= call.window_bytes);
}

bool may_use_thread(const CallShape& call) {
  return call.has_thread && call.stays && call.bytes > kUnpassedBytesMax;
}

By who_folds(const CallShape& call) {
  const bool soon = call.stays && call.is_local && call.bytes <= kUnpassedBytesMax;
  return call.waits || soon ? By::caller : By::worker;
}

}  // namespace

TensorPath choose_path(const CallShape& call) {
  if (call.is_on_gpu) return {Way::device, By::worker};
  if (call.is_list && call.is_local && call.bytes != 0 && !call.lacks_records)
    return {Way::records, who_folds(call)};
  const bool windowed = suits_window(call) && (call.is_list || !call.is_shared);
  if (windowed && call.waits) return {Way::window, By::caller};
  if (windowed && may_use_thread(call)) return {Way::window, By::thread};
  if (!call.lacks_copy) return {Way::whole, who_folds(call)};
  // A list that the segment cannot hold passes all the same, and its call blocks.
  if (windowed && call.is_list) return {Way::window, By::caller};
  return {Way::none, By::caller};
}

}  // namespace tutti::client
