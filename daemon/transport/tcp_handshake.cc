#include "daemon/transport/tcp_handshake.h"

#include <algorithm>

#include "daemon/transport/secrets.h"

namespace tutti {
namespace {

constexpr uint32_t kLeastSilenceMs = 10;  // A peer may not make this side ping without end.

Status check_version(uint64_t magic, uint32_t version) {
  if (magic != kLinkMagic) return invalid_argument("what is there speaks no Tutti TCP link");
  if (version != kLinkVersion)
    return invalid_argument("a TCP link of version " + std::to_string(version) +
                            "; this worker speaks " + std::to_string(kLinkVersion) +
                            ": run the same release on every host");
  return {};
}

}  // namespace

std::string write_hello(const LinkHello& hello, const LinkLimits& limits) {
  const std::string job = hello.job.substr(0, kLinkNameBytesMax);
  const std::string host = hello.host.substr(0, kLinkNameBytesMax);
  LinkHelloHead head;
  head.epoch = hello.epoch;
  head.silence_ms = static_cast<uint32_t>(limits.silence_ms);
  head.job_bytes = static_cast<uint32_t>(job.size());
  head.host_bytes = static_cast<uint32_t>(host.size());
  head.nonce = make_nonce();
  return to_bytes(head) + job + host;
}

Status check_hello(const LinkHelloHead& head) {
  if (Status known = check_version(head.magic, head.version); !known.ok()) return known;
  if (head.job_bytes > kLinkNameBytesMax || head.host_bytes > kLinkNameBytesMax)
    return invalid_argument("a link's job and host have names of at most " +
                            std::to_string(kLinkNameBytesMax) + " bytes");
  return {};
}

Status check_challenge(const LinkChallenge& challenge) {
  return check_version(challenge.magic, challenge.version);
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

int common_silence_ms(const LinkLimits& mine, uint32_t theirs_ms) {
  const auto own = static_cast<uint32_t>(mine.silence_ms);
  return static_cast<int>(std::min(own, std::max(theirs_ms, kLeastSilenceMs)));
}

}  // namespace tutti
