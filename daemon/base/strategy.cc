#include "daemon/base/strategy.h"

#include <array>
#include <charconv>

#include "proto/board.h"

namespace tutti {
namespace {

struct Name {
  std::string_view text;
  std::string_view json;
};
// By StrategyKind.
constexpr std::array<Name, 4> kNames = {Name{"auto", "\"Auto\""},
                                        {"centralized", "\"Centralized\""},
                                        {"tree", {}},
                                        {"ring", "\"Ring\""}};
constexpr std::string_view kSpace = " \t\r\n";

std::string_view without_space(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Removes `prefix` from the front of `text`, and space around what is left, if it is there.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text = without_space(text.substr(prefix.size()));
  return true;
}

Status unknown_strategy(std::string_view text) {
  return invalid_argument("unknown strategy '" + std::string(text) +
                          "': use centralized, tree:K (K >= 1), ring or auto, or LOCAL,GLOBAL");
}

// The K of "tree:K" or of {"Tree":K}, if `text` is either; what is left of a JSON form is "}".
bool take_tree(std::string_view& text, std::string_view& tail) {
  if (text.starts_with("tree:")) {
    text.remove_prefix(5);
    return true;
  }
  tail = "}";
  return take(text, "{") && take(text, "\"Tree\"") && take(text, ":");
}

Result<Strategy> parse_tree(std::string_view text) {
  std::string_view number = text, tail;
  if (!take_tree(number, tail)) return unknown_strategy(text);
  Strategy tree{StrategyKind::tree};
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), tree.arity);
  if (error != std::errc{}) return unknown_strategy(text);
  if (without_space(number.substr(end - number.data())) != tail) return unknown_strategy(text);
  if (tree.arity > kArityMax)
    return invalid_argument("strategy '" + std::string(text) + "': arity must be at most " +
                            std::to_string(kArityMax));
  if (tree.arity == 0)
    return invalid_argument("strategy '" + std::string(text) + "': arity must be >= 1");
  return tree;
}

}  // namespace

Result<Strategy> parse_strategy(std::string_view text) {
  text = without_space(text);
  for (const StrategyKind kind :
       {StrategyKind::automatic, StrategyKind::centralized, StrategyKind::ring}) {
    const auto [name, json] = kNames[static_cast<size_t>(kind)];
    if (text == name || text == json || text == json.substr(1, json.size() - 2))
      return Strategy{kind};
  }
  return parse_tree(text);
}

Result<Strategies> parse_strategies(std::string_view text) {
  const size_t comma = text.find(',');
  const auto local = parse_strategy(text.substr(0, comma));
  if (!local.ok()) return local.status();
  if (comma == std::string_view::npos) return Strategies{*local, *local};
  const auto global = parse_strategy(text.substr(comma + 1));
  if (!global.ok()) return global.status();
  return Strategies{*local, *global};
}

std::string to_string(const Strategy& strategy) {
  const std::string name(kNames[static_cast<size_t>(strategy.kind)].text);
  return strategy.kind == StrategyKind::tree ? name + ":" + std::to_string(strategy.arity) : name;
}

std::string to_string(const Strategies& strategies) {
  const std::string local = to_string(strategies.local);
  return strategies.local == strategies.global ? local : local + "," + to_string(strategies.global);
}

uint32_t packed(const Strategy& strategy) {
  return pack_strategy(static_cast<uint32_t>(strategy.kind), strategy.arity);
}

Result<Strategy> unpacked(uint32_t packed) {
  const uint32_t kind = packed & 0xff;
  const Strategy strategy{static_cast<StrategyKind>(kind), packed >> 8};
  if (kind > TUTTI_RING) return invalid_argument("unknown strategy " + std::to_string(kind));
  if (kind == TUTTI_TREE && strategy.arity == 0)
    return invalid_argument("a tree's arity must be >= 1");
  if (kind != TUTTI_TREE && strategy.arity != 0)
    return invalid_argument("only a tree has an arity");
  return strategy;
}

Result<Strategies> unpacked(uint32_t local, uint32_t global) {
  const Result<Strategy> within = unpacked(local);
  if (!within.ok()) return within.status();
  const Result<Strategy> among = unpacked(global);
  return among.ok() ? Result<Strategies>(Strategies{*within, *among}) : among.status();
}

}  // namespace tutti
