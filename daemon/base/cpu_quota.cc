#include "daemon/base/cpu_quota.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "daemon/base/fd.h"

namespace tutti {
namespace {

// "" where there is no such file. No stream: those hide it when memory runs out.
std::string text_of(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 1024> part;  // NOLINT: filled as far as it is used.
  for (ssize_t got = 0; (got = read(file.get(), part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<size_t>(got));
  return text;
}

// Takes what is before the separator, or all, off the text.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Both in microseconds. "max" and -1 are no quota.
size_t cores_of(std::string_view quota, std::string_view period) {
  const int64_t granted = number_of(quota), of = number_of(period);
  if (granted <= 0 || of <= 0) return SIZE_MAX;
  return std::max<size_t>(1, static_cast<size_t>(granted / of));
}

size_t cores_of_version_2(const std::string& group) {
  const std::string text = text_of(group + "/cpu.max");
  std::string_view left = text;
  const std::string_view quota = take(left, ' ');
  return cores_of(quota, left);
}

size_t cores_of_version_1(const std::string& group) {
  return cores_of(text_of(group + "/cpu.cfs_quota_us"), text_of(group + "/cpu.cfs_period_us"));
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

bool lists_cpu(std::string_view controllers) {
  while (!controllers.empty())
    if (take(controllers, ',') == "cpu") return true;
  return false;
}

}  // namespace

// A line is "number:controllers:path"; that of version 2 has the number 0 and no controllers.
size_t cpu_quota(const std::string& root) {
  const std::string groups = text_of(root + "/proc/self/cgroup");
  const std::string mount = root + "/sys/fs/cgroup";
  size_t least = SIZE_MAX;
  for (std::string_view left = groups; !left.empty();) {
    std::string_view line = take(left, '\n');
    const std::string_view number = take(line, ':');
    const std::string controllers(take(line, ':'));
    const std::string path(line);
    if (number == "0" && controllers.empty())
      least = std::min(least, least_upwards(mount, path, cores_of_version_2));
    else if (lists_cpu(controllers))
      for (const std::string& name : {std::string("cpu"), controllers})
        least = std::min(least, least_upwards(mount + "/" + name, path, cores_of_version_1));
  }
  return least;
}

}  // namespace tutti
