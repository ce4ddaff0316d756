// The cluster as the pods behind headless services of Kubernetes. tf.distribute's
// KubernetesClusterResolver asks the API server for pods by label; here DNS is asked, which needs
// no rights and no client.
#pragma once

#include <functional>
#include <vector>

#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

struct Pod {
  std::string name;
  std::string address;  // IPv4 or IPv6, without port and brackets.
  std::string phase = "Running";
};

// The pods of a service. Blocks as long as it takes. What it fails with, cluster_spec() does.
using PodLookup = std::function<Result<std::vector<Pod>>(const std::string& service)>;

// Asks DNS by getaddrinfo(); the names of the pods are their addresses. UNAVAILABLE: no answer. A
// headless service lists pods that are not ready only if publishNotReadyAddresses is set.
Result<std::vector<Pod>> lookup_by_dns(const std::string& service);

struct KubernetesOptions {
  // The services of each job, in the order in which their pods are numbered.
  std::map<std::string, std::vector<std::string>> services = {{"worker", {"tensorflow"}}};
  int port = 8470;  // Of every pod.
  // What is not set here follows from POD_IP (fieldRef status.podIP), if one pod has this address.
  Task task = {};
  std::string rpc_layer = "grpc";
  PodLookup lookup = lookup_by_dns;
  Environment variables = process_environment();
};

class KubernetesResolver : public Resolver {
 public:
  explicit KubernetesResolver(KubernetesOptions options = {})
      : Resolver(
            {.task = options.task, .rpc_layer = options.rpc_layer, .variables = options.variables}),
        options_(std::move(options)) {}

  // The pods of each service, sorted by name as strings, each "address:port". UNAVAILABLE: a
  // service has no pods. FAILED_PRECONDITION: a pod is not in the phase Running. INVALID_ARGUMENT:
  // the port is not 1 to 65535.
  Result<ClusterSpec> cluster_spec() const override;
  // Errors as cluster_spec(), if POD_IP has to be found.
  Result<Task> task() const override;
  Result<Accelerators> num_accelerators() const override { return own_gpus(); }

 private:
  KubernetesOptions options_;
};

}  // namespace tutti::distribute
