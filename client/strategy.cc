#include "client/strategy.h"

#include <array>
#include <charconv>
#include <string>

#include "proto/board.h"

namespace tutti::client {
namespace {

struct Name {
  std::string_view text;
  std::string_view json;
  std::string_view quoted;
  tutti_strategy_kind kind;
};
constexpr std::array kNames = {
    Name{"auto", "Auto", "\"Auto\"", TUTTI_AUTO},
    Name{"centralized", "Centralized", "\"Centralized\"", TUTTI_CENTRALIZED},
    Name{"ring", "Ring", "\"Ring\"", TUTTI_RING}};
constexpr std::string_view kTree = "tree:";
constexpr std::string_view kSpace = " \t\r\n";
constexpr uint32_t kArityMax = (1u << 24) - 1;

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Removes `part` from the front of `text`, and space around what is left, if it is there.
bool take(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text = trim(text.substr(part.size()));
  return true;
}

// Likewise from the end.
bool take_back(std::string_view& text, char part) {
  if (!text.ends_with(part)) return false;
  text = trim(text.substr(0, text.size() - 1));
  return true;
}

// The K of {"Tree":K}, if `text` is that.
bool take_json_tree(std::string_view& text) {
  return take(text, "{") && take(text, "\"Tree\"") && take(text, ":") && take_back(text, '}');
}

Outcome unknown(std::string_view text) {
  return failure(TUTTI_INVALID_ARGUMENT,
                 "unknown strategy '" + std::string(text) +
                     "'; use auto, centralized, ring or tree:K (K >= 1), or LOCAL,GLOBAL");
}

Outcome parse_arity(std::string_view text, std::string_view digits, uint32_t& packed) {
  uint32_t arity = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), arity);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || arity > kArityMax) return unknown(text);
  if (arity == 0)
    return failure(TUTTI_INVALID_ARGUMENT,
                   "strategy '" + std::string(text) + "': arity must be >= 1");
  packed = pack_strategy(TUTTI_TREE, arity);
  return {};
}

Outcome parse_one(std::string_view text, uint32_t& packed) {
  text = trim(text);
  if (text.starts_with(kTree)) return parse_arity(text, text.substr(kTree.size()), packed);
  if (std::string_view digits = text; take_json_tree(digits))
    return parse_arity(text, digits, packed);
  for (const Name& name : kNames) {
    if (text != name.text && text != name.json && text != name.quoted) continue;
    packed = pack_strategy(name.kind, 0);
    return {};
  }
  return unknown(text);
}

}  // namespace

Outcome parse_strategies(std::string_view text, PackedStrategies& strategies) {
  const size_t comma = text.find(',');
  Outcome local = parse_one(text.substr(0, comma), strategies.local);
  if (!local.ok()) return local;
  strategies.global = strategies.local;
  if (comma == std::string::npos) return {};
  return parse_one(text.substr(comma + 1), strategies.global);
}

}  // namespace tutti::client
