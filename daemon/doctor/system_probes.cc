#include "daemon/doctor/system_probes.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "daemon/base/fd.h"
#include "daemon/base/program.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr uint64_t kNoLimit1 = uint64_t{1} << 60;  // cgroup v1 writes a huge number.

// 0: it cannot be read, or says "max".
uint64_t number_in(const std::string& path) {
  uint64_t number = 0;
  std::ifstream(path) >> number;
  return number;
}

// The group's part of a line "ID:CONTROLLERS:/GROUP" of /proc/PID/cgroup.
std::string group_of(const std::string& cgroups, const std::string& controllers) {
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> parts = split(line, ':');
    if (parts.size() >= 3 && parts[1] == controllers) return parts[2];
  }
  return {};
}

void add_cgroup(const std::string& process, LimitsView& limits) {
  const std::string cgroups = text_of_file(process + "/cgroup");
  const std::string v1 = "/sys/fs/cgroup/memory" + group_of(cgroups, "memory");
  const std::string v2 = "/sys/fs/cgroup" + group_of(cgroups, "");
  limits.cgroup_bytes_max = number_in(v2 + "/memory.max");
  limits.cgroup_bytes = number_in(v2 + "/memory.current");
  if (limits.cgroup_bytes_max != 0) return;
  const uint64_t max = number_in(v1 + "/memory.limit_in_bytes");
  limits.cgroup_bytes_max = max >= kNoLimit1 ? 0 : max;
  limits.cgroup_bytes = number_in(v1 + "/memory.usage_in_bytes");
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

FileView look_at_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {.path = path};
  return {.path = path, .exists = true, .uid = info.st_uid, .mode = info.st_mode & 07777U};
}

std::optional<uint32_t> user_of(uint32_t pid) {
  const FileView process = look_at_file("/proc/" + std::to_string(pid));
  return process.exists ? std::optional(process.uid) : std::nullopt;
}

uint64_t limit_in(const std::string& limits, const std::string& name) {
  std::istringstream lines(limits);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream columns(line.substr(name.size()));
    std::string soft;
    uint64_t hard = 0;
    if (columns >> soft >> hard) return hard;
  }
  return UINT64_MAX;
}

LimitsView look_at_limits(uint32_t pid) {
  const std::string process = pid == 0 ? "/proc/self" : "/proc/" + std::to_string(pid);
  LimitsView limits{.pid = pid, .of_agent = pid != 0};
  const std::string text = text_of_file(process + "/limits");
  limits.locked_bytes = limit_in(text, "Max locked memory");
  limits.descriptors = limit_in(text, "Max open files");
  add_cgroup(process, limits);
  return limits;
}

uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    uint64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return UINT64_MAX;
}

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? names.release : "";
}

Status check_pidfd() {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  return process.valid() ? Status{} : errno_status("pidfd_open");
}

}  // namespace tutti
