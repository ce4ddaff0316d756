// Strategy text, as people and trainers write it: what is read is a strategy of ours, and is read
// again once it is written, or packed.
#include "daemon/base/strategy.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

void check_strategy(const Strategy& strategy) {
  const bool tree = strategy.kind == StrategyKind::tree;
  require(strategy.kind <= StrategyKind::ring, "a strategy is one of ours");
  require(tree == (strategy.arity >= 1) && strategy.arity <= kArityMax, "trees have an arity");
  const Result<Strategy> again = unpacked(packed(strategy));
  require(again.ok() && *again == strategy, "what is packed is unpacked");
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view text = fuzz::Input(data, size).rest();
  const Result<Strategies> read = parse_strategies(text);
  if (!read.ok()) {
    require(read.status().code() == Code::invalid_argument, "refused");
    return 0;
  }
  check_strategy(read->local);
  check_strategy(read->global);
  const Result<Strategies> again = parse_strategies(to_string(*read));
  require(again.ok() && *again == *read, "what is written is read");
  return 0;
}
