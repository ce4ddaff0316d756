// Questions to this machine's kernel.
#pragma once

#include "daemon/doctor/doctor.h"

namespace tutti {

// The first line of a file without its end; empty: it cannot be read.
std::string first_line(const std::string& path);

FileView look_at_file(const std::string& path);
// Whether files can be made there: RESOURCE_EXHAUSTED without space, PERMISSION_DENIED on a
// read-only file system. Leaves nothing there, and writes only where this user may.
Status check_space(const std::string& directory);
// NOT_FOUND, PERMISSION_DENIED: no program that can be executed.
Status check_program(const std::string& path);
// The user of a process; nullopt: there is none.
std::optional<uint32_t> user_of(uint32_t pid);
// For the process `pid`, or for this one where that is 0.
LimitsView look_at_limits(uint32_t pid);
uint64_t available_memory_bytes();  // MemAvailable of /proc/meminfo.
std::string kernel_release();
Status check_pidfd();

// The hard limit in a line of /proc/PID/limits that begins with `name`; UINT64_MAX: unlimited, or
// there is none. Pure.
uint64_t limit_in(const std::string& limits, const std::string& name);

}  // namespace tutti
