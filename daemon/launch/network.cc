#include "daemon/launch/network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tutti {
namespace {

constexpr int kHostsMax = 250;                    // Of one /24.
constexpr uint64_t kBurstBytesLeast = 128 << 10;  // Above the kernel's largest packet, 64 KiB.

std::string address_of(int host) { return "10.77.0." + std::to_string(host + 1); }

Result<Fd> current_space() {
  Fd space(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!space.valid()) return errno_status("cannot open this network namespace");
  return space;
}

Result<Fd> new_space() {
  if (unshare(CLONE_NEWNET) != 0) return errno_status("cannot make a network namespace");
  return current_space();
}

Status enter(const Fd& space) {
  return setns(space.get(), CLONE_NEWNET) == 0 ? Status()
                                               : errno_status("cannot enter a network namespace");
}

// Runs `tool -batch -` with these lines, here in the current namespace.
Status batch(const std::string& tool, const std::string& lines) {
  FILE* pipe = popen((tool + " -batch -").c_str(), "we");
  if (pipe == nullptr) return errno_status("cannot run " + tool);
  std::fputs(lines.c_str(), pipe);
  const int status = pclose(pipe);
  if (status == 0) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return not_found(tool + " is not installed: apt-get install iproute2");
  return internal_error(tool + " refused to set up the hosts' network");
}

std::string limit(const std::string& device, uint64_t rate) {
  // A millisecond's worth at once: small enough not to let a tensor through unpaced.
  const uint64_t burst = std::max(kBurstBytesLeast, rate / 8 / 1000);
  return "qdisc add dev " + device + " root tbf rate " + std::to_string(rate) + "bit burst " +
         std::to_string(burst) + " latency 50ms\n";
}

Status limit_link(const std::string& device, uint64_t rate) {
  return rate == 0 ? Status() : batch("tc", limit(device, rate));
}

// In the bridge's namespace: a link whose other end, eth0, is in the host's.
Status add_port(const HostNetwork& host, int index, uint64_t rate) {
  const std::string port = "port" + std::to_string(index);
  const std::string space =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(host.space.get());
  Status status = batch("ip", "link add dev " + port + " type veth peer name eth0 netns " + space +
                                  "\nlink set dev " + port + " master bridge0 up\n");
  return status.ok() ? limit_link(port, rate) : status;
}

// In the host's namespace.
Status start_host(const HostNetwork& host, uint64_t rate) {
  Status status = batch("ip", "link set dev lo up\naddr add " + host.address +
                                  "/24 dev eth0\nlink set dev eth0 up\n");
  return status.ok() ? limit_link("eth0", rate) : status;
}

Status join_host(const HostNetwork& host, int index, const Fd& bridge, uint64_t rate) {
  Status status = add_port(host, index, rate);
  if (status.ok()) status = enter(host.space);
  if (status.ok()) status = start_host(host, rate);
  if (status.ok()) status = enter(bridge);
  return status;
}

}  // namespace

Result<std::vector<HostNetwork>> make_networks(int hosts, uint64_t rate_bits_per_s) {
  if (geteuid() != 0)
    return permission_denied("--netns makes network namespaces: run it as root, or without");
  if (hosts > kHostsMax)
    return invalid_argument("--netns has addresses for " + std::to_string(kHostsMax) + " hosts");
  std::vector<HostNetwork> out;
  for (int host = 0; host < hosts; ++host) {
    Result<Fd> space = new_space();
    if (!space.ok()) return space.status();
    out.push_back({.space = std::move(*space), .address = address_of(host)});
  }
  const Result<Fd> bridge = new_space();
  if (!bridge.ok()) return bridge.status();
  Status status =
      batch("ip", "link set dev lo up\nlink add dev bridge0 type bridge\naddr add " +
                      address_of(kHostsMax) + "/24 dev bridge0\nlink set dev bridge0 up\n");
  for (int host = 0; host < hosts && status.ok(); ++host)
    status = join_host(out[static_cast<size_t>(host)], host, *bridge, rate_bits_per_s);
  if (!status.ok()) return status;
  return out;
}

}  // namespace tutti
