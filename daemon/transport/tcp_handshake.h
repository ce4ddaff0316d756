// The messages of proto/handshake.h in and out of bytes.
#pragma once

#include <cstring>
#include <string>

#include "daemon/transport/transport.h"
#include "proto/handshake.h"

namespace tutti {

template <class Message>
std::string to_bytes(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}

// `bytes` has a Message at its beginning.
template <class Message>
Message from_bytes(const std::string& bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

std::string write_hello(const LinkHello& hello, const LinkLimits& limits);
// INVALID_ARGUMENT: not a link of this version, or names that are too long.
Status check_hello(const LinkHelloHead& head);
Status check_challenge(const LinkChallenge& challenge);

// An answer that accepts, with the listener's proof, or refuses.
std::string write_welcome(const LinkProof& proof);
std::string write_refusal(const Status& why);

// The shorter of what both sides hold for silence.
int common_silence_ms(const LinkLimits& mine, uint32_t theirs_ms);

}  // namespace tutti
