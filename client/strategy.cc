#include "client/strategy.h"

#include <array>
#include <charconv>
#include <string>

#include "proto/segment.h"

namespace tutti::client {
namespace {

struct Name {
  std::string_view text;
  std::string_view json;
  tutti_strategy_kind kind;
};
constexpr std::array kNames = {Name{"auto", "Auto", TUTTI_AUTO},
                               Name{"centralized", "Centralized", TUTTI_CENTRALIZED},
                               Name{"ring", "Ring", TUTTI_RING}};
constexpr std::string_view kTree = "tree:";
constexpr std::string_view kJsonTree = "{\"Tree\":";
constexpr uint32_t kArityMax = (1u << 24) - 1;

std::string without_spaces(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c != ' ' && c != '\t') result.push_back(c);
  return result;
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
  std::string_view bare = text;
  if (bare.starts_with(kTree)) return parse_arity(text, bare.substr(kTree.size()), packed);
  if (bare.starts_with(kJsonTree) && bare.ends_with('}')) {
    bare.remove_suffix(1);
    return parse_arity(text, bare.substr(kJsonTree.size()), packed);
  }
  if (bare.size() > 2 && bare.starts_with('"') && bare.ends_with('"'))
    bare = bare.substr(1, bare.size() - 2);
  for (const Name& name : kNames) {
    if (bare != name.text && bare != name.json) continue;
    packed = pack_strategy(name.kind, 0);
    return {};
  }
  return unknown(text);
}

}  // namespace

Outcome parse_strategies(std::string_view text, PackedStrategies& strategies) {
  const std::string bare = without_spaces(text);
  const size_t comma = bare.find(',');
  Outcome local = parse_one(std::string_view(bare).substr(0, comma), strategies.local);
  if (!local.ok()) return local;
  strategies.global = strategies.local;
  if (comma == std::string::npos) return {};
  return parse_one(std::string_view(bare).substr(comma + 1), strategies.global);
}

}  // namespace tutti::client
