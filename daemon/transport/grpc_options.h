// gRPC's options for data links: message sizes, keepalive, no retries and no proxies.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "daemon/transport/transport.h"

namespace tutti {

grpc::ChannelArguments channel_arguments(const LinkLimits& limits);
void set_server_options(const LinkLimits& limits, grpc::ServerBuilder& builder);

}  // namespace tutti
