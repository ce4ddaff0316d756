// A connection inside TLS 1.3. The dialler knows the listener by the fingerprint of its
// certificate; the listener does not ask for one, because the handshake of links, which runs
// inside, proves that the dialler knows the job's secret.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/transport/tls_identity.h"
#include "daemon/transport/wire.h"

namespace tutti {

// AES-GCM is safe for 2^24.5 records of one key (RFC 8446, 5.5), which a link writes in minutes.
inline constexpr uint64_t kRecordsPerKey = uint64_t{1} << 23;

std::unique_ptr<Wire> make_tls_listener_wire(Fd socket, const TlsIdentity& own);
std::unique_ptr<Wire> make_tls_dialler_wire(Fd socket, const TlsIdentity& own,
                                            const std::string& fingerprint,
                                            uint64_t records_per_key = kRecordsPerKey);

}  // namespace tutti
