// The certificates of one side of the control plane, from the files of a directory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// The certificates of one side of the control plane, read again when they change. Null: no TLS.
class CertificateStore;
using Tls = std::shared_ptr<CertificateStore>;
// An agent's: tls.crt, tls.key and ca.crt in `directory`. NOT_FOUND, FAILED_PRECONDITION: one of
// them is missing or not valid, see certificate_store.h.
Result<Tls> open_agent_tls(const std::string& directory);
// A worker's or a tool's: ca.crt, and the others if they are there and may be read.
Result<Tls> open_client_tls(const std::string& directory);

// What an agent's certificate says, for people.
struct CertificateSummary {
  std::string names;    // "DNS b, IP 10.0.0.1, CN b".
  bool fits = false;    // Whether an agent that shows it may call itself by the name asked for.
  int64_t renewal = 0;  // Seconds since 1970: by when it should be renewed,
  int64_t expires = 0;  // and when it expires.
};
// Reads and checks as open_agent_tls() does, with its errors.
Result<CertificateSummary> look_at_certificates(const std::string& directory,
                                                const std::string& host);

}  // namespace tutti
