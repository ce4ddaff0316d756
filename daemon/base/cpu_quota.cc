#include "daemon/base/cpu_quota.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>

namespace tutti {
namespace {

// Both in microseconds. "max" and -1 are no quota.
size_t cores_of(std::istream&& quota, std::istream&& period) {
  int64_t granted = 0, of = 0;
  if (!(quota >> granted) || !(period >> of) || granted <= 0 || of <= 0) return SIZE_MAX;
  return std::max<size_t>(1, static_cast<size_t>(granted / of));
}

size_t cores_of_version_2(const std::string& group) {
  std::ifstream file(group + "/cpu.max");
  std::string quota, period;
  file >> quota >> period;
  return cores_of(std::istringstream(quota), std::istringstream(period));
}

size_t cores_of_version_1(const std::string& group) {
  return cores_of(std::ifstream(group + "/cpu.cfs_quota_us"),
                  std::ifstream(group + "/cpu.cfs_period_us"));
}

// The least of the group at `path` below `mount` and those above it. In a container, the path may
// be one of the host's, of which only the container's own group is there: as the topmost.
template <class CoresOf>
size_t least_upwards(const std::string& mount, std::string path, const CoresOf& cores_of_group) {
  size_t least = cores_of_group(mount);
  if (!path.starts_with('/')) return least;
  for (; path.size() > 1; path.resize(path.rfind('/')))
    least = std::min(least, cores_of_group(mount + path));
  return least;
}

bool lists_cpu(const std::string& controllers) {
  std::istringstream all(controllers);
  for (std::string one; std::getline(all, one, ',');)
    if (one == "cpu") return true;
  return false;
}

}  // namespace

// A line is "number:controllers:path"; that of version 2 has the number 0 and no controllers.
size_t cpu_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string mount = root + "/sys/fs/cgroup";
  size_t least = SIZE_MAX;
  for (std::string number, controllers, path; std::getline(groups, number, ':') &&
                                              std::getline(groups, controllers, ':') &&
                                              std::getline(groups, path);) {
    if (number == "0" && controllers.empty())
      least = std::min(least, least_upwards(mount, path, cores_of_version_2));
    else if (lists_cpu(controllers))
      for (const std::string& name : {std::string("cpu"), controllers})
        least = std::min(least, least_upwards(mount + "/" + name, path, cores_of_version_1));
  }
  return least;
}

}  // namespace tutti
