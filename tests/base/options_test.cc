// What programs read of their command lines, and the help that they print.
#include "daemon/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct OptionsTest : testing::Test {
  OptionsTest() : program("tool", "A tool.", "tool 1.2") {}

  // What it prints before it ends with 0.
  std::string printed(const std::vector<std::string>& arguments) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(program.read(arguments).exit_code, 0);
    return testing::internal::GetCapturedStdout();
  }

  Program program;
};

TEST_F(OptionsTest, ValuesAreStored) {
  std::string text;
  uint32_t number = 1;
  std::optional<uint32_t> last;
  std::vector<std::string> list;
  bool flag = false;
  std::string taken;
  program.add("--text", text, "a text").last_counts();
  program.add("--number", number, "a number").within(0, 9);
  program.add("--last", last, "another");
  program.add("--list", list, "several").separated_by(',');
  program.add_flag("-f,--flag", flag, "a flag");
  program.add_call(
      "--taken", [&](const std::string& value) { taken = value; }, "a text");
  const Program::Read read = program.read(
      {"--text=a", "--text", "b", "--number", "7", "--list", "x,y", "-f", "--taken", "c"});
  EXPECT_EQ(read.error, "");
  EXPECT_FALSE(read.exit_code);
  EXPECT_EQ(text, "b");
  EXPECT_EQ(number, 7u);
  EXPECT_FALSE(last);
  EXPECT_THAT(list, ElementsAre("x", "y"));
  EXPECT_TRUE(flag);
  EXPECT_EQ(taken, "c");
}

TEST_F(OptionsTest, ErrorsNameTheOption) {
  uint32_t number = 1;
  program.add("--number", number, "a number").within(0, 9);
  EXPECT_THAT(program.read({"--number", "10"}).error, HasSubstr("--number"));
  EXPECT_THAT(program.read({"--other"}).error, HasSubstr("--other"));
  EXPECT_FALSE(program.read({"--other"}).exit_code);
}

// Most often a variable of a script that is not set.
TEST_F(OptionsTest, AnEmptyItemOfAListIsAnError) {
  std::vector<int> numbers;
  std::string text;
  CommandOptions command = program.command("show", "Show it");
  command.add("--list", numbers, "several").separated_by(',');
  command.add("--text", text, "one");
  for (const std::string list : {"8,,9", ",8", "8,", ",", ""}) {
    const std::string error = "--list '" + list + "' has an empty item; leave it out, or give it";
    EXPECT_EQ(program.read({"show", "--list", list}).error, error);
    EXPECT_EQ(program.read({"show", "--list=" + list}).error, error);
    EXPECT_EQ(program.read({"show", "--list", "7", list}).error, error);
  }
  EXPECT_EQ(program.read({"show", "--list", "8,9", "--text", "a,,b"}).error, "");
  EXPECT_THAT(numbers, ElementsAre(8, 9));
}

TEST_F(OptionsTest, OneCommandIsCalled) {
  std::string job;
  program.command("show", "Show it").add("JOB", job, "its name").required();
  program.command("end", "End it");
  EXPECT_EQ(program.read({"show", "demo"}).command, "show");
  EXPECT_EQ(job, "demo");
  EXPECT_THAT(program.read({"show"}).error, HasSubstr("JOB"));
  EXPECT_EQ(program.read({"show"}).command, "show");
  EXPECT_NE(program.read({}).error, "");
}

TEST_F(OptionsTest, WhatIsNotThereIsNamedAndWhatWasMeantIsSuggested) {
  std::string text;
  program.add("--listen", text, "an address");
  EXPECT_EQ(program.read({"--lsten", "1"}).error,
            "there is no option '--lsten'; did you mean '--listen'?");
  EXPECT_EQ(program.read({"--lsten=1"}).error,
            "there is no option '--lsten'; did you mean '--listen'?");
  EXPECT_EQ(program.read({"--colour"}).error, "there is no option '--colour'");
  EXPECT_EQ(program.read({"--listen", "a", "b"}).error, "there is no use for the argument 'b'");
  program.command("show", "Show it").add("--last", text, "how many");
  EXPECT_EQ(program.read({"show", "--lst", "1"}).error,
            "there is no option '--lst'; did you mean '--last'?");
  EXPECT_EQ(program.suggest_command("sow"), "; did you mean 'show'?");
  EXPECT_EQ(program.suggest_command("help"), "");
}

TEST_F(OptionsTest, TheHelpHasSectionsOfCommandsInTheirOrder) {
  program.command("zoom", "Zoom in", "Look");
  program.command("end", "End it", "Change");
  program.command("add", "Add one", "Look");
  EXPECT_THAT(printed({"--help"}),
              testing::ContainsRegex("Look:\n  zoom  +Zoom in\n  add  +Add one\n+Change:\n  end "));
}

TEST_F(OptionsTest, HelpAndVersionEndTheProgram) {
  int number = 5;
  program.add("--number", number, "a number").of_type("N").shows_default();
  program.footer("That is all.");
  EXPECT_THAT(printed({"--help"}),
              AllOf(HasSubstr("A tool."), HasSubstr("--number N=5"), HasSubstr("That is all.")));
  EXPECT_EQ(printed({"--version"}), "tool 1.2\n");
}

TEST_F(OptionsTest, GroupsOnRequestAreInTheWholeHelpAlone) {
  std::string often;
  std::string seldom;
  program.add("--often", often, "needed").in_group("Basic");
  program.add("--seldom", seldom, "not needed").in_group("Expert");
  program.show_on_request({"Expert"});
  EXPECT_THAT(printed({"--help-all"}),
              AllOf(HasSubstr("Basic:\n  --often"), HasSubstr("Expert:\n  --seldom")));
  EXPECT_THAT(printed({"--help"}), AllOf(HasSubstr("Basic:\n  --often"), HasSubstr("--help-all"),
                                         Not(HasSubstr("seldom"))));
  EXPECT_EQ(program.read({"--seldom", "now"}).error, "");
  EXPECT_EQ(seldom, "now");
}

}  // namespace
}  // namespace tutti
