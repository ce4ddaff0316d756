// Signatures of passes.
#include "daemon/control/passes.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <memory>

#include "proto/mesh.pb.h"

namespace tutti {
namespace {

using Pair = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Digest = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

constexpr size_t kSeedBytes = 32;  // Of Ed25519; its public keys have as many.
constexpr size_t kSignatureBytes = 64;

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// What is signed: each field behind its length, so that no two passes have the same text.
std::string text_of(const v1::Pass& pass) {
  std::string text = "tutti pass 1";
  for (const std::string& field :
       {pass.job(), std::to_string(pass.uid()), pass.subject(), pass.host()})
    text += "\n" + std::to_string(field.size()) + " " + field;
  return text;
}

std::string hmac(const std::string& key, const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  const bool made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text),
                         text.size(), bytes.data(), &size) != nullptr;
  require(made, "OpenSSL lacks HMAC-SHA256");
  return {bytes.begin(), bytes.begin() + size};
}

Pair pair_of(const std::string& own_key) {
  const std::string seed = hmac(own_key, "tutti pass keys 1");
  Pair pair(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes_of(seed), kSeedBytes),
            &EVP_PKEY_free);
  require(pair != nullptr, "OpenSSL lacks Ed25519");
  return pair;
}

bool is_signed_by(const v1::Pass& pass, const std::string& public_key) {
  const Pair pair(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, bytes_of(public_key),
                                              public_key.size()),
                  &EVP_PKEY_free);
  const Digest digest(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const std::string text = text_of(pass);
  const bool good =
      pair != nullptr &&
      EVP_DigestVerifyInit(digest.get(), nullptr, nullptr, nullptr, pair.get()) == 1 &&
      EVP_DigestVerify(digest.get(), bytes_of(pass.signature()), pass.signature().size(),
                       bytes_of(text), text.size()) == 1;
  ERR_clear_error();  // Connections of this thread would take what is left there for theirs.
  return good;
}

Status not_signed(const v1::Pass& pass) {
  return unauthenticated("host " + pass.host() +
                         " did not sign as an agent of this mesh for job \"" + pass.job() +
                         "\"; give the agents of all hosts the same token (token_file)");
}

}  // namespace

std::string public_pass_key(const std::string& own_key) {
  std::array<unsigned char, kSeedBytes> bytes{};
  size_t size = bytes.size();
  const bool made = EVP_PKEY_get_raw_public_key(pair_of(own_key).get(), bytes.data(), &size) == 1;
  require(made, "OpenSSL gives no public key");
  return {bytes.begin(), bytes.begin() + size};
}

void sign_pass(v1::Pass& pass, const std::string& key) {
  pass.set_signature(hmac(key, text_of(pass)));
}

void sign_pass(v1::Pass& pass, const Credentials& credentials) {
  if (!credentials.certified_hosts) return sign_pass(pass, credentials.agent_token());
  const Pair pair = pair_of(credentials.own_key);
  const Digest digest(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const std::string text = text_of(pass);
  std::array<unsigned char, kSignatureBytes> bytes{};
  size_t size = bytes.size();
  const bool made =
      EVP_DigestSignInit(digest.get(), nullptr, nullptr, nullptr, pair.get()) == 1 &&
      EVP_DigestSign(digest.get(), bytes.data(), &size, bytes_of(text), text.size()) == 1;
  require(made, "OpenSSL does not sign by Ed25519");
  pass.set_signature(std::string(bytes.begin(), bytes.begin() + size));
}

Status check_pass(const v1::Pass& pass, const std::vector<std::string>& keys) {
  const std::string text = text_of(pass);
  const bool known = std::ranges::any_of(
      keys, [&](const std::string& key) { return same_token(hmac(key, text), pass.signature()); });
  return known ? Status() : not_signed(pass);
}

Status check_certified_pass(const v1::Pass& pass, const std::vector<std::string>& public_keys) {
  const bool known = std::ranges::any_of(
      public_keys, [&](const std::string& key) { return is_signed_by(pass, key); });
  return known ? Status() : not_signed(pass);
}

Status check_signature(const v1::Pass& pass, const Credentials& credentials) {
  if (credentials.certified_hosts)
    return check_certified_pass(pass, {public_pass_key(credentials.own_key)});
  return check_pass(pass, credentials.agent_keys());
}

Status check_pass(const v1::Pass& pass, const Credentials& credentials) {
  if (credentials.trust_network && !credentials.has_agent_token()) return {};
  return check_signature(pass, credentials);
}

}  // namespace tutti
