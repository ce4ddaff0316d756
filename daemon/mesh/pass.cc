// Signatures of passes.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>

#include "daemon/mesh/mesh.h"

namespace tutti {
namespace {

// What is signed: each field behind its length, so that no two passes have the same text.
std::string text_of(const v1::Pass& pass) {
  std::string text = "tutti pass 1";
  for (const std::string& field :
       {pass.job(), std::to_string(pass.uid()), pass.subject(), pass.host()})
    text += "\n" + std::to_string(field.size()) + " " + field;
  return text;
}

std::string signature_of(const v1::Pass& pass, const std::string& key) {
  const std::string text = text_of(pass);
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  const auto* signed_text = reinterpret_cast<const unsigned char*>(text.data());
  const bool made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), signed_text,
                         text.size(), bytes.data(), &size) != nullptr;
  require(made, "OpenSSL lacks HMAC-SHA256");
  return {bytes.begin(), bytes.begin() + size};
}

}  // namespace

void sign_pass(v1::Pass& pass, const std::string& key) {
  pass.set_signature(signature_of(pass, key));
}

Status check_pass(const v1::Pass& pass, const std::vector<std::string>& keys) {
  const bool known = std::ranges::any_of(keys, [&](const std::string& key) {
    return same_token(signature_of(pass, key), pass.signature());
  });
  if (known) return {};
  return unauthenticated("host " + pass.host() +
                         " did not sign as an agent of this mesh for job \"" + pass.job() +
                         "\"; give the agents of all hosts the same token (token_file)");
}

Status check_pass(const v1::Pass& pass, const Credentials& credentials) {
  if (credentials.trust_network && !credentials.has_agent_token()) return {};
  return check_pass(pass, credentials.agent_keys());
}

}  // namespace tutti
