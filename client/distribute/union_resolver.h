// Several resolvers as one, as tf.distribute's UnionClusterResolver.
#pragma once

#include <memory>
#include <vector>

#include "client/distribute/resolver.h"

namespace tutti::distribute {

// Values that take precedence over those of the first resolver.
struct UnionOptions {
  Task task;
  std::string rpc_layer;
};

class UnionResolver : public Resolver {
 public:
  using Resolvers = std::vector<std::shared_ptr<const Resolver>>;

  // INVALID_ARGUMENT: no resolvers, or one of them is null.
  static Result<UnionResolver> create(Resolvers resolvers, UnionOptions options = {});

  // The jobs of all. A job whose tasks are without gaps in every resolver is concatenated in the
  // order of the resolvers; any other job is merged by index. ALREADY_EXISTS: an index occurs
  // twice.
  Result<ClusterSpec> cluster_spec() const override;
  // The following are those of the first resolver, where the options do not say otherwise.
  Result<Task> task() const override;
  Result<Accelerators> num_accelerators() const override;
  Result<std::string> rpc_layer() const override;
  Result<std::string> environment() const override;

 protected:
  // The requested task's address in the whole cluster, else the first resolver's master.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;

 private:
  UnionResolver(Resolvers resolvers, UnionOptions options)
      : resolvers_(std::move(resolvers)), options_(std::move(options)) {}

  Resolvers resolvers_;
  UnionOptions options_;
};

}  // namespace tutti::distribute
