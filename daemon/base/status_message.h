// Reads and writes a Status as fields of a protobuf message: any with those of StatusMessage
// (proto/status.proto).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

// The bytes of the well-formed UTF-8 character at `at`; 0: there is none (RFC 3629, section 4).
inline size_t character_at(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + size > text.size()) return 0;
  uint32_t code = lead & (0xffu >> (size + 1));
  for (size_t i = at + 1; i < at + size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[size] || code > 0x10ffff || surrogate ? 0 : size;
}

// Protobuf strings must be UTF-8, and a status may quote what a client sent.
inline std::string well_formed(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_at(text, at);
    if (size == 0) text[at] = '?';
    at += size == 0 ? 1 : size;
  }
  return text;
}

template <class Message>
void write_status(const Status& status, Message& to) {
  to.set_code(static_cast<int>(status.code()));
  to.set_message(well_formed(status.message()));
  to.set_culprit_rank(status.culprit_rank());
  to.set_culprit_host(well_formed(status.culprit_host()));
}

// OK where the code is 0; a code outside the table is UNKNOWN.
template <class Message>
Status read_status(const Message& from) {
  if (from.code() == 0) return {};
  return {code_of(from.code()), from.message(), {from.culprit_rank(), from.culprit_host()}};
}

}  // namespace tutti
