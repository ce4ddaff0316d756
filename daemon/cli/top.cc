// `tutti top`: asks every second, and draws on the terminal.
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "daemon/base/program.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/end_signal.h"
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

// NOT_FOUND: no node has it now.
Status check_runs(const v1::StatusReply& reply, const TopOptions& options) {
  for (const v1::AgentReport& agent : reply.agents())
    for (const v1::WorkerReport& worker : agent.workers())
      if (options.job.empty() || worker.job() == options.job) return {};
  if (options.job.empty()) return {};
  return suggest_job(not_found("no job " + options.job + " runs"), options.address, options.job);
}

double seconds_between(const Snapshot& before, const Snapshot& after) {
  return std::chrono::duration<double>(after.taken - before.taken).count();
}

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

int print_once(const TopOptions& options, const Snapshot& before, const EndSignal& end) {
  end.wait(kIntervalMs);
  const Result<Snapshot> after = take(options.address);
  if (!after.ok()) return report_status(after.status());
  const std::string text = top_text({.before = before.reply,
                                     .after = after->reply,
                                     .diagnosis = after->diagnosis,
                                     .seconds = seconds_between(before, *after),
                                     .job = options.job,
                                     .columns = 0,
                                     .error = {}});
  std::fputs(text.c_str(), stdout);
  return 0;
}

std::string error_line(const Status& status, const Snapshot& last) {
  const std::chrono::duration<double> age = Clock::now() - last.taken;
  return "not updated for " + describe_seconds(age.count()) + ": " + status.message();
}

// Keys that are pressed, one at a time and not shown, until the destructor brings back what was.
// Without a terminal on standard input there are none.
class Keyboard {
 public:
  Keyboard() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // Stopped, it could not bring anything back.
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0) input_ = STDIN_FILENO;
    is_changed_ = input_ >= 0;
  }
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;
  ~Keyboard() {
    if (is_changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  int input() const { return input_; }  // -1: there are no keys.
  // When there is input.
  char key() {
    char pressed = 0;
    if (read(input_, &pressed, 1) != 1) input_ = -1;
    return pressed;
  }

 private:
  termios before_{};
  int input_ = -1;
  bool is_changed_ = false;
};

bool has_colors() { return variable("NO_COLOR").empty() && variable("TERM") != "dumb"; }

// Draws the last two reports of an agent. One that does not answer may do so later, as after a
// restart: the last report stays.
class Drawing {
 public:
  Drawing(const TopOptions& options, const Snapshot& first)
      : options_(options), before_(first), after_(first) {}

  void update() {
    const Result<Snapshot> next = take(options_.address);
    if (next.ok()) before_ = std::exchange(after_, *next);
    why_ = next.ok() ? Status() : next.status();
    draw();
  }
  void sort() {
    order_ = after(order_);
    draw();
  }

 private:
  void draw() const {
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const std::string error = why_.ok() ? "" : error_line(why_, after_);
    screen_.draw(top_text({.before = before_.reply,
                           .after = after_.reply,
                           .diagnosis = after_.diagnosis,
                           .seconds = seconds_between(before_, after_),
                           .job = options_.job,
                           .columns = size.ws_col,
                           .lines = size.ws_row,
                           .error = error,
                           .order = order_,
                           .colors = colors_}));
  }

  const TopOptions& options_;
  const Screen screen_;
  const bool colors_ = has_colors();
  Snapshot before_;
  Snapshot after_;
  Status why_;
  TopOrder order_ = TopOrder::name;
};

void draw_until_end(const TopOptions& options, const Snapshot& first, const EndSignal& end) {
  Keyboard keyboard;
  Drawing drawing(options, first);
  Clock::time_point due = Clock::now() + std::chrono::milliseconds(kIntervalMs);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now());
    const auto came = end.wait(std::max(0, static_cast<int>(left.count())), keyboard.input());
    if (came == EndSignal::Came::signal) return;
    const char key = came == EndSignal::Came::input ? keyboard.key() : '\0';
    if (key == 'q') return;
    if (key == 's') drawing.sort();
    if (came == EndSignal::Came::input) continue;
    drawing.update();
    due = Clock::now() + std::chrono::milliseconds(kIntervalMs);
  }
}

}  // namespace

int top_command(const TopOptions& options) {
  const EndSignal end;
  Result<Snapshot> before = take(options.address);
  if (!before.ok()) return report_status(before.status());
  if (const Status runs = check_runs(before->reply, options); !runs.ok())
    return report_status(runs);
  if (options.once || isatty(STDOUT_FILENO) == 0) return print_once(options, *before, end);
  draw_until_end(options, *before, end);
  return 0;
}

}  // namespace tutti
