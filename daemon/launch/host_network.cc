#include "daemon/launch/host_network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tutti {
namespace {

constexpr int kHostsMax = 250;                  // They share one /24.
constexpr uint64_t kBurstBytesMin = 128 << 10;  // Above the kernel's largest packet, 64 KiB.

std::string address_of(int host) { return "10.77.0." + std::to_string(host + 1); }

// Creates a network namespace and moves this thread into it.
Result<Fd> enter_new_netns() {
  if (unshare(CLONE_NEWNET) != 0) return errno_status("cannot make a network namespace");
  Fd netns(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!netns.valid()) return errno_status("cannot open this network namespace");
  return netns;
}

Status enter(const Fd& netns) {
  return setns(netns.get(), CLONE_NEWNET) == 0 ? Status()
                                               : errno_status("cannot enter a network namespace");
}

// Runs `tool -batch -` with these lines as its input, in the current namespace.
Status run_batch(const std::string& tool, const std::string& lines) {
  FILE* pipe = popen((tool + " -batch -").c_str(), "we");
  if (pipe == nullptr) return errno_status("cannot run " + tool);
  std::fputs(lines.c_str(), pipe);
  const int status = pclose(pipe);
  if (status == 0) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return not_found(tool + " is not installed: apt-get install iproute2");
  return internal_error(tool + " refused to set up the hosts' network");
}

Status limit_rate(const std::string& device, uint64_t rate) {
  if (rate == 0) return {};
  // What a millisecond sends: small enough that a tensor does not pass unpaced.
  const uint64_t burst = std::max(kBurstBytesMin, rate / 8 / 1000);
  return run_batch("tc", "qdisc add dev " + device + " root tbf rate " + std::to_string(rate) +
                             "bit burst " + std::to_string(burst) + " latency 50ms\n");
}

// Called in the bridge's namespace: adds a link whose other end is eth0 in the host's.
Status add_bridge_port(const HostNetwork& host, int index, uint64_t rate) {
  const std::string port = "port" + std::to_string(index);
  const std::string netns =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(host.netns.get());
  Status status = run_batch("ip", "link add dev " + port + " type veth peer name eth0 netns " +
                                      netns + "\nlink set dev " + port + " master bridge0 up\n");
  return status.ok() ? limit_rate(port, rate) : status;
}

// Called in the host's namespace.
Status configure_host(const HostNetwork& host, uint64_t rate) {
  Status status = run_batch("ip", "link set dev lo up\naddr add " + host.address +
                                      "/24 dev eth0\nlink set dev eth0 up\n");
  return status.ok() ? limit_rate("eth0", rate) : status;
}

Status connect_host(const HostNetwork& host, int index, const Fd& bridge, uint64_t rate) {
  Status status = add_bridge_port(host, index, rate);
  if (status.ok()) status = enter(host.netns);
  if (status.ok()) status = configure_host(host, rate);
  if (status.ok()) status = enter(bridge);
  return status;
}

}  // namespace

Result<std::vector<HostNetwork>> create_networks(int hosts, uint64_t rate_bits_per_s) {
  if (geteuid() != 0)
    return permission_denied("--netns makes network namespaces: run it as root, or without");
  if (hosts > kHostsMax)
    return invalid_argument("--netns has addresses for " + std::to_string(kHostsMax) + " hosts");
  std::vector<HostNetwork> out;
  for (int host = 0; host < hosts; ++host) {
    Result<Fd> netns = enter_new_netns();
    if (!netns.ok()) return netns.status();
    out.push_back({.netns = std::move(*netns), .address = address_of(host)});
  }
  const Result<Fd> bridge = enter_new_netns();
  if (!bridge.ok()) return bridge.status();
  Status status =
      run_batch("ip", "link set dev lo up\nlink add dev bridge0 type bridge\naddr add " +
                          address_of(kHostsMax) + "/24 dev bridge0\nlink set dev bridge0 up\n");
  for (int host = 0; host < hosts && status.ok(); ++host)
    status = connect_host(out[static_cast<size_t>(host)], host, *bridge, rate_bits_per_s);
  if (!status.ok()) return status;
  return out;
}

}  // namespace tutti
