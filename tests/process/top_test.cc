// `tutti top` on a terminal, beside an agent that does not answer for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "tests/support/await.h"
#include "tests/support/test_mesh.h"

namespace tutti::testing {
namespace {

// `tutti top` on a terminal of its own.
class Top {
 public:
  explicit Top(const std::string& address) {
    winsize size{.ws_row = 20, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
    const std::string program = program_directory() / "tutti";
    pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    setenv("NO_COLOR", "1", 1);
    execl(program.c_str(), "tutti", "top", "--address", address.c_str(), nullptr);
    _exit(126);
  }
  Top(const Top&) = delete;
  Top& operator=(const Top&) = delete;
  ~Top() { close(terminal_); }

  // Reads on until it has shown these bytes; false: it ended before.
  bool shows(const std::string& bytes) {
    std::string shown;
    char byte = 0;
    while (!shown.ends_with(bytes) && read(terminal_, &byte, 1) == 1) shown += byte;
    return shown.ends_with(bytes);
  }

  // Its exit code, after an interrupt.
  int end() {
    interrupt();
    return exit_code();
  }
  void interrupt() const { kill(pid_, SIGINT); }
  // When it has ended by itself.
  int exit_code() {
    char byte = 0;
    while (read(terminal_, &byte, 1) == 1) continue;
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void press(char key) const { EXPECT_EQ(write(terminal_, &key, 1), 1); }
  // Whether lines are read as a whole, and shown as they are typed.
  bool takes_lines() const {
    termios modes{};
    EXPECT_EQ(tcgetattr(terminal_, &modes), 0);
    return (modes.c_lflag & ICANON) != 0 && (modes.c_lflag & ECHO) != 0;
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
};

TEST(TopProcess, AnAgentThatDoesNotAnswerIsAskedAgain) {
  const TestMesh mesh(1);
  Top top(mesh.host(0).address);
  const std::string begin = "\x1b[H";  // Of a drawing.
  ASSERT_TRUE(top.shows(begin + "no jobs"));
  kill(mesh.host(0).agent, SIGSTOP);
  EXPECT_TRUE(top.shows(begin + "not updated for "));
  EXPECT_TRUE(top.shows("no jobs")) << "the last report stays";
  kill(mesh.host(0).agent, SIGCONT);
  EXPECT_TRUE(top.shows(begin + "no jobs"));
  EXPECT_EQ(top.end(), 0);
}

TEST(TopProcess, KeysSortAndQuitAndTheTerminalIsAsBefore) {
  const TestMesh mesh(1);
  for (const bool by_key : {true, false}) {
    Top top(mesh.host(0).address);
    ASSERT_TRUE(top.shows("than by name"));
    EXPECT_FALSE(top.takes_lines());
    top.press('s');
    EXPECT_TRUE(top.shows("than by operations"));
    top.press('x');  // Does nothing.
    if (by_key)
      top.press('q');
    else
      top.interrupt();
    EXPECT_TRUE(top.shows("\x1b[?25h\x1b[?1049l")) << "its screen is gone, the cursor back";
    EXPECT_TRUE(await([&] { return top.takes_lines(); }));
    EXPECT_EQ(top.exit_code(), 0);
  }
}

}  // namespace
}  // namespace tutti::testing
