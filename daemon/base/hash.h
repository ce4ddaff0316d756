// A hash that is the same in every run and on every machine, unlike std::hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

// FNV-1a, 64 bits. Anyone who wants two texts of one hash finds them.
constexpr uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace tutti
