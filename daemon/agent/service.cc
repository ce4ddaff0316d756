#include "daemon/agent/service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "daemon/base/reload.h"

namespace tutti {
namespace {

constexpr Millis kStateEvery{5'000};
constexpr Millis kStopGrace{10'000};  // For the end of what is still there after a drain.

bool are_same(const Credentials& a, const Credentials& b) {
  return std::ranges::equal(a.tokens, b.tokens, [](const Token& x, const Token& y) {
    return x.text == y.text && x.trainer == y.trainer && x.agent == y.agent && x.admin == y.admin &&
           x.jobs == y.jobs && x.subject == y.subject;
  });
}

}  // namespace

Service::Service(Loop& loop, Agent& agent, std::string manager, const Flags& flags,
                 Configuration configuration)
    : loop_(loop),
      agent_(agent),
      manager_(std::move(manager)),
      flags_(flags),
      configuration_(std::move(configuration)) {}

void Service::serve() {
  state_ = "serves: " + agent_.describe();
  spdlog::info("tuttid " TUTTI_VERSION " {}", state_);
  notify(manager_, "READY=1\nSTATUS=" + state_);
  watch_state();
  watchdog_ = std::make_unique<Watchdog>(loop_, manager_, watchdog_interval());
}

void Service::watch_state() {
  const std::string state = agent_.describe_state();
  if (!is_ending_ && std::exchange(state_, state) != state) notify(manager_, "STATUS=" + state);
  state_timer_ = loop_.at(Clock::now() + kStateEvery, [this] { watch_state(); });
}

void Service::on_signal(int signal) {
  if (signal == SIGCHLD) return agent_.reap();
  if (signal == SIGHUP) return reload();
  end(signal);
}

void Service::end(int signal) {
  const int64_t drain_ms = configuration_.settings.drain_ms;
  if (signal == SIGTERM && drain_ms > 0 && !is_ending_) {
    is_ending_ = true;
    const std::string says =
        "stopping when the jobs of this node have ended, or in " + std::to_string(drain_ms) + " ms";
    spdlog::info("{}: signal {}", says, signal);
    notify(manager_, "STOPPING=1\nSTATUS=" + says + "\nEXTEND_TIMEOUT_USEC=" +
                         std::to_string(1000 * (drain_ms + kStopGrace.count())));
    return agent_.finish(Millis(drain_ms));
  }
  spdlog::info("stopping: signal {}; jobs go on", signal);
  loop_.stop();
}

void Service::reload() {
  notify(manager_, reloading_state());
  Result<Configuration> read = read_configuration(flags_);
  if (read.ok())
    apply(*read);
  else
    spdlog::error("all settings stay as they are: {}", read.status().message());
  const std::string status =
      read.ok() ? "serves: " + agent_.describe() : "settings not read: " + read.status().message();
  notify(manager_, "READY=1\nSTATUS=" + status);
}

void Service::apply(const Configuration& read) {
  Settings& running = configuration_.settings;
  ReloadReport report = compare_settings(running, read.settings);
  if (read.settings.token_file == running.token_file && read.settings.token == running.token &&
      !are_same(configuration_.credentials, read.credentials))
    report.kept.emplace_back("token_file: the tokens of before until a restart");
  const auto level = spdlog::level::from_str(read.settings.log_level);
  spdlog::set_level(std::min(spdlog::get_level(), level));  // The lines that tell of it are shown.
  for (const std::string& line : report.changed) spdlog::info("{}", line);
  for (const std::string& line : report.kept) spdlog::warn("{}", line);
  spdlog::info("settings read again: {} changed, {} wait for a restart", report.changed.size(),
               report.kept.size());
  spdlog::set_level(level);
  copy_reloadable(running, read.settings);
  agent_.reload(running);
}

}  // namespace tutti
