// Credentials of the tests' meshes, and passes that they accept.
#pragma once

#include <string>

#include "daemon/control/passes.h"
#include "proto/mesh.pb.h"

namespace tutti {

inline constexpr const char* kMeshToken = "open sesame";

// One token, for agents and administrators.
inline Credentials test_credentials(const std::string& token = kMeshToken) {
  return {.tokens = {{.text = token, .agent = true, .admin = true}}};
}

inline v1::Pass pass_of(const std::string& host, const std::string& job = "demo",
                        uint32_t uid = 1'000, const std::string& key = kMeshToken) {
  v1::Pass pass;
  pass.set_job(job);
  pass.set_uid(uid);
  pass.set_host(host);
  sign_pass(pass, key);
  return pass;
}

}  // namespace tutti
