#include "daemon/transport/tls_identity.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>

#include "daemon/base/status.h"

namespace tutti {
namespace {

constexpr const char* kCiphers =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr long kDay = 24 * 60 * 60;
// Nobody checks the times, since peers compare the whole certificate; but they must be there.
constexpr long kValidSeconds = 10 * 365 * kDay;

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Memory = std::unique_ptr<BIO, decltype(&BIO_free)>;

void set_name(X509* certificate) {
  X509_NAME* name = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>(kTlsName);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0);
  X509_set_issuer_name(certificate, name);
}

Certificate make_certificate(EVP_PKEY* key) {
  Certificate certificate(X509_new(), X509_free);
  require(certificate != nullptr, "memory for a certificate");
  uint32_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1,
          "the system gives no random numbers");
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kValidSeconds);
  set_name(certificate.get());
  const bool made = X509_set_pubkey(certificate.get(), key) == 1 &&
                    X509_sign(certificate.get(), key, EVP_sha256()) > 0;
  require(made, "OpenSSL signs a certificate");
  return certificate;
}

SSL_CTX* make_context() {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  require(context != nullptr, "OpenSSL makes a context");
  const bool set = SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(context, kCiphers) == 1 &&
                   SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
                   SSL_CTX_set_num_tickets(context, 0) == 1;
  require(set, "OpenSSL knows TLS 1.3");
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // A link that ends without a goodbye is broken, whether TLS said good-bye or not.
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_IGNORE_UNEXPECTED_EOF);
  return context;
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(memory, &data);
  return {data, static_cast<size_t>(bytes)};
}

}  // namespace

std::string fingerprint_of(const x509_st* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  if (X509_digest(certificate, EVP_sha256(), digest.data(), &bytes) != 1) return {};
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < bytes; ++i)
    hex.append({kDigits[digest[i] >> 4], kDigits[digest[i] & 15]});
  return hex;
}

std::string fingerprint_of_pem(std::string_view certificate_pem) {
  const Memory memory(
      BIO_new_mem_buf(certificate_pem.data(), static_cast<int>(certificate_pem.size())), BIO_free);
  const Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr),
                                X509_free);
  return certificate == nullptr ? "" : fingerprint_of(certificate.get());
}

void TlsIdentity::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

TlsIdentity::TlsIdentity() : context_(make_context()) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  require(key != nullptr, "OpenSSL makes a key");
  const Certificate certificate = make_certificate(key.get());
  const bool used = SSL_CTX_use_certificate(context(), certificate.get()) == 1 &&
                    SSL_CTX_use_PrivateKey(context(), key.get()) == 1;
  require(used, "the key fits the certificate");
  fingerprint_ = fingerprint_of(certificate.get());
}

std::string TlsIdentity::key_pem() const {
  const Memory memory(BIO_new(BIO_s_mem()), BIO_free);
  EVP_PKEY* key = SSL_CTX_get0_privatekey(context());
  require(PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr),
          "OpenSSL writes a key");
  return text_of(memory.get());
}

std::string TlsIdentity::certificate_pem() const {
  const Memory memory(BIO_new(BIO_s_mem()), BIO_free);
  require(PEM_write_bio_X509(memory.get(), SSL_CTX_get0_certificate(context())),
          "OpenSSL writes a certificate");
  return text_of(memory.get());
}

}  // namespace tutti
