// The house rules, over the repository's own files. Each rule also proves here that it can fail.
#include <gtest/gtest.h>

#include "tests/tidy/format.h"
#include "tests/tidy/includes.h"
#include "tests/tidy/words.h"

namespace tutti::tidy {
namespace {

struct Sample {
  std::string path;
  std::string text;
};

struct Rule {
  std::string name;
  void (*check)(const Source& source, Findings& findings);
  std::vector<Sample> bad;
  std::vector<Sample> good;
  std::vector<Source> (*read)(const std::filesystem::path& root) = read_repository;
};

void PrintTo(const Rule& rule, std::ostream* to) { *to << rule.name; }

std::string repeat(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string function_of(size_t lines, const std::string& indent = "") {
  return indent + "int f() {\n" + repeat(indent + "  g();\n", lines - 2) + indent + "}\n";
}

Sample includes(const std::string& path, const std::string& header) {
  return {path, "#include " + header + "\n"};
}

const Rule kIncludeRule = {
    "Includes",
    check_includes,
    {
        includes("daemon/schedule/ring.cc", "\"daemon/engine/engine.h\""),   // Upward.
        includes("daemon/control/join.cc", "\"daemon/session/session.h\""),  // Sideways.
        includes("daemon/agent/main.cc", "\"daemon/worker/worker.h\""),      // Sideways.
        includes("daemon/engine/run.cc", "\"daemon/device/staging.h\""),     // No door.
        includes("daemon/engine/run.cc", "\"daemon/kernel/arithmetic.h\""),  // A device's.
        includes("daemon/kernel/half.h", "\"daemon/base/status.h\""),        // Sideways.
        includes("client/tutti.cc", "\"daemon/kernel/arithmetic.h\""),       // No door.
        includes("daemon/engine/run.cc", "\"daemon/schedule/checker.h\""),   // For tests.
        includes("daemon/engine/run.cc", "\"daemon/cellar/cellar.h\""),      // No room.
        includes("daemon/engine/run.cc", "\"engine.h\""),                    // Not from the root.
        includes("daemon/engine/run.cc", "\"tests/fake.h\""),                // A test's.
        includes("daemon/engine/run.cc", "\"client/tutti.h\""),              // Only the bench's.
        includes("daemon/base/fd.h", "\"daemon/schedule/schedule.h\""),      // Upward.
        includes("client/tutti.cc", "\"daemon/base/loop.h\""),               // The daemon's.
        includes("client/tutti.cc", "\"client/faces/base/base.h\""),         // A face's.
        includes("client/rank/a.cc", "\"client/operations/op_queue.h\""),    // Upward.
        includes("client/faces/burn/a.cc", "\"client/rank/clock.h\""),       // The library's own.
        includes("daemon/bench/run.cc", "\"client/rank/clock.h\""),          // The library's own.
        includes("client/tutti.cc", "\"client/cellar/a.h\""),                // No room.
        includes("client/faces/burn/a.cc", "\"client/faces/base/fold.h\""),  // No door.
        includes("client/faces/burn/a.cc", "\"client/faces/distribute/ring.h\""),  // Another face.
        includes("client/tutti.cc", "\"proto/session.pb.h\""),                     // Protobuf.
        includes("client/tutti.cc", "<spdlog/spdlog.h>"),                          // A library.
        includes("proto/frame.h", "\"daemon/base/status.h\""),                     // Upward.
        includes("tests/engine/engine_test.cc",
                 "\"daemon/device/staging.h\""),                            // Another's inside.
        includes("tests/fuzz/engine_x.cc", "\"daemon/device/staging.h\""),  // Likewise.
        includes("daemon/engine/run.cc", "<grpcpp/grpcpp.h>"),
        includes("daemon/engine/run.cc", "<cuda_runtime_api.h>"),
        includes("daemon/engine/run.cc", "<spdlog/spdlog.h>"),
        includes("daemon/control/control.cc", "<CLI/CLI.hpp>"),
        includes("daemon/control/control.cc", "<gtest/gtest.h>"),
        includes("daemon/engine/run.cc", "<sys/mman.h>"),
        includes("daemon/device/host.cc", "<sys/un.h>"),
        includes("daemon/control/control.cc", "<google/protobuf/message.h>"),
    },
    {
        includes("daemon/engine/run.cc", "\"daemon/engine/slice.h\""),
        includes("daemon/engine/run.cc", "\"daemon/device/device.h\""),
        includes("daemon/engine/run.cc", "\"daemon/base/fd.h\""),
        includes("daemon/kernel/x86/avx2.cc", "\"daemon/kernel/loops.h\""),
        includes("daemon/device/device.h", "\"daemon/kernel/kernel.h\""),
        includes("daemon/device/reduce.cu", "\"daemon/kernel/arithmetic.h\""),
        includes("client/rank/board.cc", "\"daemon/kernel/kernel.h\""),
        includes("client/rank/board.cc", "\"daemon/base/status.h\""),
        includes("client/rank/error.h", "\"client/tutti.h\""),
        includes("client/messages/a.cc", "\"client/messages/inbox.h\""),
        includes("client/messages/a.cc", "\"client/rank/clock.h\""),
        includes("client/tutti.cc", "\"client/messages/messages.h\""),
        includes("tests/client/join_test.cc", "\"client/rank/join.h\""),
        includes("daemon/bench/run.cc", "\"client/tutti.hpp\""),
        includes("tests/schedule/schedule_test.cc", "\"daemon/schedule/checker.h\""),
        includes("tests/engine/engine_test.cc", "\"daemon/schedule/checker.h\""),
        includes("tests/engine/engine_test.cc", "\"daemon/engine/slice.h\""),
        includes("tests/fuzz/engine_x.cc", "\"daemon/engine/slice.h\""),
        includes("tests/engine/engine_test.cc", "\"daemon/session/session.h\""),
        includes("client/tutti.cc", "\"proto/segment.h\""),
        includes("client/faces/burn/a.cc", "\"client/faces/base/base.h\""),
        includes("client/faces/burn/c_api.cc", "\"client/faces/frameworks/last_error.h\""),
        includes("client/tutti.cc", "<sys/mman.h>"),
        includes("client/tutti.cc", "<atomic>"),
        includes("daemon/base/log.cc", "<spdlog/spdlog.h>"),
        includes("daemon/device/host.cc", "<sys/mman.h>"),
    }};

const std::vector<Rule> kRules = {
    kIncludeRule,
    {"Memfd",
     check_memfd,
     {{"daemon/engine/run.cc",
       "memfd"
       "_create(\"x\", 0);\n"}},
     {{"daemon/session/segment.cc",
       "memfd"
       "_create(\"x\", 0);\n"}}},
    {"FileLength",
     check_length,
     {{"a.cc", repeat("int x;\n", 600)}, {"a.py", repeat("x = 1\n", 600)}},
     {{"a.cc", repeat("int x;\n", 349)}}},
    {"Columns",
     check_columns,
     {{"a.cc", repeat("x", 101) + "\n"}},
     {{"a.cc", repeat("x", 100) + "\n"}, {"a.cc", repeat("µ", 100) + "\n"}}},
    {"Blanks",
     check_blanks,
     {{"a.cc", "int x;\n\tint y;\n"}, {"a.cc", "int x; \n"}, {"a.cc", "int x;\r\n"}},
     {{"a.cc", "  int x;\n\n"}}},
    {"Leftovers",
     check_leftovers,
     {{"a.cc",
       "// TO"
       "DO: later\n"},
      {"a.py",
       "# FIX"
       "ME\n"},
      {"a.cc",
       "// XX"
       "X\n"},
      {"a.cc",
       "// HA"
       "CK\n"}},
     {{"a.cc", "mkstemp(\"XXXXXX\");\n"}}},
    {"Forks",
     check_forks,
     {{"daemon/a.cc", "#ifdef __linux__\n"},
      {"daemon/a.h", "#ifndef A_H\n"},
      {"daemon/a.h", "#ifdef __cplusplus\n"},
      {"client/a.h", "#if defined(_WIN32)\n"},
      {"client/a.cc", "# if 0\n"}},
     {{"proto/a.h", "#ifdef __cplusplus\n"},
      {"client/a.h", "#if __has_include(<span>)\n"},
      {"daemon/a.cc", "if (x) return;\n"}}},
    {"Headers",
     check_headers,
     {{"a.h", "int x;\n"}, {"a.h", "#pragma once\nusing namespace std;\n"}},
     {{"a.h", "#pragma once\nusing A = B;\n"}, {"a.cc", "using namespace std;\n"}}},
    {"Waits",
     check_waits,
     {{"tests/a.cc",
       "std::this_thread::sleep"
       "_for(x);\n"},
      {"tests/a.cc",
       "usl"
       "eep(10);\n"},
      {"tests/a.cc",
       "while (!done() && Clock::n"
       "ow() < limit) poll(nullptr, 0, 5);\n"}},
     {{"tests/a.cc", "loop.run_once(far());\n"},
      {"daemon/a.cc",
       "usl"
       "eep(10);\n"}}},
    {"FunctionLength",
     check_functions,
     {{"a.cc", "int x;\n" + function_of(61)},
      {"a.h", "class A {\n" + function_of(61, "  ") + "};\n"},
      {"a.cc", "void f(int a,\n       int b) {\n" + repeat("  g();\n", 58) + "}\n"},
      {"a.py", "def f(\n    a,\n):\n" + repeat("    g()\n\n", 29) + "    g()\n"}},
     {{"a.cc", function_of(60) + function_of(60)},
      {"a.h", "struct A {\n" + function_of(60, "  ") + repeat("  int x;\n", 90) + "};\n"},
      {"a.cc", "namespace {\n" + repeat("int x;\n\n", 90) + "}\n"},
      {"a.py", "def f():\n" + repeat("    g()\n", 59) + "\n\ndef h():\n    g()\n"}}},
    {"ClassFunctions",
     check_classes,
     {{"daemon/a.h", "class A {\n" + repeat("  void f(int x) const;\n", 41) + "};\n"},
      {"client/a.h", "  struct A : B {\n" + repeat("    A<int> f() { g(); }\n", 41) + "  };\n"},
      {"client/a.h", "class A {\n" + repeat("  static A<int>\n  f();\n", 41) + "};\n"}},
     {{"client/a.h", "class A {\n" + repeat("  void f();\n", 40) +
                         repeat("  int x_ = f();\n  std::function<void(int)> on_;\n", 9) +
                         "  A(const A&) = delete;\n  friend void f();\n};\n"},
      {"client/a.h", "class A {\n  struct B {\n" + repeat("    void f();\n", 40) + "  };\n" +
                         repeat("  void f() {\n    g();\n  }\n", 40) + "};\n"},
      {"client/a.cc", "class A {\n" + repeat("  void f();\n", 41) + "};\n"}}},
    {"Words",
     check_words,
     {{"a.md", "The job forms anew.\n"},
      {"a.cc", "// Mend the file.\n"},
      {"a.cc", "// A rank is\n// told.\n"},
      {"tests/a.cc", "TEST(A, RanksAreToldTheReason) {}\n"},
      {"tests/a.py", "def test_whoever_waits_learns():\n"},
      {"a.md", "Of three ranks one is late.\n"},
      {"a.h", "// All wait. Of these one is late.\n"}},
     {{"a.md", "Recommended, amended, untold: words that hold others.\n"},
      {"a.cc", "// The first of these. A list of\n// some. Often it holds.\n"},
      {"tests/a.cc", "TEST(A, BeginsANewTerm) {}\n"},
      {"a.cc", "set_of(Of::kAll);\n"}},
     read_texts},
};

class TidyTest : public testing::TestWithParam<Rule> {
 protected:
  Findings check(const std::vector<Source>& sources) {
    Findings findings;
    for (const Source& source : sources) GetParam().check(source, findings);
    return findings;
  }
};

TEST_P(TidyTest, TheRepositoryKeepsTheRule) {
  const std::vector<Source> sources = GetParam().read(TUTTI_SOURCE_DIR);
  ASSERT_GT(sources.size(), 50u) << "the repository is not at " << TUTTI_SOURCE_DIR;
  const Findings findings = check(sources);
  EXPECT_TRUE(findings.empty()) << findings.size() << " breaches:\n" << describe(findings);
}

TEST_P(TidyTest, TheRuleFindsEachBadSampleOnce) {
  ASSERT_FALSE(GetParam().bad.empty());
  for (const auto& [path, text] : GetParam().bad)
    EXPECT_EQ(check({make_source(path, text)}).size(), 1u) << path << ":\n" << text;
}

TEST_P(TidyTest, TheRuleLeavesGoodSamplesAlone) {
  ASSERT_FALSE(GetParam().good.empty());
  for (const auto& [path, text] : GetParam().good)
    EXPECT_EQ(describe(check({make_source(path, text)})), "") << text;
}

TEST(Findings, NameFileAndLine) {
  Findings findings;
  check_blanks(make_source("daemon/a.cc", "int x;\nint y; \n"), findings);
  EXPECT_EQ(describe(findings), "daemon/a.cc:2: a trailing blank\n");
}

INSTANTIATE_TEST_SUITE_P(Rules, TidyTest, testing::ValuesIn(kRules),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace tutti::tidy
