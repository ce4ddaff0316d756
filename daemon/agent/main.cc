// tuttid, the node's agent: settings, signals and the main loop.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdlib>

#include "daemon/agent/agent.h"
#include "daemon/agent/flags.h"
#include "daemon/agent/notify.h"

namespace {

void log_to_stderr(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("tuttid"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ tuttid[%P] %v");
  spdlog::set_level(spdlog::level::from_str(level));
}

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, number);
  return set;
}

// Must be called before any thread starts, so that only the loop handles these signals.
tutti::Fd block_signals() {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return tutti::Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// A second signal then ends the process at once.
void unblock_signals() {
  const sigset_t set = handled_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

void handle_signals(int signals, tutti::Loop& loop, tutti::Agent& agent) {
  signalfd_siginfo info{};
  while (read(signals, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      agent.reap();
      continue;
    }
    spdlog::info("stopping: signal {}; jobs go on", info.ssi_signo);
    loop.stop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const tutti::CommandLine line = tutti::read_command_line(argc, argv);
  if (line.exit_code) return *line.exit_code;
  log_to_stderr(line.settings.log_level);
  const tutti::Fd signals = block_signals();
  const char* notify_socket = std::getenv("NOTIFY_SOCKET");
  const std::string manager = notify_socket == nullptr ? "" : notify_socket;
  tutti::Loop loop;
  tutti::Agent agent(loop, line.settings);
  tutti::Status started = agent.start([&loop] { loop.stop(); });
  if (started.ok())
    started = loop.watch(signals.get(), EPOLLIN,
                         [&](uint32_t) { handle_signals(signals.get(), loop, agent); });
  if (!started.ok()) {
    spdlog::error("cannot start: {}", started.message());
    return 1;
  }
  spdlog::info("tuttid " TUTTI_VERSION " serves: {}", agent.describe());
  tutti::notify(manager, "READY=1");
  loop.run();
  tutti::notify(manager, "STOPPING=1");
  unblock_signals();
  return 0;
}
