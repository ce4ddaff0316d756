#include "daemon/transport/secrets.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "daemon/base/status.h"

namespace tutti {

LinkNonce make_nonce() {
  LinkNonce nonce;
  const ssize_t got = getrandom(nonce.data(), nonce.size(), 0);
  require(got == static_cast<ssize_t>(nonce.size()), "the system gives no random numbers");
  return nonce;
}

LinkProof prove(const std::string& secret, std::string_view said) {
  LinkProof proof;
  unsigned int bytes = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(said.data());
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text, said.size(),
       proof.data(), &bytes);
  require(bytes == proof.size(), "HMAC-SHA256 has 32 bytes");
  return proof;
}

bool same_proof(const LinkProof& a, const LinkProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool same_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tutti
