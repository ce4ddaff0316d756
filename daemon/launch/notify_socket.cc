#include "daemon/launch/notify_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>

namespace tutti {

Result<Fd> bind_notify_socket(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof address.sun_path)
    return invalid_argument("'" + path + "' is too long for a socket: set TMPDIR to a shorter one");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  unlink(path.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
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
