// `tutti top` on a terminal, beside an agent that does not answer for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

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
    kill(pid_, SIGINT);
    char byte = 0;
    while (read(terminal_, &byte, 1) == 1) continue;
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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

}  // namespace
}  // namespace tutti::testing
