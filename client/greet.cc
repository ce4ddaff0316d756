// The greeting on the agent's Unix socket.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "client/join.h"
#include "proto/board.h"

namespace tutti::client {
namespace {

using Clock = std::chrono::steady_clock;
using Millis = std::chrono::milliseconds;

// How much longer than the trainer's time its answer may take to come. The worker and the
// coordinator, who know more, answer before this is over.
constexpr Millis kGrace{450};
constexpr uint32_t kWelcomeBytesMax = 16 << 20;

Status no_agent(const std::string& socket, int error) {
  const bool forbidden = error == EACCES || error == EPERM;
  return Status(forbidden ? Code::permission_denied : Code::unavailable,
                "no agent at " + socket + " (" + std::strerror(error) +
                    "); start one with: tuttid --socket " + socket);
}

// Zero where the kernel does not tell.
pid_t listener_of(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.pid;
}

Status unanswered(const JoinTarget& target, const Fd& socket) {
  const pid_t pid = listener_of(socket);
  return deadline_exceeded(
      "the agent at " + target.socket + (pid > 0 ? " (pid " + std::to_string(pid) + ")" : "") +
      " did not answer rank " + std::to_string(target.rank) + " of job '" + target.job +
      "' in time; is it, or the job's worker, stopped or overloaded?");
}

Status gone(const JoinTarget& target) {
  return unavailable("the agent at " + target.socket + " closed the connection while rank " +
                     std::to_string(target.rank) +
                     " joined: it, or the job's worker, has ended; join again");
}

timeval time_until(Clock::time_point limit) {
  const auto left = std::chrono::ceil<std::chrono::microseconds>(limit - Clock::now());
  const int64_t us = std::max<int64_t>(left.count(), 1);  // 0 would be for ever.
  return {.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
}

Status connect_to(const JoinTarget& target, Clock::time_point limit, Fd& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (target.socket.size() >= sizeof(address.sun_path))
    return invalid_argument("the socket path " + target.socket + " is too long");
  std::memcpy(address.sun_path, target.socket.data(), target.socket.size());
  socket = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return no_agent(target.socket, errno);
  // A connect to an agent whose queue is full must end, too.
  const timeval left = time_until(limit);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (connect(socket.get(), generic, sizeof(address)) == 0) return {};
  return errno == EAGAIN ? unanswered(target, socket) : no_agent(target.socket, errno);
}

Status say_hello(const JoinTarget& target, const Fd& socket) {
  const Hello hello{kProtocolVersion,
                    target.job,
                    target.token,
                    target.rank,
                    target.world_size,
                    target.timeout_ms,
                    static_cast<uint32_t>(getpid())};
  const std::string body = encode(hello);
  const auto length = static_cast<uint32_t>(body.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += body;
  const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size()) ? Status{} : gone(target);
}

void keep_descriptors(msghdr& message, Greeting& greeting) {
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return;
  // Padding has room for one more than was asked for.
  std::vector<int> raw((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(raw.data(), CMSG_DATA(header), raw.size() * sizeof(int));
  std::vector<Fd> fds;
  for (const int fd : raw) fds.emplace_back(fd);
  const bool cut = (message.msg_flags & MSG_CTRUNC) != 0;  // The limit of open files.
  if (fds.size() < 4 || cut) return;
  greeting.memory = std::move(fds[0]);
  greeting.doorbell = std::move(fds[1]);
  greeting.board = std::move(fds[2]);
  greeting.memories.assign(std::make_move_iterator(fds.begin() + 3),
                           std::make_move_iterator(fds.end()));
}

class WelcomeReader {
 public:
  WelcomeReader(const JoinTarget& target, Clock::time_point limit, Greeting& greeting)
      : target_(target), greeting_(greeting), limit_(limit) {}

  // Exactly `count` bytes; descriptors come with the first.
  Status read(char* bytes, size_t count) {
    for (size_t done = 0; done < count;) {
      if (Status ready = wait(); !ready.ok()) return ready;
      const ssize_t got = receive(bytes + done, count - done);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) return gone(target_);
      done += static_cast<size_t>(got);
    }
    return {};
  }

 private:
  Status wait() const {
    while (true) {
      const auto left = std::chrono::ceil<Millis>(limit_ - Clock::now()).count();
      pollfd socket{.fd = greeting_.socket.get(), .events = POLLIN, .revents = 0};
      if (left > 0 && poll(&socket, 1, static_cast<int>(left)) > 0) return {};
      if (left <= 0) return unanswered(target_, greeting_.socket);
    }
  }

  ssize_t receive(char* bytes, size_t count) {
    iovec data{.iov_base = bytes, .iov_len = count};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kWelcomeDescriptors * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(greeting_.socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got > 0) keep_descriptors(message, greeting_);
    return got;
  }

  const JoinTarget& target_;
  Greeting& greeting_;
  const Clock::time_point limit_;
};

Status read_welcome(const JoinTarget& target, Clock::time_point limit, Greeting& greeting) {
  WelcomeReader reader(target, limit, greeting);
  uint32_t length = 0;
  if (Status s = reader.read(reinterpret_cast<char*>(&length), sizeof(length)); !s.ok()) return s;
  std::string bytes(length <= kWelcomeBytesMax ? length : 0, '\0');
  if (Status s = reader.read(bytes.data(), bytes.size()); !s.ok()) return s;
  std::optional<Welcome> welcome = decode_welcome(bytes);
  if (length == 0 || bytes.empty() || !welcome)
    return internal_error("what answers at " + target.socket + " is no Tutti agent");
  greeting.welcome = *std::move(welcome);
  return {};
}

Status check(const JoinTarget& target, const Greeting& greeting) {
  const Welcome& welcome = greeting.welcome;
  if (welcome.code != Code::ok) return {welcome.code, welcome.message, welcome.culprit};
  if (welcome.version != kProtocolVersion)
    return failed_precondition("the agent at " + target.socket + " speaks protocol " +
                               std::to_string(welcome.version) + ", this library " +
                               std::to_string(kProtocolVersion) +
                               "; install the same version of both");
  const bool hosts_fit = welcome.hosts.size() == target.world_size;
  const auto here = hosts_fit ? std::ranges::count(welcome.hosts, welcome.hosts[target.rank]) : 0;
  if (greeting.board.valid() && hosts_fit && std::ssize(greeting.memories) == here) return {};
  return internal_error("the agent at " + target.socket +
                        " sent no segment (is the limit of open files reached?)");
}

constexpr int kAskAgainMs = 20;

// The hello says how much time is left of the target's.
Status greet_once(JoinTarget target, Clock::time_point limit, Greeting& greeting) {
  greeting = {};
  if (Status s = connect_to(target, limit, greeting.socket); !s.ok()) return s;
  const auto left = std::chrono::ceil<Millis>(limit - Clock::now()).count();
  target.timeout_ms = static_cast<uint32_t>(std::max<int64_t>(left, 1));
  if (Status s = say_hello(target, greeting.socket); !s.ok()) return s;
  if (Status s = read_welcome(target, limit + kGrace, greeting); !s.ok()) return s;
  return check(target, greeting);
}

}  // namespace

// ABORTED: the job's old worker was about to end; the agent starts another for who asks again.
Status greet(const JoinTarget& target, Greeting& greeting) {
  const auto limit = Clock::now() + Millis(target.timeout_ms);
  for (;;) {
    Status s = greet_once(target, limit, greeting);
    if (s.code() != Code::aborted || Clock::now() >= limit) return s;
    poll(nullptr, 0, kAskAgainMs);
  }
}

}  // namespace tutti::client
