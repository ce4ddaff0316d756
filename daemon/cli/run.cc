// `tutti run`: a mesh on this machine, and a command run once per rank on it.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <numeric>

#include "daemon/base/program.h"
#include "daemon/base/settings.h"
#include "daemon/base/text.h"
#include "daemon/cli/cli.h"
#include "daemon/control/admin_client.h"
#include "daemon/launch/launch.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

// Only the worker knows which rank left the job first, and is asked when the first process ends,
// which may be long after all ranks have left.
constexpr Millis kWorkerIdle{600'000};

constexpr int kAskAgentTimeoutMs = 2'000;

struct Launch {
  LocalMeshOptions mesh;
  RankOptions ranks;
};

// Adds the failures that the node's agent, if there is one, has seen since it started: NVML does
// not tell of those before us.
std::vector<GpuInfo> with_failures(std::vector<GpuInfo> gpus) {
  const Result<v1::StatusReply> seen = admin_status(default_address(), true, kAskAgentTimeoutMs);
  if (!seen.ok()) return gpus;
  for (const v1::Gpu& failed : seen->agents(0).gpus())
    for (GpuInfo& gpu : gpus)
      if (failed.failed() && gpu.fault.empty() && gpu.uuid == failed.uuid())
        gpu.fault = failed.xid() == 0 ? "lost" : describe_xid(failed.xid());
  return gpus;
}

// CUDA_VISIBLE_DEVICES of each rank, of the GPUs that this machine has now.
Result<std::vector<std::string>> divide_gpus(const std::string& each, int ranks) {
  const Result<int> wanted = parse_gpus(each);
  if (!wanted.ok()) return wanted.status();
  Settings settings;
  if (Status status = read_settings_environment(settings); !status.ok()) return status;
  const Result<std::unique_ptr<GpuInventory>> found = GpuInventory::open(settings.nvml_library);
  if (!found.ok())
    return unavailable("there is no GPU for --gpus: " + found.status().message() +
                       "; leave out --gpus to run without");
  const Result<UsableGpus> usable =
      usable_gpus(with_failures((*found)->gpus()), find_variable("CUDA_VISIBLE_DEVICES"));
  return usable.ok() ? share_gpus(*usable, *wanted, ranks) : usable.status();
}

Result<Launch> parse_launch(const RunOptions& options) {
  Launch launch;
  if (options.command.empty())
    return invalid_argument("nothing to run: put -- and the command behind the options");
  const Result<std::vector<int>> per_host = parse_per_host(options.per_host, options.hosts);
  if (!per_host.ok()) return per_host.status();
  if (!options.rate.empty()) {
    if (!options.netns) return invalid_argument("--rate limits the hosts' links: add --netns");
    const Result<uint64_t> rate = parse_rate(options.rate);
    if (!rate.ok()) return rate.status();
    launch.mesh.rate_bits_per_s = *rate;
  }
  launch.mesh.hosts = options.hosts;
  launch.mesh.netns = options.netns;
  launch.mesh.log_dir = options.log_dir;
  launch.mesh.worker_idle = kWorkerIdle;
  launch.ranks = {.per_host = *per_host,
                  .job = options.job,
                  .command = options.command,
                  .keep_going = options.keep_going,
                  .label = options.label};
  if (!options.gpus) return launch;
  Result<std::vector<std::string>> gpus =
      divide_gpus(*options.gpus, std::reduce(per_host->begin(), per_host->end()));
  if (!gpus.ok()) return gpus.status();
  launch.ranks.gpus = *std::move(gpus);
  return launch;
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

// Says how to ask for the mesh's status while it runs.
void announce(const LocalMesh& mesh, const std::vector<int>& per_host) {
  std::fprintf(stderr, "tutti: mesh of %s; %s\n", layout_of(per_host).c_str(),
               mesh.status_command().c_str());
}

// The last line is what to read first.
void report_failure(const RankProcesses& ranks, bool with_warnings) {
  const std::string culprit = ranks.culprit();
  if (culprit.empty()) return;
  std::fflush(stdout);
  if (with_warnings) std::fputs(ranks.warnings().c_str(), stderr);
  std::fprintf(stderr, "tutti: %s\n", culprit.c_str());
}

}  // namespace

int run_command(const RunOptions& options) {
  const Result<Launch> launch = parse_launch(options);
  if (!launch.ok()) return report_status(launch.status());
  std::signal(SIGPIPE, SIG_IGN);  // A closed output must not keep it from ending its processes.
  Loop loop;
  ChildProcesses children(loop);
  int interrupted = 0;
  RankProcesses* running = nullptr;
  const SignalWatch watch(loop, {SIGINT, SIGTERM, SIGHUP}, [&](int signal) {
    interrupted = signal;
    if (running != nullptr) running->interrupt(signal);
  });
  const Result<std::unique_ptr<LocalMesh>> mesh =
      LocalMesh::start(loop, children, launch->mesh, [&] { return interrupted != 0; });
  if (interrupted != 0) return 128 + interrupted;
  if (!mesh.ok()) return report_status(mesh.status());

  if (options.announce) announce(**mesh, launch->ranks.per_host);
  RankProcesses ranks(loop, children, **mesh, launch->ranks);
  running = &ranks;
  const Result<int> code = ranks.run();
  (*mesh)->stop();
  if (!code.ok()) return report_status(code.status());
  report_failure(ranks, interrupted == 0 && options.log_dir.empty());
  return *code;
}

}  // namespace tutti
