// Strategies: their text, and the numbers that requests carry.
#include "daemon/base/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "proto/board.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr Strategy kCentral{StrategyKind::centralized};
constexpr Strategy kRing{StrategyKind::ring};
constexpr Strategy tree(uint32_t arity) { return {StrategyKind::tree, arity}; }

TEST(StrategyText, EveryFormIsRead) {
  const std::vector<std::pair<std::string, Strategy>> forms = {{"ring", kRing},
                                                               {"centralized", kCentral},
                                                               {"auto", {}},
                                                               {"tree:3", tree(3)},
                                                               {"\"Ring\"", kRing},
                                                               {"\"Centralized\"", kCentral},
                                                               {"Auto", {}},
                                                               {"\"Auto\"", {}},
                                                               {"Ring", kRing},
                                                               {"{\"Tree\":3}", tree(3)},
                                                               {" Auto\r\n", {}},
                                                               {"tree:16777215", tree(kArityMax)},
                                                               {" { \"Tree\" : 12 } ", tree(12)}};
  for (const auto& [text, strategy] : forms) {
    const auto parsed = parse_strategy(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().message();
    EXPECT_EQ(*parsed, strategy) << text;
  }
}

TEST(StrategyText, ArityZeroIsRefusedByName) {
  for (const char* text : {"tree:0", "{\"Tree\":0}"}) {
    const auto parsed = parse_strategy(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::invalid_argument);
    EXPECT_THAT(parsed.status().message(), HasSubstr("arity must be >= 1")) << text;
  }
}

TEST(StrategyText, AnythingElseIsRefusedWithTheFormsThatExist) {
  for (const char* text : {"",
                           " ",
                           "tree",
                           "tree:",
                           "tree:-1",
                           "tree:+1",
                           "tree: 1",
                           "tree:1x",
                           "tree:4294967296",
                           "star",
                           "RING",
                           "ring ring",
                           "{\"Tree\":1",
                           "{\"Tree\":}",
                           "{\"Ring\":1}",
                           "tree:1}",
                           "{\"Tree\":\"1\"}",
                           "\"ring",
                           "ring,ring",
                           "\"",
                           "\"\"",
                           "r ing",
                           "tree:x",
                           "\"ring\"",
                           "{\"Tr ee\":2}"}) {
    const auto parsed = parse_strategy(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::invalid_argument);
    EXPECT_THAT(parsed.status().message(), HasSubstr("use centralized, tree:K (K >= 1), ring"));
  }
}

TEST(StrategyText, ArityPastWhatANumberHoldsIsRefused) {
  for (const char* text : {"tree:16777216", "{\"Tree\":16777216}"})
    EXPECT_THAT(parse_strategy(text).status().message(), HasSubstr("at most 16777215")) << text;
}

TEST(StrategyText, OneOrAPair) {
  EXPECT_EQ(*parse_strategies("ring"), (Strategies{kRing, kRing}));
  EXPECT_EQ(*parse_strategies("tree:2,ring"), (Strategies{tree(2), kRing}));
  EXPECT_EQ(*parse_strategies("{\"Tree\":2}, \"Ring\""), (Strategies{tree(2), kRing}));
  for (const char* text :
       {"", ",", "ring,", ",ring", "ring,star", "ring,ring,ring", "tree:0,ring", "ring,tree:0"})
    EXPECT_EQ(parse_strategies(text).status().code(), Code::invalid_argument) << text;
}

TEST(StrategyText, PrintsWhatItReads) {
  for (const char* text : {"ring", "centralized", "auto", "tree:7"})
    EXPECT_EQ(to_string(*parse_strategy(text)), text);
  for (const char* text : {"ring", "tree:2,ring", "auto,centralized"})
    EXPECT_EQ(to_string(*parse_strategies(text)), text);
  EXPECT_EQ(to_string(*parse_strategies("tree:2,tree:2")), "tree:2");
}

TEST(PackedStrategy, IsReadAsItWasWritten) {
  EXPECT_EQ(packed({}), pack_strategy(TUTTI_AUTO, 0));
  EXPECT_EQ(packed(kRing), pack_strategy(TUTTI_RING, 0));
  EXPECT_EQ(packed(tree(3)), pack_strategy(TUTTI_TREE, 3));
  for (const Strategy& strategy : {Strategy{}, kCentral, kRing, tree(1), tree(kArityMax)})
    EXPECT_EQ(*unpacked(packed(strategy)), strategy);
}

TEST(PackedStrategy, NumbersOfNoStrategyAreRefused) {
  for (const uint32_t number : {pack_strategy(TUTTI_TREE, 0), pack_strategy(TUTTI_RING, 1),
                                pack_strategy(4, 0), pack_strategy(255, 1), UINT32_MAX})
    EXPECT_EQ(unpacked(number).status().code(), Code::invalid_argument) << number;
}

}  // namespace
}  // namespace tutti
