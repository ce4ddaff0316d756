#include <charconv>

#include "daemon/schedule/schedule.h"

namespace tutti {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Removes `prefix` from the front of `text`, and space around what is left, if it is there.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text = trim(text.substr(prefix.size()));
  return true;
}

Status unknown_strategy(std::string_view text) {
  return invalid_argument("unknown strategy '" + std::string(text) +
                          "': use centralized, tree:K (K >= 1), ring or auto");
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
  if (trim(number.substr(end - number.data())) != tail) return unknown_strategy(text);
  if (tree.arity > kArityMax)
    return invalid_argument("strategy '" + std::string(text) + "': arity must be at most " +
                            std::to_string(kArityMax));
  if (tree.arity == 0)
    return invalid_argument("strategy '" + std::string(text) + "': arity must be >= 1");
  return tree;
}

}  // namespace

Result<Strategy> parse_strategy(std::string_view text) {
  text = trim(text);
  if (text == "auto" || text == "\"Auto\"" || text == "Auto")
    return Strategy{StrategyKind::automatic};
  if (text == "centralized" || text == "\"Centralized\"" || text == "Centralized")
    return Strategy{StrategyKind::centralized};
  if (text == "ring" || text == "\"Ring\"" || text == "Ring") return Strategy{StrategyKind::ring};
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
  switch (strategy.kind) {
    case StrategyKind::automatic:
      return "auto";
    case StrategyKind::centralized:
      return "centralized";
    case StrategyKind::ring:
      return "ring";
    case StrategyKind::tree:
      break;
  }
  return "tree:" + std::to_string(strategy.arity);
}

std::string to_string(const Strategies& strategies) {
  const std::string local = to_string(strategies.local);
  return strategies.local == strategies.global ? local : local + "," + to_string(strategies.global);
}

}  // namespace tutti
