// Which settings a running agent takes from a file that it reads again. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/settings.h"

namespace tutti {

enum class Reload {
  at_once,
  new_jobs,  // Jobs that run keep what they started with.
  restart,
};
Reload reload_of(const SettingRow& row);

// Sets in `to` what does not need a restart to the values of `from`.
void copy_reloadable(Settings& to, const Settings& from);

// What becomes of the settings that differ, a sentence each.
struct ReloadReport {
  std::vector<std::string> changed;
  std::vector<std::string> kept;  // Until a restart.
};
// `running` is what the agent was configured with, `read` what it would be now. Names no token.
ReloadReport compare_settings(const Settings& running, const Settings& read);

}  // namespace tutti
