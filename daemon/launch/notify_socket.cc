#include "daemon/launch/notify_socket.h"

#include <unistd.h>

#include <array>
#include <string_view>

#include "daemon/base/address.h"

namespace tutti {

Result<Fd> bind_notify_socket(const std::string& path) {
  const Result<SocketAddress> address = unix_address(path);
  if (!address.ok())
    return invalid_argument(address.status().message() + ": set TMPDIR to a shorter one");
  unlink(path.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (bind(socket.get(), address->get(), address->bytes) != 0)
    return errno_status("cannot listen on " + path);
  return socket;
}

bool receive_ready(int socket) {
  std::array<char, 4096> text{};
  const ssize_t bytes = recv(socket, text.data(), text.size(), 0);
  const std::string_view message(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return message.find("READY=1") != std::string_view::npos;
}

}  // namespace tutti
