// Packets with descriptors, as the agent and its workers exchange them. Each comes whole, with its
// own descriptors and no others; none stays open.
#include "daemon/session/session.h"
#include "proto/board.h"
#include "tests/fuzz/sockets.h"

namespace tutti {
namespace {

constexpr size_t kDescriptorsMax = kWelcomeDescriptors + 8;

void check_packet(const fuzz::SocketPair& sockets, std::string_view bytes, size_t descriptors) {
  const Result<std::optional<Packet>> packet = receive_packet(sockets.ours.get());
  require(packet.ok() && packet->has_value(), "a packet that was sent is there");
  require((*packet)->bytes == bytes, "the bytes that were sent");
  const size_t got = (*packet)->descriptors.size();
  require(got == descriptors || (descriptors > kWelcomeDescriptors && got >= kWelcomeDescriptors),
          "the descriptors that were sent");
  for (const Fd& descriptor : (*packet)->descriptors)
    require((fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0, "no child inherits it");
}

void exchange(fuzz::Input& input) {
  const fuzz::SocketPair sockets = fuzz::socket_pair(SOCK_SEQPACKET);
  while (!input.at_end()) {
    const size_t descriptors = input.take<uint8_t>() % kDescriptorsMax;
    const std::string_view bytes = input.take_text(input.take<uint8_t>());
    fuzz::send_with(sockets.theirs, bytes, descriptors);
    if (bytes.empty())
      return require(!receive_packet(sockets.ours.get()).ok(), "an empty packet is an end");
    check_packet(sockets, bytes, descriptors);
  }
  const Result<std::optional<Packet>> none = receive_packet(sockets.ours.get());
  require(none.ok() && !none->has_value(), "nothing there is no end");
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::fuzz::without_leaks(data, size, tutti::exchange);
  return 0;
}
