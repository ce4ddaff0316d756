// Where a worker listens for the job's workers on other hosts.
#pragma once

#include <string>

#include "daemon/base/settings.h"
#include "daemon/transport/transport.h"

namespace tutti {

// Listens at data_address on the first free port of data_ports, beginning at one that differs among
// a host's workers. Returns the address to dial. RESOURCE_EXHAUSTED: all ports are taken.
Result<std::string> listen_for_peers(Transport& transport, const Settings& settings,
                                     const Acceptor& acceptor);

}  // namespace tutti
