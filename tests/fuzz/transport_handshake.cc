// A link's handshake with one side that says what the input says: a listener that hears any hello
// and any proof, a dialler that hears any challenge and any answer. Where the input leaves a
// message as it is, both come to terms.
#include <algorithm>

#include "daemon/transport/handshake.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

const std::string kSecret = "what only the job knows";
const LinkLimits kLimits;

// What an input does to a message of the handshake.
enum Deed : uint8_t { lie_hello = 1, lie_challenge = 2, lie_proof = 4, lie_answer = 8, guess = 16 };

// The message with bytes of the input in place of some of its own, or of all.
std::string changed(const std::string& honest, fuzz::Input& input) {
  const size_t keep = input.take<uint16_t>() % (honest.size() + 1);
  const std::string_view other = input.take_text(input.take<uint16_t>() % 4096);
  const size_t behind = std::min(honest.size(), keep + other.size());
  return honest.substr(0, keep) + std::string(other) + honest.substr(behind);
}

// The size of a message as its bytes come in one by one: never less than is known already, never
// more than the handshake may have. 0: it is refused.
template <class SizeOf>
size_t whole_size(const std::string& words, SizeOf size_of) {
  for (size_t seen = 0;;) {
    const Result<size_t> wanted = size_of(std::string_view(words).substr(0, seen));
    if (!wanted.ok()) return 0;
    require(*wanted >= seen && *wanted <= kLinkHandshakeBytesMax, "a message has a bound");
    if (*wanted > words.size() || *wanted == seen) return *wanted;
    seen = *wanted;
  }
}

// By proto/handshake.h.
bool is_sound_hello(const std::string& words) {
  if (words.size() < sizeof(LinkHelloHead)) return false;
  const auto head = from_bytes<LinkHelloHead>(words);
  return head.magic == kLinkMagic && head.version == kLinkVersion &&
         head.job_bytes <= kLinkNameBytesMax && head.host_bytes <= kLinkNameBytesMax &&
         words.size() >= sizeof(head) + head.job_bytes + head.host_bytes;
}

bool is_within(const LinkTerms& terms) {
  return terms.silence_ms > 0 && terms.silence_ms <= kLimits.silence_ms && terms.streams >= 0 &&
         terms.streams <= kLimits.streams;
}

// What the listener answers.
std::string listen_to(const std::string& said, const LinkProof& shown, bool right) {
  const auto head = from_bytes<LinkHelloHead>(said);
  std::string welcome;
  LinkTerms terms;
  const IncomingLink guest = incoming_link(said, shown, "10.0.0.1", kLimits,
                                           [&](std::string words, const LinkTerms& agreed) {
                                             welcome = words;
                                             terms = agreed;
                                           });
  require(guest.job.size() == head.job_bytes && guest.epoch == head.epoch, "the job that was said");
  require(guest.host.size() == head.host_bytes, "the host that was said");
  require(said.find(guest.job + guest.host, sizeof(head)) == sizeof(head), "their names");
  require(!guest.verify_secret(kSecret + "?") && welcome.empty(), "another secret is not known");
  require(guest.verify_secret(kSecret) == right,
          "who shows the proof, and no other, knows the secret");
  require(welcome.empty() != right, "who is known is welcome");
  require(!right || is_within(terms), "nobody asks for more");
  return right ? welcome : write_refusal(unauthenticated("a stranger"));
}

void shake(fuzz::Input& input) {
  const auto deeds = input.take<uint8_t>();
  const auto told = [&](Deed deed, const std::string& honest) {
    return (deeds & deed) == 0 ? honest : changed(honest, input);
  };
  const std::string job(input.take_text(input.take<uint8_t>()));
  const std::string secret = (deeds & guess) == 0 ? kSecret : kSecret + "!";
  DiallerHandshake dialler({job, 7, "host", secret}, kLimits, "peer");

  const std::string hello = told(lie_hello, dialler.hello());
  const size_t size = whole_size(hello, hello_size);
  require((size > 0 && size <= hello.size()) == is_sound_hello(hello), "sound hellos are heard");
  if (!is_sound_hello(hello)) return;
  const std::string asked = write_challenge(kLimits);
  const std::string challenge = told(lie_challenge, asked);
  const Result<std::string> proof = dialler.prove(challenge);
  if (!proof.ok()) return;
  require(challenge.size() == sizeof(LinkChallenge), "a challenge of another size is none");
  require(is_within(dialler.terms()), "as above");
  const std::string shown = told(lie_proof, *proof).substr(0, sizeof(LinkProof));
  if (shown.size() < sizeof(LinkProof)) return;

  const std::string heard = hello.substr(0, size);
  const bool same = heard == dialler.hello() && challenge == asked;
  const bool right = same && secret == kSecret && shown == *proof;
  const std::string said = listen_to(heard + asked, from_bytes<LinkProof>(shown), right);
  const std::string answer = told(lie_answer, said);
  (void)whole_size(answer, answer_size);
  const Status let_in = dialler.check(answer);
  require(let_in.ok() == (right && answer == said), "both come to terms, or neither");
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::fuzz::Input input(data, size);
  tutti::shake(input);
  return 0;
}
