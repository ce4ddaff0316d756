// The handshake of a link between hosts, which precedes its first frame. Little-endian.
//
//   dialler                           listener
//   LinkHelloHead, job, host  ----->
//                             <-----  LinkChallenge
//   LinkProof                 ----->
//                             <-----  LinkAnswerHead, text
//
// Over TCP the messages are the first bytes of the connection. Over gRPC they are metadata, because
// gRPC limits the size of metadata but reads a message whole before it checks its size. The first
// call of Exchange carries the hello and ends with the challenge. The second call carries both and
// the proof, and becomes the link once it is answered.
//
// A proof is HMAC-SHA256, keyed with the job's secret, over one letter ('d' from the dialler, 'l'
// from the listener), the hello and the challenge. The secret is never sent, and no proof is valid
// for another link or for the other side.
//
// Both sides say how many data streams they take, and the lower number holds: connections beside
// the first, over TCP only, that the dialler opens once it is welcome. Each begins with a
// LinkHelloHead without names, with the stream's number and, as its nonce, a token: the proof of
// the letter 's'. The listener answers with a LinkAnswerHead; what follows are payloads alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint64_t kLinkMagic = 0x4B4E494C54545554;  // "TUTTLINK"
inline constexpr uint32_t kLinkVersion = 2;
inline constexpr uint32_t kLinkStreamsMax = 16;
inline constexpr size_t kLinkNameBytesMax = 1024;  // Of the name of a job or host.
inline constexpr size_t kLinkTextBytesMax = 1024;  // Of the message of a refusal.
// Most bytes that a listener reads before the dialler has sent a valid proof.
inline constexpr size_t kLinkHandshakeBytesMax = 4096;

using LinkNonce = std::array<unsigned char, 32>;
using LinkProof = std::array<unsigned char, 32>;

struct LinkHelloHead {
  uint64_t magic = kLinkMagic;
  uint32_t version = kLinkVersion;
  uint32_t epoch = 0;
  uint32_t silence_ms = 0;  // A link without frames for this long is dead; the lower one holds.
  uint16_t streams = 0;     // How many data streams the dialler takes.
  uint16_t stream = 0;      // Not 0: this connection is that data stream of a link.
  uint32_t job_bytes = 0;
  uint32_t host_bytes = 0;
  LinkNonce nonce{};
};
static_assert(sizeof(LinkHelloHead) == 64);

struct LinkChallenge {
  uint64_t magic = kLinkMagic;
  uint32_t version = kLinkVersion;
  uint32_t silence_ms = 0;
  uint32_t streams = 0;  // How many data streams the listener takes.
  uint32_t unused = 0;
  LinkNonce nonce{};
};
static_assert(sizeof(LinkChallenge) == 56);

struct LinkAnswerHead {
  uint32_t code = 0;  // tutti_code; not 0: refused, and the text says why.
  uint32_t text_bytes = 0;
  LinkProof proof{};
};
static_assert(sizeof(LinkAnswerHead) == 40);

static_assert(sizeof(LinkHelloHead) + 2 * kLinkNameBytesMax + sizeof(LinkChallenge) +
                  sizeof(LinkProof) <=
              kLinkHandshakeBytesMax);

}  // namespace tutti
