// Which way a tensor takes, as a table: the shape of a call, and its path.
#include "client/operations/tensor_path.h"

#include <gtest/gtest.h>

#include "proto/board.h"

namespace tutti::client {
namespace {

using Way = TensorPath::Way;
using By = TensorPath::By;

constexpr uint64_t kBlock = kBoardBlockBytes;
constexpr uint64_t kWindow = 64 * kBlock;  // Of a group over hosts.
constexpr uint64_t kSlice = kWindow / kWindowSlices;

struct Case {
  const char* name;
  CallShape call;
  TensorPath path;
};

void PrintTo(const Case& row, std::ostream* to) { *to << row.name; }

// A call that waits, with ordinary memory.
constexpr CallShape waiting(uint64_t bytes) { return {.bytes = bytes}; }
constexpr CallShape over_hosts(uint64_t bytes, uint32_t hosts = 2) {
  return {.bytes = bytes, .is_local = false, .hosts = hosts, .window_bytes = kWindow};
}
// A call that returns a handle.
constexpr CallShape started(CallShape call, bool stays = false, bool has_thread = false) {
  call.waits = false;
  call.stays = stays;
  call.has_thread = has_thread;
  return call;
}
constexpr CallShape list(CallShape call) {
  call.is_list = true;
  return call;
}
constexpr CallShape lacking(CallShape call, bool records, bool window = false, bool copy = false) {
  call.lacks_records = records;
  call.lacks_window = window;
  call.lacks_copy = copy;
  return call;
}
constexpr CallShape shared(CallShape call) {
  call.is_shared = true;
  return call;
}
constexpr CallShape with_blocks(CallShape call, bool in_rows = true) {
  call.is_elementwise = false;
  call.has_rows = in_rows;
  return call;
}
constexpr CallShape on_gpu(CallShape call) {
  call.is_on_gpu = true;
  return call;
}

const Case kCases[] = {
    // One tensor on one host.
    {"Empty", waiting(0), {Way::whole, By::caller}},
    {"Small", waiting(2 * kBlock), {Way::whole, By::caller}},
    {"Large", waiting(2 * kBlock + 1), {Way::window, By::caller}},
    {"LargeInTheSegment", shared(waiting(9 * kBlock)), {Way::whole, By::caller}},
    {"LargeWithCounts", with_blocks(waiting(9 * kBlock), false), {Way::whole, By::caller}},
    {"LargeWithBlocks", with_blocks(waiting(9 * kBlock)), {Way::window, By::caller}},
    {"SmallWithBlocks", with_blocks(waiting(2 * kBlock)), {Way::whole, By::caller}},
    {"PassedWithBlocks",
     with_blocks(started(waiting(9 * kBlock), true, true)),
     {Way::window, By::thread}},
    {"LargeWithoutRoomForAWindow",
     lacking(waiting(9 * kBlock), false, true),
     {Way::whole, By::caller}},
    // Nobody waits.
    {"StartedSmall", started(waiting(kBlock)), {Way::whole, By::worker}},
    {"StartedLarge", started(waiting(9 * kBlock)), {Way::whole, By::worker}},
    {"ThreadWithoutPromise", started(waiting(9 * kBlock), false, true), {Way::whole, By::worker}},
    {"PromiseWithoutThread", started(waiting(9 * kBlock), true), {Way::whole, By::worker}},
    {"PassedSmall", started(waiting(8 * kBlock), true, true), {Way::whole, By::caller}},
    {"PassedLarge", started(waiting(8 * kBlock + 1), true, true), {Way::window, By::thread}},
    {"PassedWithoutRoomForAWindow",
     lacking(started(waiting(9 * kBlock), true, true), false, true),
     {Way::whole, By::worker}},
    // Over several hosts.
    {"HostsSmall", over_hosts(kSlice), {Way::whole, By::caller}},
    {"HostsLarge", over_hosts(kSlice + 1), {Way::window, By::caller}},
    {"HostsStartedSmall", started(over_hosts(kBlock), true), {Way::whole, By::worker}},
    {"HostsPassed",
     started(over_hosts(9 * kBlock + kSlice), true, true),
     {Way::window, By::thread}},
    {"AsManyHostsAsTheWindowServes",
     over_hosts(kSlice + 1, kWindow / kSlicePartBytes),
     {Way::window, By::caller}},
    {"TooManyHostsForTheWindow",
     over_hosts(kSlice + 1, kWindow / kSlicePartBytes + 1),
     {Way::whole, By::caller}},
    {"HostsWithoutWindows",
     {.bytes = 9 * kBlock, .is_local = false, .hosts = 2},
     {Way::whole, By::caller}},
    // Lists, and what they lead to one after the other.
    {"List", list(waiting(9 * kBlock)), {Way::records, By::caller}},
    {"ListStarted", list(started(waiting(9 * kBlock))), {Way::records, By::worker}},
    {"ListStays", list(started(waiting(kBlock), true)), {Way::records, By::caller}},
    {"ListEmpty", list(waiting(0)), {Way::whole, By::caller}},
    {"ListInOrdinaryMemory", lacking(list(waiting(9 * kBlock)), true), {Way::window, By::caller}},
    {"ListSmall", lacking(list(waiting(kBlock)), true), {Way::whole, By::caller}},
    {"ListPassed",
     lacking(list(started(waiting(9 * kBlock), true, true)), true),
     {Way::window, By::thread}},
    {"ListWithoutRoomForAWindow",
     lacking(list(waiting(9 * kBlock)), true, true),
     {Way::whole, By::caller}},
    {"ListStartedInOrdinaryMemory",
     lacking(list(started(waiting(9 * kBlock))), true),
     {Way::whole, By::worker}},
    {"ListStartedWithoutRoomForACopyWaits",
     lacking(list(started(waiting(9 * kBlock))), true, false, true),
     {Way::window, By::caller}},
    {"ListWithoutAnyRoom", lacking(list(waiting(9 * kBlock)), true, true, true), {Way::none}},
    {"ListTooSmallForAWindowWithoutRoom",
     lacking(list(waiting(kBlock)), true, false, true),
     {Way::none}},
    {"ListOverHosts", list(over_hosts(kSlice + 1)), {Way::window, By::caller}},
    {"ListOverHostsSmall", list(over_hosts(kSlice)), {Way::whole, By::caller}},
    // GPUs.
    {"OnGpu", on_gpu(waiting(1)), {Way::device, By::worker}},
    {"OnGpuLarge", on_gpu(started(waiting(9 * kBlock), true, true)), {Way::device, By::worker}},
    {"OnGpuList", list(on_gpu(over_hosts(kSlice + 1))), {Way::device, By::worker}},
};

class TensorPathTest : public ::testing::TestWithParam<Case> {};

TEST_P(TensorPathTest, IsTheOneOfTheTable) {
  const TensorPath path = choose_path(GetParam().call);
  EXPECT_EQ(static_cast<int>(path.way), static_cast<int>(GetParam().path.way));
  EXPECT_EQ(static_cast<int>(path.by), static_cast<int>(GetParam().path.by));
}

INSTANTIATE_TEST_SUITE_P(Calls, TensorPathTest, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace tutti::client
