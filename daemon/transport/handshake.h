// How a link between hosts begins: the messages of proto/handshake.h, checked and answered. Pure:
// a transport carries them, as bytes of a socket or metadata of a stream, and knows nothing of
// them.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/transport/transport.h"
#include "proto/handshake.h"

namespace tutti {

template <class Message>
std::string to_bytes(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}

// `bytes` has a Message at its beginning.
template <class Message>
Message from_bytes(std::string_view bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

// HMAC-SHA256 of `said`, keyed with `secret`.
LinkProof prove(const std::string& secret, std::string_view said);
// Takes as long for a near miss as for a far one.
bool same_proof(const LinkProof& a, const LinkProof& b);

// ---- The dialler ----

class DiallerHandshake {
 public:
  // `peer` is who is dialled, for messages.
  DiallerHandshake(const LinkHello& hello, const LinkLimits& limits, std::string peer);
  const std::string& hello() const { return hello_; }
  // Answers the challenge with a LinkProof. UNAVAILABLE: it is no link's.
  Result<std::string> prove(const std::string& challenge);
  // Whether the listener accepted: its refusal if it did not, UNAUTHENTICATED where it does not
  // know the secret either.
  Status check(const std::string& answer) const;
  // The shorter of what both sides hold for silence; after prove().
  int silence_ms() const { return silence_ms_; }

 private:
  const std::string hello_;
  std::string said_;  // The hello and the challenge: what proofs are made of.
  const std::string secret_;
  const std::string peer_;
  int silence_ms_;
};

// How many bytes an answer has that begins so; the head's where that is not whole. UNAVAILABLE:
// more than is allowed.
Result<size_t> answer_bytes(std::string_view begun);

// ---- The listener ----

// How many bytes a hello has that begins so; the head's where that is not whole. INVALID_ARGUMENT:
// not a link of this version, or names that are too long.
Result<size_t> hello_bytes(std::string_view begun);
std::string write_challenge(const LinkLimits& limits);
// The dialler of a whole hello, with the challenge behind it, that showed this proof. `known` is
// called with the answer that welcomes it, on whatever thread finds that the proof is right.
IncomingLink guest_of(const std::string& said, const LinkProof& shown,
                      std::function<void(std::string welcome)> known);
std::string host_of(const std::string& said);
std::string write_welcome(const LinkProof& proof);
std::string write_refusal(const Status& why);
// As DiallerHandshake::silence_ms().
int silence_of(const std::string& said, const LinkLimits& limits);

}  // namespace tutti
