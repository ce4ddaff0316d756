// How messages travel on stream sockets, as session.proto defines it.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// The length, then the message.
inline std::string framed(const std::string& message) {
  const auto length = static_cast<uint32_t>(message.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + message;
}

}  // namespace tutti
