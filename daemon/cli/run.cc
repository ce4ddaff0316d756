#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>

#include "daemon/base/text.h"
#include "daemon/cli/cli.h"
#include "daemon/launch/launch.h"

namespace tutti {
namespace {

// What asks this process to end. The signals are blocked (block_signals), so they wait here.
class Interrupt {
 public:
  explicit Interrupt(Loop& loop) : loop_(loop) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
    signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    require(loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) { take(); }).ok(),
            "watching a fresh signalfd");
  }
  ~Interrupt() { loop_.unwatch(signals_.get()); }

  int signal() const { return signal_; }  // 0: none yet.
  // `then` is called for each signal from now on.
  void on_signal(std::function<void(int)> then) { then_ = std::move(then); }

 private:
  void take() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      signal_ = static_cast<int>(info.ssi_signo);
      if (then_) then_(signal_);
    }
  }

  Loop& loop_;
  Fd signals_;
  int signal_ = 0;
  std::function<void(int)> then_;
};

// Workers know who left the job first, and may be asked when the first process ends: ranks may take
// their time for that after the last has left.
constexpr Millis kWorkerIdle{600'000};

struct Plan {
  LocalMeshOptions mesh;
  RanksOptions ranks;
};

Result<Plan> plan_of(const RunOptions& options) {
  Plan plan;
  if (options.command.empty())
    return invalid_argument("nothing to run: put -- and the command behind the options");
  const Result<std::vector<int>> per_host = parse_per_host(options.per_host, options.hosts);
  if (!per_host.ok()) return per_host.status();
  if (!options.rate.empty()) {
    if (!options.netns) return invalid_argument("--rate limits the hosts' links: add --netns");
    const Result<uint64_t> rate = parse_rate(options.rate);
    if (!rate.ok()) return rate.status();
    plan.mesh.rate_bits_per_s = *rate;
  }
  plan.mesh.hosts = options.hosts;
  plan.mesh.netns = options.netns;
  plan.mesh.log_dir = options.log_dir;
  plan.mesh.worker_idle = kWorkerIdle;
  plan.ranks = {.per_host = *per_host,
                .job = options.job,
                .command = options.command,
                .keep_going = options.keep_going,
                .label = options.label};
  return plan;
}

std::string plural(int count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

// "2 hosts x 1 rank", or "2 hosts, 4 ranks (3,1)".
std::string layout_of(const std::vector<int>& per_host) {
  const std::string hosts = plural(static_cast<int>(per_host.size()), "host");
  if (std::ranges::adjacent_find(per_host, std::ranges::not_equal_to()) == per_host.end())
    return hosts + " x " + plural(per_host.front(), "rank");
  std::string list;
  for (const int ranks : per_host) list += (list.empty() ? "" : ",") + std::to_string(ranks);
  return hosts + ", " + plural(std::reduce(per_host.begin(), per_host.end()), "rank") + " (" +
         list + ")";
}

// Where one looks what they do.
void announce(const LocalMesh& mesh, const Plan& plan) {
  std::fprintf(stderr, "tutti: mesh of %s; %s\n", layout_of(plan.ranks.per_host).c_str(),
               mesh.status_command().c_str());
}

}  // namespace

int run_command(const RunOptions& options) {
  const Result<Plan> plan = plan_of(options);
  if (!plan.ok()) return report_failure(plan.status());
  std::signal(SIGPIPE, SIG_IGN);  // Whoever stops reading the output, all processes are ended.
  Loop loop;
  ChildProcesses nursery(loop);
  Interrupt interrupt(loop);
  const Result<std::unique_ptr<LocalMesh>> mesh =
      LocalMesh::start(loop, nursery, plan->mesh, [&interrupt] { return interrupt.signal() != 0; });
  if (interrupt.signal() != 0) return 128 + interrupt.signal();
  if (!mesh.ok()) return report_failure(mesh.status());

  if (options.announce) announce(**mesh, *plan);
  Ranks ranks(loop, nursery, **mesh, plan->ranks);
  interrupt.on_signal([&ranks](int signal) { ranks.interrupt(signal); });
  const Result<int> code = ranks.run();
  (*mesh)->stop();
  if (!code.ok()) return report_failure(code.status());
  if (*code != 0 && interrupt.signal() == 0 && options.log_dir.empty())
    std::fputs((*mesh)->log_tails().c_str(), stderr);
  return *code;
}

}  // namespace tutti
