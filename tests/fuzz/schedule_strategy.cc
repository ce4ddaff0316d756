// Strategy text, as the daemon reads it and as the client does: what one reads the other reads, as
// the same. What is read and written is read again.
#include "client/strategy.h"
#include "daemon/schedule/schedule.h"
#include "proto/board.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

uint32_t packed(const Strategy& strategy) {
  return pack_strategy(static_cast<uint32_t>(strategy.kind), strategy.arity);
}

void check_strategy(const Strategy& strategy) {
  const bool tree = strategy.kind == StrategyKind::tree;
  require(strategy.kind <= StrategyKind::ring, "a strategy is one of ours");
  require(tree == (strategy.arity >= 1) && strategy.arity <= kArityMax, "trees have an arity");
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view text = fuzz::Input(data, size).rest();
  const Result<Strategies> read = parse_strategies(text);
  client::PackedStrategies theirs;
  const client::Outcome outcome = client::parse_strategies(text, theirs);
  require(read.ok() == outcome.ok(), "client and daemon read the same texts");
  if (!read.ok()) {
    require(read.status().code() == Code::invalid_argument, "the daemon's code");
    require(outcome.code == TUTTI_INVALID_ARGUMENT, "the client's code");
    return 0;
  }
  check_strategy(read->local);
  check_strategy(read->global);
  require(theirs.local == packed(read->local), "the same local strategy");
  require(theirs.global == packed(read->global), "the same global strategy");
  const Result<Strategies> again = parse_strategies(to_string(*read));
  require(again.ok() && *again == *read, "what is written is read");
  return 0;
}
