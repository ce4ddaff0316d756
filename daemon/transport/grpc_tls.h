// gRPC's credentials for encrypted links: the listener shows its own certificate, the dialler
// compares it with the fingerprint from the roster and with nothing else.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <atomic>
#include <memory>
#include <string>

#include "daemon/transport/tls_identity.h"

namespace tutti {

std::shared_ptr<grpc::ServerCredentials> tls_server_credentials(const TlsIdentity& own);

// Sets `met_another` when a listener shows another certificate, on a thread of gRPC.
std::shared_ptr<grpc::ChannelCredentials> tls_channel_credentials(
    const std::string& fingerprint, std::shared_ptr<std::atomic<bool>> met_another);

}  // namespace tutti
