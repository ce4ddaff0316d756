// tutti-worker: the data plane of one job on one node. Started by the agent, never by hand.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "daemon/worker/worker.h"

namespace {

struct Arguments {
  std::string job;
  int control_fd = -1;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (text.starts_with("--job=")) arguments.job = text.substr(6);
    if (text.starts_with("--control-fd=")) arguments.control_fd = std::atoi(argv[i] + 13);
  }
  return arguments;
}

void log_to_stderr(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("worker"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ worker[%P] %v");
  spdlog::set_level(spdlog::level::from_str(level));
}

uint32_t job_owner() {
  const char* text = std::getenv("TUTTI_WORKER_UID");
  return text == nullptr ? getuid() : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

// SIGTERM becomes an event of the loop; a terminal's Ctrl-C is left to the agent.
tutti::Fd block_signals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return tutti::Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

int main(int argc, char** argv) {
  tutti::keep_malloc_memory();
  prctl(PR_SET_NAME, "tutti-worker");  // It was executed from a descriptor, which has no name.
  const Arguments arguments = parse(argc, argv);
  if (arguments.job.empty() || arguments.control_fd < 0) {
    std::fputs("tutti-worker is started by tuttid; see tuttid --help\n", stderr);
    return 2;
  }
  tutti::Settings settings;
  const tutti::Status read = tutti::read_settings_environment(
      settings, [](const std::string& name) { return std::getenv(name.c_str()); });
  log_to_stderr(settings.log_level);
  if (!read.ok()) {
    spdlog::error("{}", read.to_string());
    return 2;
  }
  const tutti::Fd signals = block_signals();
  tutti::Loop loop;
  tutti::Worker worker(loop, settings, arguments.job, job_owner());
  tutti::Status started = worker.start(tutti::Fd(arguments.control_fd));
  if (started.ok())
    started = loop.watch(signals.get(), EPOLLIN, [&](uint32_t) {
      loop.unwatch(signals.get());  // Its signal is not read.
      worker.on_stop();
    });
  if (!started.ok()) {
    spdlog::error("{}", started.to_string());
    return 1;
  }
  loop.run();
  return 0;
}
