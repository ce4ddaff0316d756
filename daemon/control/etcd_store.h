// A KeyStore in etcd, over its v3 API.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/control/key_store.h"

namespace tutti {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // host:port of each member.
  std::string user;                    // Empty: none.
  std::string password_file;
  std::string tls_dir;    // With ca.crt, and tls.crt and tls.key if a certificate is to be shown.
  Millis call_timeout{};  // Of each attempt; one that fails is repeated at the next member.
};

// Connects on demand. INVALID_ARGUMENT, FAILED_PRECONDITION: an endpoint is no address, or a file
// is missing.
Result<std::unique_ptr<KeyStore>> open_etcd(const EtcdOptions& options);

}  // namespace tutti
