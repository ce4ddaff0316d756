#include "daemon/control/admin_socket.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "daemon/base/address.h"
#include "daemon/base/fd.h"
#include "daemon/base/foreign_text.h"
#include "daemon/base/framing.h"
#include "daemon/base/settings.h"
#include "proto/segment.h"
#include "proto/session.pb.h"

namespace tutti {
namespace {

constexpr uint32_t kAnswerBytesMax = 64 << 20;

// Whether tuttid was installed as a service of this machine.
bool has_unit() {
  constexpr std::array kDirectories = {"/etc/systemd/system", "/usr/lib/systemd/system",
                                       "/lib/systemd/system"};
  return std::ranges::any_of(kDirectories, [](const std::string& directory) {
    return access((directory + "/tuttid.service").c_str(), F_OK) == 0;
  });
}

Status silent(const std::string& path, const std::string& why) {
  const bool is_service = path == Settings().socket && has_unit();
  return unavailable("no tuttid answers at " + path + " (" + why +
                     (is_service ? "); see systemctl status tuttid"
                                 : "); start one there: tuttid --socket " + path));
}

Status silent(const std::string& path) {
  return silent(path, errno == EAGAIN ? "it took too long" : std::strerror(errno));
}

Status set_timeouts(const Fd& socket, int timeout_ms) {
  const timeval timeout{.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  if (setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0 &&
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) == 0)
    return {};
  return errno_status("cannot set a socket's timeout");
}

Result<Fd> connect_to(const std::string& path, int timeout_ms) {
  const Result<SocketAddress> address = unix_address(path);
  if (!address.ok()) return address.status();
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return errno_status("cannot make a socket");
  if (Status set = set_timeouts(socket, timeout_ms); !set.ok()) return set;
  if (connect(socket.get(), address->get(), address->bytes) != 0) return silent(path);
  return socket;
}

bool send_all(const Fd& socket, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) sent += static_cast<size_t>(count);
  }
  return true;
}

bool receive_all(const Fd& socket, char* to, size_t bytes) {
  for (size_t received = 0; received < bytes;) {
    const ssize_t count = recv(socket.get(), to + received, bytes - received, 0);
    if (count == 0) errno = ECONNRESET;
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
    if (count > 0) received += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

Result<v1::AdminAnswer> ask_socket(const std::string& path, const v1::AdminRequest& request,
                                   const std::string& token, int timeout_ms) {
  const Result<Fd> socket = connect_to(path, timeout_ms);
  if (!socket.ok()) return socket.status();
  v1::Hello hello;
  hello.set_version(kProtocolVersion);
  hello.set_token(token);
  hello.set_admin(request.SerializeAsString());
  uint32_t length = 0;
  if (!send_all(*socket, framed(hello.SerializeAsString())) ||
      !receive_all(*socket, reinterpret_cast<char*>(&length), sizeof(length)))
    return silent(path);
  if (length > kAnswerBytesMax) return silent(path, "its answer is too long");
  std::string bytes(length, '\0');
  if (!receive_all(*socket, bytes.data(), bytes.size())) return silent(path);
  v1::AdminAnswer answer;
  if (!answer.ParseFromString(bytes)) return silent(path, "its answer cannot be read");
  clean_texts(answer);
  return answer;
}

}  // namespace tutti
