// The two messages of proto/session.proto that a client exchanges, encoded by hand so that the
// library needs no protobuf. tests/client/parts_test.cc compares this with protobuf.
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
  Code code = Code::ok;  // Not OK: refused, and only message and culprit are set.
  std::string message;
  Culprit culprit{0, {}};  // A rank of 0 is not sent.
  uint32_t version = 0;
  uint32_t epoch = 0;
  std::vector<std::string> hosts;
  uint32_t worker_pid = 0;
};

std::string encode(const Hello& hello);
// Unknown fields are skipped. nullopt: the bytes are no such message.
std::optional<Welcome> decode_welcome(std::string_view bytes);

}  // namespace tutti::client
