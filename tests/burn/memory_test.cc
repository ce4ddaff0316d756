// What becomes of peers when memory runs out at any point of a call: none waits for ever, and none
// that is gone is remembered.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/burn/peers.h"

namespace {

// Allocations of this thread that still succeed; below 0: all.
thread_local int allowed = -1;

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allowed >= 0 && allowed-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tutti::burn {
namespace {

constexpr int kAllocations = 200;  // More than a call makes until it fails.

// Calls with so few allocations, of which the next one throws.
template <class Call>
void with_allocations(int count, const Call& call) {
  allowed = count;
  try {
    call();
  } catch (const std::bad_alloc&) {
    EXPECT_LT(allowed, 0);
  }
  allowed = -1;
}

TEST(Memory, ThatRunsOutWhileJoiningLeavesNoPeer) {
  setenv("TUTTI_SOCKET", "/nowhere/tuttid.sock", 1);
  setenv("TUTTI_RANK", "0", 1);
  CollectiveConfig several = config_of(1);
  several.num_nodes = 2;
  several.global_address = "ws://an.orchestrator.with.a.long.name:3000";
  several.node_address = "ws://here";
  several.data_service_port = 3001;
  for (int count = 0; count < kAllocations; ++count) {
    SCOPED_TRACE(count);
    Collective collective({.timeout_ms = 1000});
    with_allocations(count, [&] { EXPECT_FALSE(collective.register_peer(0, several).ok()); });
    ASSERT_TRUE(collective.register_peer(0, config_of(1)).ok());
    EXPECT_TRUE(collective.finish_collective(0).ok());
  }
}

TEST(Memory, ThatRunsOutInACallLeavesNoCall) {
  const Values<> one = list({1});
  for (int count = 0; count < kAllocations; ++count) {
    SCOPED_TRACE(count);
    Collective collective({.timeout_ms = 1000});
    ASSERT_TRUE(collective.register_peer(0, config_of(1)).ok());
    with_allocations(count, [&] {
      const auto sum = collective.all_reduce(0, one.view(), ReduceOperation::sum);
      EXPECT_TRUE(sum.ok() || sum.status().code() == Code::resource_exhausted);
    });
    EXPECT_TRUE(collective.all_reduce(0, one.view(), ReduceOperation::sum).ok());
    EXPECT_TRUE(collective.finish_collective(0).ok());
  }
}

}  // namespace
}  // namespace tutti::burn
