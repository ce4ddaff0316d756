// The processor time that control groups grant this process, as containers and systemd units are
// limited: a process that waits awake uses it up, and then does not run at all for a while.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

// Whole cores, at least 1: the least quota of the process's control group and of those above it, of
// either version; SIZE_MAX where none is limited, or what limits it cannot be seen. `root`: where
// /proc and /sys are; for tests.
size_t cpu_quota(const std::string& root = "");

}  // namespace tutti
