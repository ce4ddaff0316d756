// How a link between hosts begins: builds and checks the messages of proto/handshake.h. Pure
// functions; a transport carries the messages, as bytes of a socket or metadata of a gRPC call.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/transport/transport.h"
#include "proto/handshake.h"

namespace tutti {

// What both sides of a link agree on, and the token of its data streams.
struct LinkTerms {
  int silence_ms = 0;  // The shorter of both sides'.
  int streams = 0;     // The lower number of both sides.
  LinkProof token{};
};

template <class Message>
std::string to_bytes(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}

// Reads a Message from the beginning of `bytes`, which must hold one.
template <class Message>
Message from_bytes(std::string_view bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

// Returns HMAC-SHA256 of `text`, keyed with `secret`.
LinkProof prove(const std::string& secret, std::string_view text);
// Compares in constant time.
bool equal_proofs(const LinkProof& a, const LinkProof& b);

// ---- The dialler ----

class DiallerHandshake {
 public:
  // `peer` names the listener in messages.
  DiallerHandshake(const LinkHello& hello, const LinkLimits& limits, std::string peer);
  const std::string& hello() const { return hello_; }
  // Returns the bytes of the LinkProof that answers the challenge. UNAVAILABLE: it is not a
  // challenge of this protocol.
  Result<std::string> prove(const std::string& challenge);
  // Returns OK if the listener accepted, its refusal if it did not, and UNAUTHENTICATED if it did
  // not prove the secret itself.
  Status check(const std::string& answer) const;
  // Valid after prove().
  const LinkTerms& terms() const { return terms_; }

 private:
  const std::string hello_;
  std::string transcript_;  // The hello and the challenge, which both proofs cover.
  const std::string secret_;
  const std::string peer_;
  const LinkLimits limits_;
  LinkTerms terms_;
};

// Returns the size of the answer that starts with `received`, or of its head while that is not
// whole. UNAVAILABLE: it is larger than allowed.
Result<size_t> answer_size(std::string_view received);

// ---- The listener ----

// Returns the size of the hello that starts with `received`, or of its head while that is not
// whole. INVALID_ARGUMENT: not a link of this version, or its names are too long.
Result<size_t> hello_size(std::string_view received);
using OnVerified = std::function<void(std::string welcome, const LinkTerms& terms)>;
std::string write_challenge(const LinkLimits& limits);
// Describes the dialler to the acceptor. `transcript` is a whole hello and the challenge behind it;
// `proof` is what the dialler answered, `address` where it is. `on_verified` is called with the
// answer to send and the terms of the link, on whatever thread calls verify_secret() with the
// secret that the dialler proved.
IncomingLink incoming_link(const std::string& transcript, const LinkProof& proof,
                           const std::string& address, const LinkLimits& limits,
                           OnVerified on_verified);
std::string host_of(const std::string& transcript);
std::string write_welcome(const LinkProof& proof);
std::string write_refusal(const Status& why);

// ---- Data streams ----

std::string write_stream_hello(uint16_t stream, const LinkProof& token);

}  // namespace tutti
