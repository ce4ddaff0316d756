// What settings forbid a start, before anything is opened.
#pragma once

#include "daemon/base/credentials.h"
#include "daemon/base/settings.h"
#include "daemon/control/control.h"

namespace tutti {

// With what the agent takes for settings that are empty.
Settings with_defaults(Settings settings);
// Without what depends on files and on the agent: `tls` and `on_coordinator`.
ControlOptions control_options(const Settings& settings, const Credentials& credentials);

// What the texts of the settings alone forbid: no later start would do better.
Faults check_texts(const Settings& settings, const Credentials& credentials);
// All that a start finds out, as names, groups and files are now: a later start may do better.
// Leaves out that this machine lacks an address or a name yet. Changes nothing.
Faults check_start(const Settings& settings, const Credentials& credentials);

// The parts that a start looks at where it needs them. FAILED_PRECONDITION: it cannot.
Status check_worker_binary(const std::string& path);
Status check_metrics_listen(const Settings& settings, const Credentials& credentials,
                            bool is_everywhere);
// Whether the certificates can be used now, where they are needed. They may be renewed later.
Status check_certificates_of(const Settings& settings);

}  // namespace tutti
