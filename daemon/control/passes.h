// Passes: an agent signs who runs a job on its host, and workers show that to the coordinator.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/credentials.h"
#include "daemon/base/status.h"
#include "proto/session.pb.h"

namespace tutti {

// Signs all other fields with `key`: HMAC-SHA256 (RFC 2104).
void sign_pass(v1::Pass& pass, const std::string& key);
// As the agent that has these credentials. For certified hosts with a pair of keys (Ed25519, RFC
// 8032), so that anyone who checks its passes cannot sign any.
void sign_pass(v1::Pass& pass, const Credentials& credentials);
// The public one of the pair that is made from an agent's own key.
std::string public_pass_key(const std::string& own_key);
// UNAUTHENTICATED: it was not signed with any of `keys`.
Status check_pass(const v1::Pass& pass, const std::vector<std::string>& keys);
// The same for the public keys of pairs.
Status check_certified_pass(const v1::Pass& pass, const std::vector<std::string>& public_keys);
// The same for what these credentials accept, of certified hosts this agent's own signature alone.
Status check_signature(const v1::Pass& pass, const Credentials& credentials);
// The same; who trusts the network asks for no signature.
Status check_pass(const v1::Pass& pass, const Credentials& credentials);

}  // namespace tutti
