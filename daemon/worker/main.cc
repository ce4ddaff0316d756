// tutti-worker: the data plane of one job on one node. Started by the agent, never by hand.
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "daemon/base/log.h"
#include "daemon/base/signal_watch.h"
#include "daemon/worker/worker.h"
#include "proto/segment.h"

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

// The limit also holds for shared memory. What exceeds it fails then, and does not end the process.
void allow_large_files() {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_FSIZE, &limit);
}

uint32_t job_owner() {
  const char* text = std::getenv("TUTTI_WORKER_UID");
  return text == nullptr ? getuid() : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("tutti-worker " TUTTI_VERSION " (protocol %u)\n",
                unsigned{tutti::kProtocolVersion});
    return 0;
  }
  tutti::keep_malloc_memory();
  prctl(PR_SET_NAME, "tutti-worker");  // It was executed from a descriptor, which has no name.
  // For the CUDA driver. To load a kernel it may wait for all streams, and streams wait for ranks;
  // so kernels are loaded at once. Streams that share a hardware queue wait for each other; 32 is
  // the most that there are.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const Arguments arguments = parse(argc, argv);
  if (arguments.job.empty() || arguments.control_fd < 0) {
    std::fputs("tutti-worker: tuttid starts it; see tuttid --help\n", stderr);
    return 2;
  }
  tutti::Settings settings;
  const tutti::Status read = tutti::read_settings_environment(settings);
  // The agent reads this form, whatever its own is.
  const tutti::Log log("worker", settings, tutti::LogForm::text);
  if (!read.ok()) {
    spdlog::error("{}", read.to_string());
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  allow_large_files();
  std::signal(SIGINT, SIG_IGN);  // A terminal's Ctrl-C is for the agent.
  tutti::block_signals({SIGTERM});
  tutti::Loop loop;
  tutti::Worker worker(loop, settings, arguments.job, job_owner());
  const tutti::Status started = worker.start(tutti::Fd(arguments.control_fd));
  const tutti::SignalWatch watch(loop, {SIGTERM}, [&](int) { worker.on_stop(); });
  if (!started.ok()) {
    spdlog::error("{}", started.to_string());
    return 1;
  }
  loop.run();
  if (worker.close()) return 0;
  log.close();
  std::_Exit(1);
}
