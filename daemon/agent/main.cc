// tuttid, the node's agent: settings, signals and the main loop.
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "daemon/agent/agent.h"
#include "daemon/agent/flags.h"
#include "daemon/agent/hide_token.h"
#include "daemon/agent/notify.h"
#include "daemon/agent/service.h"
#include "daemon/base/log.h"
#include "daemon/base/program.h"
#include "daemon/base/signal_watch.h"

namespace {

// The same as of settings that do not read: it would not start the next time, either. What the
// texts of settings do not decide alone ends with 1, and is tried again.
constexpr int kWrongSettings = 2;

constexpr std::initializer_list<int> kSignals = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};

// The default of 1,024 is there for programs that use select(). Workers inherit it. More would let
// strangers' connections fill the memory that gRPC may have (daemon/control/channel.cc).
constexpr rlim_t kDescriptorsMax = 16'384;

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, kDescriptorsMax);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  const tutti::CommandLine line = tutti::read_command_line(argc, argv);
  tutti::hide_token(argc, argv);
  const std::string manager = tutti::variable("NOTIFY_SOCKET");
  if (!line.error.empty()) tutti::notify(manager, "STATUS=" + line.error);
  if (line.exit_code) return *line.exit_code;
  const tutti::Settings& settings = line.configuration.settings;
  const tutti::Log log("tuttid", settings, tutti::form_of_stderr(settings.log_format));
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // A log of the size of ulimit -f ends no agent.
  raise_descriptor_limit();
  mallopt(M_ARENA_MAX, 2);  // It computes little: what is freed shall be free for all threads.
  tutti::block_signals(kSignals);
  tutti::Loop loop;
  tutti::Agent agent(loop, settings, line.configuration.credentials,
                     [&log] { return log.dropped_lines(); });
  tutti::Service service(loop, agent, manager, line.flags, line.configuration);
  const tutti::Status started = agent.start([&loop] { loop.stop(); });
  const tutti::SignalWatch watch(loop, kSignals, [&](int signal) { service.on_signal(signal); });
  if (!started.ok()) {
    spdlog::error("cannot start: {}", started.message());
    tutti::notify(manager, "STATUS=cannot start: " + started.message());
    return started.code() == tutti::Code::invalid_argument ? kWrongSettings : 1;
  }
  service.serve();
  loop.run();
  tutti::notify(manager, "STOPPING=1");
  tutti::unblock_signals(kSignals);  // While it stops, another signal ends it at once.
  return 0;
}
