// Takes the view of a node that daemon/diagnosis judges.
#pragma once

#include <string>

#include "daemon/base/settings.h"
#include "daemon/control/tls_files.h"
#include "daemon/diagnosis/diagnosis.h"

namespace tutti {

struct DoctorOptions {
  std::string config;    // Of the settings file.
  Settings settings;     // As read,
  Status settings_read;  // and whether that was possible.
  bool config_exists = false;
  std::string address;  // Of the agent; empty: the Unix socket of the settings.
  std::string version;
  int timeout_ms = 5'000;  // Of each question over the network.
};
// Blocks for seconds where other hosts do not answer. Changes nothing, but for one datagram to each
// agent, which tells whether packets of full size arrive, and a file without a name in run_dir,
// which tells whether there is space.
NodeView look_at_node(const DoctorOptions& options);

}  // namespace tutti
