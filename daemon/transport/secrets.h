// What links do with the job's secret: prove that they know it.
#pragma once

#include <string>
#include <string_view>

#include "proto/handshake.h"

namespace tutti {

// From the system's generator.
LinkNonce make_nonce();
// HMAC-SHA256 of `said`, keyed with `secret`.
LinkProof prove(const std::string& secret, std::string_view said);
// Take as long for a near miss as for a far one.
bool same_proof(const LinkProof& a, const LinkProof& b);
bool same_secret(const std::string& a, const std::string& b);

}  // namespace tutti
