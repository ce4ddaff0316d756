// Programs: in place of a forked child, or by the shell.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

namespace tutti::testing {

// Call it in the child. The program ends with the parent; what it prints is added to the file
// `log`, which is made.
[[noreturn]] inline void run_program(const std::vector<std::string>& words,
                                     const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execv(arguments[0], arguments.data());
  _exit(127);
}

struct ShellOutcome {
  int code = -1;
  std::string out;  // Standard output and standard error.
};

inline ShellOutcome run_shell(const std::string& line) {
  FILE* pipe = popen((line + " 2>&1").c_str(), "r");
  ShellOutcome outcome;
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.out.append(buffer, got);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace tutti::testing
