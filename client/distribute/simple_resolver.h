// A resolver that tells what it was given, as tf.distribute's SimpleClusterResolver.
#pragma once

#include "client/distribute/resolver.h"

namespace tutti::distribute {

struct SimpleOptions {
  std::string master;  // What master() returns where no task is named.
  Task task;
  std::string environment;
  Accelerators num_accelerators;
  std::string rpc_layer;
};

class SimpleResolver : public Resolver {
 public:
  explicit SimpleResolver(ClusterSpec spec, SimpleOptions options = {})
      : spec_(std::move(spec)), options_(std::move(options)) {}

  Result<ClusterSpec> cluster_spec() const override { return spec_; }
  Result<Task> task() const override { return options_.task; }
  Result<Accelerators> num_accelerators() const override { return options_.num_accelerators; }
  Result<std::string> rpc_layer() const override { return options_.rpc_layer; }
  Result<std::string> environment() const override { return options_.environment; }

 protected:
  // The own task counts for nothing here, as in TensorFlow.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;

 private:
  ClusterSpec spec_;
  SimpleOptions options_;
};

}  // namespace tutti::distribute
