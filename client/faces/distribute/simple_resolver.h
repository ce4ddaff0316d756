// A resolver that tells what it was given, as tf.distribute's SimpleClusterResolver.
#pragma once

#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

class SimpleResolver : public Resolver {
 public:
  explicit SimpleResolver(ClusterSpec spec, ResolverOptions options = {})
      : Resolver(std::move(options)), spec_(std::move(spec)) {}

  Result<ClusterSpec> cluster_spec() const override { return spec_; }

 protected:
  // The own task counts for nothing here, as in TensorFlow.
  Result<std::string> find_master(const Task& task, const std::string& layer) const override {
    if (task.known()) return Resolver::find_master(task, layer);
    return format_master_url(options().master, layer.empty() ? options().rpc_layer : layer);
  }

 private:
  ClusterSpec spec_;
};

}  // namespace tutti::distribute
