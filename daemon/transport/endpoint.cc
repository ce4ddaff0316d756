#include "daemon/transport/endpoint.h"

namespace tutti {
namespace {

constexpr size_t kFingerprintDigits = 64;

Status unlike(const std::string& address, bool tls) {
  return failed_precondition(std::string("tls = ") + (tls ? "off" : "require") +
                             " on the host at " + address + ", " + (tls ? "require" : "off") +
                             " here; set the same on all hosts");
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  return endpoint.fingerprint.empty() ? endpoint.address
                                      : endpoint.address + "#" + endpoint.fingerprint;
}

Result<Endpoint> parse_endpoint(const std::string& text, bool tls) {
  const size_t mark = text.find('#');
  Endpoint endpoint{text.substr(0, mark), {}};
  if ((mark != std::string::npos) != tls) return unlike(endpoint.address, tls);
  if (!tls) return endpoint;
  endpoint.fingerprint = text.substr(mark + 1);
  const bool is_hex =
      endpoint.fingerprint.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (endpoint.fingerprint.size() != kFingerprintDigits || !is_hex)
    return invalid_argument("\"" + text + "\" has no fingerprint of a certificate");
  return endpoint;
}

}  // namespace tutti
