// TLS 1.2 or 1.3 for gRPC servers and channels, with the certificates of a store.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "daemon/control/certificate_store.h"

namespace tutti {

// For a server. Every handshake uses the store's newest certificates; open connections stay.
// Clients may show a certificate, which is verified. Must outlive the server that it is used for.
std::shared_ptr<grpc::ServerCredentials> tls_server_credentials(
    std::shared_ptr<CertificateStore> store);

// For a channel to `address` (host:port), with the store's newest certificates. It connects only to
// a server whose certificate is verified and names what was dialled, see names_server(), or the
// agent called `host`, see names_host(); empty: its name is not known.
std::shared_ptr<grpc::ChannelCredentials> tls_channel_credentials(CertificateStore& store,
                                                                  const std::string& address,
                                                                  const std::string& host = {});

// What to do about gRPC's error `why` of a connection with the certificates of `store`, or without
// TLS (null); empty where the error has nothing to do with TLS.
std::string tls_remedy(const std::string& why, const CertificateStore* store);

// How a server tells its callers apart by their certificates.
struct ServerTls {
  std::shared_ptr<CertificateStore> store;  // Null: they have none.
  std::string admin;                        // In the certificates of administrators.
};
// PERMISSION_DENIED: a caller with these names may not call itself `host`. OK without TLS.
Status check_host_name(const ServerTls& tls, const std::optional<CertificateNames>& caller,
                       const std::string& host);

// Whom the certificate of a call's peer is issued to; empty: it showed none.
std::optional<CertificateNames> peer_names(const grpc::AuthContext& peer);

}  // namespace tutti
