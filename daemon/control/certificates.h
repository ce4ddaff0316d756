// Certificates and what they prove: checks of PEM texts, and the rules of names. For this room only
// these files use OpenSSL.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// Whom a certificate is issued to.
struct CertificateNames {
  std::vector<std::string> dns;        // In lower case.
  std::vector<std::string> addresses;  // "10.0.0.1", "::1".
  std::vector<std::string> uris;
  std::string spiffe_id;  // The only URI, if it is spiffe://TRUST-DOMAIN/PATH; otherwise empty.
  std::string common_name;
  // "DNS b, IP 10.0.0.1, URI spiffe://x/y, CN b".
  std::string to_string() const;
};
// For the first certificate of a PEM text. INVALID_ARGUMENT: there is none.
Result<CertificateNames> certificate_names(const std::string& pem);

// The texts of ca.crt, tls.crt and tls.key.
struct CertificateFiles {
  std::string ca;
  std::string chain;  // The certificate, then those between it and the authority.
  std::string key;
  bool operator==(const CertificateFiles&) const = default;
};

// Certificates that have passed check_certificates().
struct Certificates {
  CertificateFiles files;
  CertificateNames names;   // Of tls.crt.
  std::time_t renewal = 0;  // By when tls.crt should be renewed: a tenth of its time is left.
  std::time_t expires = 0;  // When tls.crt does. 0: there is none.
};
std::string format_time(std::time_t time);  // "2026-11-23T18:05:42Z"

// What a certificate is used for. A client may do without one, or have one without its key: then it
// shows none.
enum class CertificateUse { server_and_client, client };

// FAILED_PRECONDITION: a text does not parse, the key is not the certificate's, or the certificate
// has expired, was not issued by the authority, or not for this use. The message names the file in
// `directory` and the remedy.
Result<Certificates> check_certificates(const CertificateFiles& files, CertificateUse use,
                                        const std::string& directory);

// In the rules below `own` are the names of this side's certificate. Two SPIFFE IDs are siblings if
// they differ at most in the last part of their paths, for example spiffe://x/ns/tutti/sa/agent and
// spiffe://x/ns/tutti/sa/admin.

// Whether a server with these names may be what was dialled as `host`: a DNS name or an address is
// equal to it, or to one of `own`, because this host may be dialled by an address that its
// certificate does not name; or the SPIFFE ID is a sibling.
bool names_server(const CertificateNames& names, const std::string& host,
                  const CertificateNames& own);
// Whether an agent with these names may call itself `host`: a DNS name or an address is equal to
// it, the SPIFFE ID is a sibling that ends with it, or the same as in `own`: agents that share an
// ID vouch for their names themselves.
bool names_host(const CertificateNames& names, const std::string& host,
                const CertificateNames& own);
// Whether `admin` is the common name, a DNS name, the SPIFFE ID, or the end of a sibling.
bool names_admin(const CertificateNames& names, const std::string& admin,
                 const CertificateNames& own);

}  // namespace tutti
