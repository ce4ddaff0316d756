#include "daemon/transport/wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace tutti {
namespace {

size_t bytes_of(std::span<const iovec> parts) {
  size_t sum = 0;
  for (const iovec& part : parts) sum += part.iov_len;
  return sum;
}

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // The calls only read it.
  message.msg_iovlen = parts.size();
  return message;
}

class PlainWire final : public Wire {
 public:
  using Wire::Wire;

  Result<bool> secure() override { return true; }
  ssize_t read(std::span<const iovec> into) override {
    msghdr message = message_of(into);
    const ssize_t got = recvmsg(descriptor(), &message, MSG_DONTWAIT);
    is_drained_ = got >= 0 ? static_cast<size_t>(got) < bytes_of(into) : errno == EAGAIN;
    return got;
  }
  bool is_drained() const override { return is_drained_; }
  ssize_t write(std::span<const iovec> from) override {
    const msghdr message = message_of(from);
    return sendmsg(descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  bool has_unsent() const override { return false; }

 private:
  bool is_drained_ = false;
};

}  // namespace

std::unique_ptr<Wire> make_plain_wire(Fd socket) {
  return std::make_unique<PlainWire>(std::move(socket));
}

ReadResult read_exactly(Wire& wire, std::string& into, size_t wanted) {
  while (into.size() < wanted) {
    const size_t had = into.size();
    into.resize(wanted);
    const std::array part{iovec{into.data() + had, wanted - had}};
    const ssize_t got = wire.read(part);
    const int error = errno;
    into.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0 || (got < 0 && error == EINTR)) continue;
    return got < 0 && error == EAGAIN ? ReadResult::partial : ReadResult::broken;
  }
  return ReadResult::whole;
}

bool write_at_once(Wire& wire, const std::string& bytes) {
  const std::array part{iovec{const_cast<char*>(bytes.data()), bytes.size()}};
  return wire.write(part) == static_cast<ssize_t>(bytes.size()) && !wire.has_unsent();
}

}  // namespace tutti
