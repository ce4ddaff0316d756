// The dialling end of a gRPC link.
#pragma once

#include <memory>
#include <string>

#include "daemon/transport/grpc_link.h"

namespace tutti {

// Dials on a channel of its own. `hub` keeps the link until its end.
std::shared_ptr<Link> dial(std::shared_ptr<GrpcHub> hub, const std::string& address,
                           const LinkHello& hello, std::shared_ptr<LinkHandler> handler);

}  // namespace tutti
