// `tutti top`: asks every second, and draws on the terminal.
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/top_report.h"
#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kIntervalMs = 1'000;
constexpr uint32_t kJudgedOperations = 40;  // Of each rank.

struct Snapshot {
  v1::StatusReply reply;
  MeshDiagnosis diagnosis;
  Clock::time_point taken;
};

Result<Snapshot> take(const std::string& address) {
  // The trace first, see diagnose_mesh().
  const Result<v1::TraceReply> trace = admin_trace(address, "", kJudgedOperations, kCallTimeoutMs);
  if (!trace.ok()) return trace.status();
  Result<v1::StatusReply> reply = admin_status(address, false, kCallTimeoutMs);
  if (!reply.ok()) return reply.status();
  MeshDiagnosis found = diagnose_mesh(*reply, *trace);
  return Snapshot{*std::move(reply), std::move(found), Clock::now()};
}

double seconds_between(const Snapshot& before, const Snapshot& after) {
  return std::chrono::duration<double>(after.taken - before.taken).count();
}

// Waits for SIGINT, SIGTERM or SIGHUP; these must be blocked.
class EndSignal {
 public:
  EndSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    descriptor_.reset(signalfd(-1, &signals, SFD_CLOEXEC));
  }
  // False: none came in this time.
  bool wait(int timeout_ms) const {
    pollfd readable{.fd = descriptor_.get(), .events = POLLIN, .revents = 0};
    return poll(&readable, 1, timeout_ms) > 0;
  }

 private:
  Fd descriptor_;
};

// A screen of its own, without a cursor; the destructor brings the old one back.
class Screen {
 public:
  Screen() { write_out("\x1b[?1049h\x1b[?25l"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() { write_out("\x1b[?25h\x1b[?1049l"); }

  // Each line ends with "clear the rest", so that nothing flickers.
  void draw(const std::string& text) const {
    std::string out = "\x1b[H";
    for (const char c : text) out += c == '\n' ? "\x1b[K\n" : std::string(1, c);
    write_out(out + "\x1b[J");
  }

 private:
  static void write_out(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
};

std::string render(const Snapshot& before, const Snapshot& after, const std::string& job,
                   const winsize& size, const std::string& error = "") {
  return top_text({.before = before.reply,
                   .after = after.reply,
                   .diagnosis = after.diagnosis,
                   .seconds = seconds_between(before, after),
                   .job = job,
                   .columns = size.ws_col,
                   .lines = size.ws_row,
                   .error = error});
}

int print_once(const TopOptions& options, const Snapshot& before, const EndSignal& end) {
  end.wait(kIntervalMs);
  const Result<Snapshot> after = take(options.address);
  if (!after.ok()) return report_status(after.status());
  std::fputs(render(before, *after, options.job, {}).c_str(), stdout);
  return 0;
}

std::string error_line(const Status& status, const Snapshot& last) {
  const std::chrono::duration<double> age = Clock::now() - last.taken;
  return "not updated for " + describe_seconds(age.count()) + ": " + status.message();
}

// An agent that does not answer may do so later, as after a restart: the last report stays.
void draw_until_end(const TopOptions& options, Snapshot first, const EndSignal& end) {
  const Screen screen;
  Snapshot before = first;
  Snapshot after = std::move(first);
  while (!end.wait(kIntervalMs)) {
    const Result<Snapshot> next = take(options.address);
    if (next.ok()) before = std::exchange(after, *next);
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    screen.draw(render(before, after, options.job, size,
                       next.ok() ? "" : error_line(next.status(), after)));
  }
}

}  // namespace

int top_command(const TopOptions& options) {
  const EndSignal end;
  Result<Snapshot> before = take(options.address);
  if (!before.ok()) return report_status(before.status());
  if (options.once || isatty(STDOUT_FILENO) == 0) return print_once(options, *before, end);
  draw_until_end(options, *std::move(before), end);
  return 0;
}

}  // namespace tutti
