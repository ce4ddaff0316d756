// The dialling end of a TCP link: from its address to its open socket (proto/handshake.h).
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/tcp_link.h"

namespace tutti {

// On the loop.
void dial_tcp(std::shared_ptr<TcpHub> hub, std::shared_ptr<TcpLink> link,
              const std::string& address, const LinkHello& hello);

}  // namespace tutti
