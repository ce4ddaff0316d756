// Packets with descriptors, as the agent and its workers exchange them. Each comes whole, with its
// own descriptors and no others; none stays open.
#include <dirent.h>

#include <memory>

#include "daemon/session/session.h"
#include "proto/board.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sockets.h"

namespace tutti {
namespace {

constexpr size_t kDescriptorsMost = kWelcomeDescriptors + 8;

size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  size_t count = 0;
  while (readdir(folder.get()) != nullptr) ++count;
  return count;
}

// By hand: a sender of ours refuses to send so many.
void send_with(const Fd& socket, std::string_view bytes, size_t descriptors) {
  std::vector<int> sent(descriptors, socket.get());
  std::vector<char> control(CMSG_SPACE(descriptors * sizeof(int)));
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    std::memcpy(CMSG_DATA(header), sent.data(), descriptors * sizeof(int));
  }
  const ssize_t count = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  require(count == static_cast<ssize_t>(bytes.size()), "a socket has room");
}

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
    const size_t descriptors = input.take<uint8_t>() % kDescriptorsMost;
    const std::string_view bytes = input.take_text(input.take<uint8_t>());
    send_with(sockets.theirs, bytes, descriptors);
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
  using namespace tutti;
  fuzz::Input input(data, size);
  const size_t before = open_descriptors();
  exchange(input);
  require(open_descriptors() == before, "no descriptor stays open");
  return 0;
}
