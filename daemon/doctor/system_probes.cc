#include "daemon/doctor/system_probes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/base/fd.h"
#include "daemon/base/program.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr size_t kBlockBytes = 64 << 10;           // Written to a run_dir to see that it can be.
constexpr size_t kSpaceBytesMin = 1 << 20;         // As the alert TuttiRunDirFull has it.
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

Status check_space(const std::string& directory) {
  struct statvfs system {};
  if (statvfs(directory.c_str(), &system) != 0) return {};  // It is made at the start.
  if ((system.f_flag & ST_RDONLY) != 0)
    return permission_denied(directory + " is on a read-only file system");
  const uint64_t bytes = uint64_t{system.f_bavail} * system.f_frsize;
  if (bytes < kSpaceBytesMin || (system.f_files != 0 && system.f_favail == 0))
    return resource_exhausted(directory + " is full: " + format_byte_size(bytes) + " and " +
                              std::to_string(system.f_favail) + " inodes are left");
  const Fd file(open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!file.valid())
    return errno == EROFS ? errno_status("cannot write to " + directory) : Status();
  const std::string block(kBlockBytes, '\0');
  if (write(file.get(), block.data(), block.size()) == ssize_t(block.size())) return {};
  return resource_exhausted("cannot write to " + directory + ": " + std::strerror(errno));
}

Status check_program(const std::string& path) {
  const FileView file = look_at_file(path);
  if (!file.exists) return not_found("there is no " + path);
  if (std::filesystem::is_regular_file(path) && (file.mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0)
    return {};
  return permission_denied(path + " cannot be executed");
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
