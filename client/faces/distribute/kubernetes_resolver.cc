#include "client/faces/distribute/kubernetes_resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>

namespace tutti::distribute {
namespace {

std::string numeric(const addrinfo& found) {
  std::array<char, NI_MAXHOST> text = {};
  const int failed = getnameinfo(found.ai_addr, found.ai_addrlen, text.data(), text.size(), nullptr,
                                 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

// Appends the pods of one service to a job's tasks.
Status append_pods(const std::string& service, std::vector<Pod> pods, int port,
                   ClusterSpec::Tasks& tasks) {
  if (pods.empty())
    return unavailable("service '" + service + "' has no pods yet; wait, or correct its name");
  std::ranges::sort(pods, {}, [](const Pod& pod) { return std::tie(pod.name, pod.address); });
  for (const Pod& pod : pods) {
    if (pod.phase != "Running")
      return failed_precondition("pod '" + pod.name + "' of service '" + service +
                                 "' is in the phase " + pod.phase + "; wait until it is Running");
    tasks.emplace(static_cast<int>(tasks.size()), endpoint(pod.address, port));
  }
  return {};
}

// The task at `address`; without parts if none is.
Task find_task(const ClusterSpec& spec, const std::string& address) {
  for (const auto& [job, tasks] : spec.jobs())
    for (const auto& [index, other] : tasks)
      if (other == address) return {job, index};
  return {};
}

}  // namespace

Result<std::vector<Pod>> lookup_by_dns(const std::string& service) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;  // Else each address comes once for each kind of socket.
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(service.c_str(), nullptr, &hints, &found);
  if (failed != 0)
    return unavailable("cannot resolve service '" + service + "': " + gai_strerror(failed) +
                       "; check its name and that it is headless (clusterIP: None)");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<Pod> pods;
  for (; found != nullptr; found = found->ai_next) {
    const std::string address = numeric(*found);
    if (!address.empty() && std::ranges::find(pods, address, &Pod::address) == pods.end())
      pods.push_back({address, address});
  }
  return pods;
}

Result<ClusterSpec> KubernetesResolver::cluster_spec() const {
  if (options_.port < 1 || options_.port > 65535)
    return invalid_argument("port=" + std::to_string(options_.port) + " is not 1 to 65535");
  ClusterSpec::Jobs jobs;
  for (const auto& [job, services] : options_.services)
    for (const std::string& service : services) {
      Result<std::vector<Pod>> pods = options_.lookup(service);
      if (!pods.ok()) return pods.status();
      if (Status status = append_pods(service, *std::move(pods), options_.port, jobs[job]);
          !status.ok())
        return status;
    }
  return ClusterSpec::create(std::move(jobs));
}

Result<Task> KubernetesResolver::task() const {
  const std::optional<std::string> own = options_.variables("POD_IP");
  if (!own || options_.task.known()) return options_.task;
  const Result<ClusterSpec> spec = cluster_spec();
  if (!spec.ok()) return spec.status();
  return task_or(options_.task, find_task(*spec, endpoint(*own, options_.port)));
}

}  // namespace tutti::distribute
