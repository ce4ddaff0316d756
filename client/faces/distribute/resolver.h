// What tells a process its cluster and its place in it: the interface of all resolvers, as
// tf.distribute.cluster_resolver.ClusterResolver.
#pragma once

#include <map>
#include <string>

#include "client/faces/distribute/cluster_spec.h"
#include "client/faces/distribute/environment.h"
#include "client/faces/distribute/multi_worker.h"

namespace tutti::distribute {

// "GPU" -> 4: accelerators of this process, by type.
using Accelerators = std::map<std::string, int>;

// "grpc://host:1", or "host:1" without rpc layer.
std::string format_master_url(const std::string& address, const std::string& rpc_layer);

// What a resolver is given. It goes before what the source tells.
struct ResolverOptions {
  std::string master = {};  // The address to connect to where no task is named.
  Task task = {};
  std::string environment = {};
  Accelerators num_accelerators = {};
  std::string rpc_layer = {};
  Environment variables = process_environment();
};

// Threads may share a resolver: no call changes it. Each call reads its source again unless the
// class says otherwise.
class Resolver {
 public:
  virtual ~Resolver() = default;

  virtual Result<ClusterSpec> cluster_spec() const = 0;
  // This process's task. Parts that the source does not tell are empty.
  virtual Result<Task> task() const { return options_.task; }
  virtual Result<Accelerators> num_accelerators() const { return options_.num_accelerators; }
  // "grpc", or empty for none.
  virtual Result<std::string> rpc_layer() const { return options_.rpc_layer; }
  // "google" within Google, else empty, as TensorFlow defines it.
  virtual Result<std::string> environment() const { return options_.environment; }

  // The parts of task(), with its errors.
  Result<std::string> task_type() const;
  Result<std::optional<int>> task_id() const;
  // The address to connect to, of `task` if both parts are given; what is empty, the resolver's own
  // values stand for. Empty where there is none to tell. Errors as ClusterSpec::task_address() if a
  // task is named.
  Result<std::string> master(const Task& task = {}, const std::string& rpc_layer = "") const {
    return find_master(task, rpc_layer);
  }
  // Rank, size, chief and leader. Errors as place().
  Result<Placement> placement() const;

 protected:
  explicit Resolver(ResolverOptions options = {}) : options_(std::move(options)) {}
  const ResolverOptions& options() const { return options_; }
  // "GPU" -> count_gpus(); empty without GPUs.
  Accelerators own_gpus() const;
  // The address of the requested task, else for this process's own; empty if neither is known.
  virtual Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const;

 private:
  ResolverOptions options_;
};

// Each part of `given`, or that of `fallback` where it is empty.
Task task_or(const Task& given, const Task& fallback);

}  // namespace tutti::distribute
