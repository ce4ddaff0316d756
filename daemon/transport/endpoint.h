// Where a link's listener is: "host:port", or "host:port#fingerprint" if it takes encrypted links
// only. The fingerprint is SHA-256 of the listener's certificate, in 64 lower-case hex digits.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace tutti {

struct Endpoint {
  std::string address;      // host:port
  std::string fingerprint;  // Empty: plain.
};

std::string to_string(const Endpoint& endpoint);

// Reads the endpoint that a worker dials whose setting `tls` is require (true) or off.
// FAILED_PRECONDITION: the listener's differs. INVALID_ARGUMENT: the fingerprint is none.
Result<Endpoint> parse_endpoint(const std::string& text, bool tls);

}  // namespace tutti
