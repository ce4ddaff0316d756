#include "daemon/worker/data_port.h"

#include <unistd.h>

#include "daemon/base/port_range.h"

namespace tutti {

Result<std::string> listen_for_peers(Transport& transport, const Settings& settings,
                                     const Acceptor& acceptor) {
  const Result<PortRange> ports = parse_port_range(settings.data_ports);
  if (!ports.ok()) return ports.status();
  const uint32_t start = static_cast<uint32_t>(getpid()) % ports->count();
  for (uint32_t tried = 0; tried < ports->count(); ++tried) {
    const uint32_t port = ports->first + (start + tried) % ports->count();
    Result<std::string> address =
        transport.listen(settings.data_address + ":" + std::to_string(port), acceptor);
    if (address.ok() || address.status().code() != Code::already_exists) return address;
  }
  return resource_exhausted("all ports of data_ports = " + settings.data_ports +
                            " are taken on host " + settings.host +
                            "; each job of a host needs one: widen the range, and the firewall's");
}

}  // namespace tutti
