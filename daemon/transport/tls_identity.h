// Who this process is to those that dial its encrypted links: a key of its own, made at start and
// never written anywhere, and a certificate that it signed itself. Peers know the certificate's
// fingerprint from the roster, so no authority is needed and nothing has to be renewed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct ssl_ctx_st;  // OpenSSL's SSL_CTX.
struct x509_st;     // OpenSSL's X509.

namespace tutti {

// The name in every certificate. gRPC asks for it and warns of others; nobody checks it.
inline constexpr char kTlsName[] = "tutti-worker";

// Immutable, hence thread-safe.
class TlsIdentity {
 public:
  TlsIdentity();
  const std::string& fingerprint() const { return fingerprint_; }
  std::string key_pem() const;
  std::string certificate_pem() const;
  // For connections either way: TLS 1.3 alone, AES-GCM first, no sessions to resume.
  ssl_ctx_st* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  const std::unique_ptr<ssl_ctx_st, Free> context_;
  std::string fingerprint_;
};

// SHA-256 of the certificate in lower-case hex digits.
std::string fingerprint_of(const x509_st* certificate);
// Returns "" if it is none.
std::string fingerprint_of_pem(std::string_view certificate_pem);

}  // namespace tutti
