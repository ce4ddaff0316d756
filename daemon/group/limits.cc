#include "daemon/group/limits.h"

#include <tuple>

namespace tutti {

v1::Rates limits_of(const EpochOptions& options) {
  v1::Rates limits;
  limits.set_slice_bytes(options.slice_bytes);
  limits.set_slices_in_flight(options.slices_in_flight);
  limits.set_ops_in_flight(options.ops_in_flight);
  limits.set_early_bytes(options.early_bytes);
  return limits;
}

// Hosts whose slices differ would take equal requests for different ones. One that may send more
// than another does could fill the links of that one, and both would wait for good.
Status compare_limits(const std::string& job, const HostLimits& own, const HostLimits& told) {
  const v1::Rates& a = own.limits;
  const v1::Rates& b = told.limits;
  if (b.slice_bytes() == 0) return {};
  const std::tuple<std::string, uint64_t, uint64_t> limits[] = {
      {"slice_bytes", a.slice_bytes(), b.slice_bytes()},
      {"slices_in_flight", a.slices_in_flight(), b.slices_in_flight()},
      {"ops_in_flight", a.ops_in_flight(), b.ops_in_flight()},
      {"early_bytes", a.early_bytes(), b.early_bytes()}};
  for (const auto& [name, ours, theirs] : limits)
    if (ours != theirs)
      return failed_precondition("job " + job + ": the hosts differ in " + name + ": it is " +
                                     std::to_string(ours) + " on host " + own.host + ", " +
                                     std::to_string(theirs) + " on host " + told.host + "; set " +
                                     (name == "slice_bytes" ? "it and frame_bytes_max" : "it") +
                                     " alike on all hosts",
                                 {});  // No host is more to blame than the other.
  return {};
}

}  // namespace tutti
