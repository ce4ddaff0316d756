// TF_CONFIG: every call answers or refuses, and a place that is given is in the cluster.
#include "client/faces/distribute/tf_config_resolver.h"
#include "tests/fuzz/input.h"

namespace tutti::distribute {
namespace {

template <class T>
void check_status(const Result<T>& result) {
  require(result.ok() || result.status().code() == Code::invalid_argument, "refused");
}

void check_place(const Result<Placement>& place) {
  check_status(place);
  if (!place.ok()) return;
  require(place->rank >= 0 && place->rank < place->world_size, "a rank is below the world size");
}

}  // namespace
}  // namespace tutti::distribute

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::distribute;
  ResolverOptions options;
  options.variables =
      environment_of({{"TF_CONFIG", std::string(tutti::fuzz::Input(data, size).rest())}});
  const TfConfigResolver resolver(options);
  check_status(resolver.cluster_spec());
  check_status(resolver.task());
  check_status(resolver.rpc_layer());
  check_status(resolver.master());
  check_place(resolver.placement());
  return 0;
}
