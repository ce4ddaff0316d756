// What a listener of encrypted links gets first: any bytes at all, in pieces of any size, from
// somebody who holds no key; or the words of an honest dialler, some of which the input changes on
// their way. Nobody is heard but the dialler, and only as it spoke.
#include <algorithm>

#include "daemon/transport/tls_wire.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sockets.h"

namespace tutti {
namespace {

constexpr size_t kAnswerBytesMax = 8 << 10;  // To whom nothing is known of.
constexpr size_t kRoundsMax = 16;
const std::string kWords(100, 'w');

const TlsIdentity& identity() {
  static const TlsIdentity made;
  return made;
}

std::string take(const Fd& from) {
  std::string bytes(1 << 16, '\0');
  const ssize_t got = recv(from.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

void speak_without_key(fuzz::Input& input) {
  fuzz::SocketPair sockets = fuzz::socket_pair(SOCK_STREAM);
  const auto wire = make_tls_listener_wire(std::move(sockets.ours), identity());
  const size_t piece = 1 + input.take<uint16_t>() % 4096;
  std::string heard;
  for (bool open = true; open && !input.at_end();) {
    fuzz::send_all(sockets.theirs, input.take_text(piece));
    const ReadResult result = read_exactly(*wire, heard, 1);
    require(result != ReadResult::whole, "nobody without a key is heard");
    open = result == ReadResult::partial;
    require(!open || wire->is_drained(), "who waits has read everything");
  }
  require(take(sockets.theirs).size() <= kAnswerBytesMax, "a stranger learns little");
}

// An honest dialler and the listener, with somebody between them.
class Meddler {
 public:
  explicit Meddler(fuzz::Input& input) : input_(input), next_change_(input.take<uint16_t>()) {}

  void run() {
    for (size_t round = 0; round < kRoundsMax && open_; ++round) {
      dial();
      forward(near_.theirs, far_.theirs);
      listen();
      forward(far_.theirs, near_.theirs);
    }
    require(kWords.starts_with(heard_), "what is heard was said");
    require(changed_ || heard_ == kWords, "who is not disturbed is heard");
  }

 private:
  void dial() {
    const Result<bool> secured = dialler_->secure();
    open_ = open_ && secured.ok();
    if (!secured.ok() || !*secured || std::exchange(said_, true)) return;
    require(write_at_once(*dialler_, kWords), "a fresh socket has room");
  }
  void listen() {
    const ReadResult result = read_exactly(*listener_, heard_, kWords.size());
    open_ = open_ && result == ReadResult::partial;
  }
  void forward(const Fd& from, const Fd& to) {
    std::string bytes = take(from);
    for (; next_change_ < bytes.size() && !input_.at_end();
         next_change_ += 1 + input_.take<uint16_t>() % 512) {
      const auto change = input_.take<uint8_t>();
      bytes[next_change_] = static_cast<char>(bytes[next_change_] ^ change);
      changed_ = changed_ || change != 0;
    }
    next_change_ -= std::min(next_change_, bytes.size());
    fuzz::send_all(to, bytes);
  }

  fuzz::Input& input_;
  size_t next_change_;  // Bytes from here.
  fuzz::SocketPair near_ = fuzz::socket_pair(SOCK_STREAM), far_ = fuzz::socket_pair(SOCK_STREAM);
  const std::unique_ptr<Wire> dialler_ =
      make_tls_dialler_wire(std::move(near_.ours), identity(), identity().fingerprint());
  const std::unique_ptr<Wire> listener_ = make_tls_listener_wire(std::move(far_.ours), identity());
  bool open_ = true, said_ = false, changed_ = false;
  std::string heard_;
};

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::without_leaks(data, size, [](fuzz::Input& input) {
    if (input.take<uint8_t>() % 2 == 0) return speak_without_key(input);
    Meddler(input).run();
  });
  return 0;
}
