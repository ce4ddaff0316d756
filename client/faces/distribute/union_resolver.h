// Several resolvers as one, as tf.distribute's UnionClusterResolver.
#pragma once

#include <memory>
#include <vector>

#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

class UnionResolver : public Resolver {
 public:
  using Resolvers = std::vector<std::shared_ptr<const Resolver>>;

  // INVALID_ARGUMENT: no resolvers, or one of them is null.
  static Result<UnionResolver> create(Resolvers resolvers, ResolverOptions options = {});

  // The jobs of all. A job whose tasks are without gaps in every resolver is concatenated in the
  // order of the resolvers; any other job is merged by index. ALREADY_EXISTS: an index occurs
  // twice.
  Result<ClusterSpec> cluster_spec() const override;
  // The following are those of the first resolver, where the options do not give a task or an rpc
  // layer.
  Result<Task> task() const override;
  Result<Accelerators> num_accelerators() const override {
    return resolvers_[0]->num_accelerators();
  }
  Result<std::string> rpc_layer() const override;
  Result<std::string> environment() const override { return resolvers_[0]->environment(); }

 protected:
  // The requested task's address in the whole cluster, else the first resolver's master.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;

 private:
  UnionResolver(Resolvers resolvers, ResolverOptions options)
      : Resolver(std::move(options)), resolvers_(std::move(resolvers)) {}

  Resolvers resolvers_;
};

}  // namespace tutti::distribute
