#include "daemon/transport/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>

#include "daemon/base/foreign_text.h"

namespace tutti {
namespace {

constexpr uint32_t kLeastSilenceMs = 10;  // So that a peer cannot make this side ping without end.

LinkNonce make_nonce() {
  LinkNonce nonce;
  const ssize_t got = getrandom(nonce.data(), nonce.size(), 0);
  require(got == static_cast<ssize_t>(nonce.size()), "the system gives no random numbers");
  return nonce;
}

Status check_version(uint64_t magic, uint32_t version) {
  if (magic != kLinkMagic) return invalid_argument("these are not the words of a Tutti link");
  if (version != kLinkVersion)
    return invalid_argument("a link of version " + std::to_string(version) +
                            "; this worker speaks " + std::to_string(kLinkVersion) +
                            ": run the same release on every host");
  return {};
}

int common_silence_ms(int mine_ms, uint32_t theirs_ms) {
  const auto own_ms = static_cast<uint32_t>(mine_ms);
  return static_cast<int>(std::min(own_ms, std::max(theirs_ms, kLeastSilenceMs)));
}

// A transcript is a hello and the challenge behind it.
LinkTerms terms_of(const LinkLimits& own, uint32_t silence_ms, uint32_t streams,
                   const std::string& secret, const std::string& transcript) {
  return {common_silence_ms(own.silence_ms, silence_ms),
          std::min(own.streams, static_cast<int>(std::min(streams, kLinkStreamsMax))),
          prove(secret, "s" + transcript)};
}

std::string write_hello(const LinkHello& hello, const LinkLimits& limits) {
  const std::string job = hello.job.substr(0, kLinkNameBytesMax);
  const std::string host = hello.host.substr(0, kLinkNameBytesMax);
  LinkHelloHead head;
  head.epoch = hello.epoch;
  head.silence_ms = static_cast<uint32_t>(limits.silence_ms);
  head.streams = static_cast<uint16_t>(limits.streams);
  head.job_bytes = static_cast<uint32_t>(job.size());
  head.host_bytes = static_cast<uint32_t>(host.size());
  head.nonce = make_nonce();
  return to_bytes(head) + job + host;
}

}  // namespace

LinkProof prove(const std::string& secret, std::string_view text) {
  LinkProof proof;
  unsigned int bytes = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), data, text.size(),
       proof.data(), &bytes);
  require(bytes == proof.size(), "HMAC-SHA256 has 32 bytes");
  return proof;
}

bool equal_proofs(const LinkProof& a, const LinkProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

DiallerHandshake::DiallerHandshake(const LinkHello& hello, const LinkLimits& limits,
                                   std::string peer)
    : hello_(write_hello(hello, limits)),
      secret_(hello.secret),
      peer_(std::move(peer)),
      limits_(limits) {}

Result<std::string> DiallerHandshake::prove(const std::string& challenge) {
  if (challenge.size() != sizeof(LinkChallenge))
    return unavailable("what listens at " + peer_ + " speaks no Tutti link");
  const auto read = from_bytes<LinkChallenge>(challenge);
  if (Status good = check_version(read.magic, read.version); !good.ok())
    return unavailable(peer_ + ": " + good.message());
  transcript_ = hello_ + challenge;
  terms_ = terms_of(limits_, read.silence_ms, read.streams, secret_, transcript_);
  return to_bytes(tutti::prove(secret_, "d" + transcript_));
}

Status DiallerHandshake::check(const std::string& answer) const {
  if (const auto whole = answer_size(answer); !whole.ok() || *whole != answer.size())
    return unavailable(peer_ + " sent an invalid handshake answer");
  const auto head = from_bytes<LinkAnswerHead>(answer);
  if (head.code != 0)
    return {code_of(static_cast<int>(head.code)),
            clean_text(answer.substr(sizeof(LinkAnswerHead)))};
  if (!equal_proofs(head.proof, tutti::prove(secret_, "l" + transcript_)))
    return unauthenticated("what listens at " + peer_ + " does not know the job's secret");
  return {};
}

Result<size_t> answer_size(std::string_view received) {
  if (received.size() < sizeof(LinkAnswerHead)) return sizeof(LinkAnswerHead);
  const auto head = from_bytes<LinkAnswerHead>(received);
  if (head.text_bytes > kLinkTextBytesMax)
    return unavailable("it refuses the link at more length than is allowed");
  return sizeof(LinkAnswerHead) + head.text_bytes;
}

Result<size_t> hello_size(std::string_view received) {
  if (received.size() < sizeof(LinkHelloHead)) return sizeof(LinkHelloHead);
  const auto head = from_bytes<LinkHelloHead>(received);
  if (Status known = check_version(head.magic, head.version); !known.ok()) return known;
  if (head.job_bytes > kLinkNameBytesMax || head.host_bytes > kLinkNameBytesMax)
    return invalid_argument("a link's job and host have names of at most " +
                            std::to_string(kLinkNameBytesMax) + " bytes");
  return sizeof(LinkHelloHead) + head.job_bytes + head.host_bytes;
}

std::string write_challenge(const LinkLimits& limits) {
  LinkChallenge challenge;
  challenge.silence_ms = static_cast<uint32_t>(limits.silence_ms);
  challenge.streams = static_cast<uint32_t>(limits.streams);
  challenge.nonce = make_nonce();
  return to_bytes(challenge);
}

std::string host_of(const std::string& transcript) {
  const auto head = from_bytes<LinkHelloHead>(transcript);
  return clean_text(transcript.substr(sizeof(LinkHelloHead) + head.job_bytes, head.host_bytes));
}

IncomingLink incoming_link(const std::string& transcript, const LinkProof& proof,
                           const std::string& address, const LinkLimits& limits,
                           OnVerified on_verified) {
  const auto head = from_bytes<LinkHelloHead>(transcript);
  IncomingLink incoming;
  incoming.job = clean_text(transcript.substr(sizeof(LinkHelloHead), head.job_bytes));
  incoming.epoch = head.epoch;
  incoming.host = host_of(transcript);
  incoming.address = address;
  incoming.verify_secret = [transcript, proof, limits, head,
                            on_verified = std::move(on_verified)](const std::string& secret) {
    if (!equal_proofs(proof, prove(secret, "d" + transcript))) return false;
    on_verified(write_welcome(prove(secret, "l" + transcript)),
                terms_of(limits, head.silence_ms, head.streams, secret, transcript));
    return true;
  };
  return incoming;
}

std::string write_welcome(const LinkProof& proof) {
  LinkAnswerHead head;
  head.proof = proof;
  return to_bytes(head);
}

std::string write_refusal(const Status& why) {
  const std::string text = why.message().substr(0, kLinkTextBytesMax);
  LinkAnswerHead head;
  head.code = static_cast<uint32_t>(why.code());
  head.text_bytes = static_cast<uint32_t>(text.size());
  return to_bytes(head) + text;
}

std::string write_stream_hello(uint16_t stream, const LinkProof& token) {
  LinkHelloHead head;
  head.stream = stream;
  head.nonce = token;
  return to_bytes(head);
}

}  // namespace tutti
