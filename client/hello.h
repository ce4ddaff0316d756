// The two messages of proto/session.proto that a trainer speaks, written and read by hand so that
// the library needs no protobuf. A test holds this against the real one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"

namespace tutti::client {

struct Hello {
  uint32_t version = 0;
  std::string job;
  std::string token;
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t timeout_ms = 0;
  uint32_t pid = 0;
};

struct Welcome {
  Code code = Code::ok;  // Not OK: refused.
  std::string message;
  Culprit culprit{0, {}};  // What protobuf leaves out is 0.
  uint32_t version = 0;
  uint32_t epoch = 0;
  std::vector<std::string> hosts;
  uint32_t worker_pid = 0;
};

std::string encode(const Hello& hello);
// Fields it does not know are skipped; nullopt: not such a message.
std::optional<Welcome> decode_welcome(std::string_view bytes);

}  // namespace tutti::client
