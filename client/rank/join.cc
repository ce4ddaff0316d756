#include "client/rank/join.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "client/rank/log.h"
#include "daemon/base/address.h"
#include "daemon/base/framing.h"
#include "proto/board.h"

namespace tutti::client {
namespace {

// How much longer than the timeout to wait for the answer. The worker and the coordinator, which
// know which ranks are missing, answer within this time.
constexpr Millis kGrace{450};
// How long to wait before joining again.
constexpr int kRetryMs = 20;
// How often to join again where the connection was closed without an answer.
constexpr int kClosedMax = 3;
constexpr uint32_t kWelcomeBytesMax = 16 << 20;

Status no_agent(const std::string& socket, int error) {
  const bool forbidden = error == EACCES || error == EPERM;
  return Status(forbidden ? Code::permission_denied : Code::unavailable,
                "no agent at " + socket + " (" + std::strerror(error) +
                    "); start one with: tuttid --socket " + socket);
}

// The process that listens on the socket; 0: unknown.
pid_t listener_of(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.pid;
}

Status no_answer(const JoinTarget& target, const Fd& socket) {
  const pid_t pid = listener_of(socket);
  return deadline_exceeded(
      "the agent at " + target.socket + (pid > 0 ? " (pid " + std::to_string(pid) + ")" : "") +
      " did not answer rank " + std::to_string(target.rank) + " of job '" + target.job +
      "' in time; is it, or the job's worker, stopped or overloaded?");
}

Status connection_closed(const JoinTarget& target, JoinReply& reply) {
  reply.was_closed = true;
  return unavailable("the agent at " + target.socket + " closed the connection while rank " +
                     std::to_string(target.rank) +
                     " joined: it, or the job's worker, has ended; join again");
}

timeval time_until(TimePoint limit) {
  const auto left = std::chrono::ceil<std::chrono::microseconds>(limit - Clock::now());
  const int64_t us = std::max<int64_t>(left.count(), 1);  // 0 would mean no limit.
  return {.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
}

Status connect_to(const JoinTarget& target, TimePoint limit, Fd& socket) {
  const Result<SocketAddress> address = unix_address(target.socket);
  if (!address.ok()) return address.status();
  socket = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return no_agent(target.socket, errno);
  // Limits connect(), too, which blocks while the queue of the listener is full.
  const timeval left = time_until(limit);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
  if (connect(socket.get(), address->get(), address->bytes) == 0) return {};
  return errno == EAGAIN ? no_answer(target, socket) : no_agent(target.socket, errno);
}

Status send_hello(const JoinTarget& target, JoinReply& reply) {
  const Hello hello{kProtocolVersion,
                    target.job,
                    target.token,
                    target.rank,
                    target.world_size,
                    target.timeout_ms,
                    static_cast<uint32_t>(getpid())};
  const std::string bytes = framed(encode(hello));
  const ssize_t sent = send(reply.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size()) ? Status{} : connection_closed(target, reply);
}

// Takes ownership of the descriptors of a message, and keeps them if they are those of a Welcome.
void keep_descriptors(msghdr& message, JoinReply& reply) {
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return;
  // Not more than kWelcomeDescriptors and one, for which the padding has room.
  std::vector<int> raw((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(raw.data(), CMSG_DATA(header), raw.size() * sizeof(int));
  std::vector<Fd> fds;
  for (const int fd : raw) fds.emplace_back(fd);
  const bool is_truncated = (message.msg_flags & MSG_CTRUNC) != 0;  // By the limit of open files.
  if (fds.size() < 5 || is_truncated) return;
  reply.memory = std::move(fds[0]);
  reply.doorbell = std::move(fds[1]);
  reply.board = std::move(fds[2]);
  reply.recorder = std::move(fds[3]);
  reply.segments.assign(std::make_move_iterator(fds.begin() + 4),
                        std::make_move_iterator(fds.end()));
}

// Waits until there is something to read.
Status await_readable(const JoinTarget& target, TimePoint limit, const Fd& socket) {
  while (true) {
    const auto left = std::chrono::ceil<Millis>(limit - Clock::now()).count();
    if (left <= 0) return no_answer(target, socket);
    pollfd readable{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, static_cast<int>(left)) > 0) return {};
  }
}

ssize_t receive(JoinReply& reply, char* bytes, size_t count) {
  iovec data{.iov_base = bytes, .iov_len = count};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kWelcomeDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(reply.socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got > 0) keep_descriptors(message, reply);
  return got;
}

// Reads exactly `count` bytes. The descriptors come with the first ones.
Status read_bytes(const JoinTarget& target, TimePoint limit, JoinReply& reply, char* bytes,
                  size_t count) {
  for (size_t done = 0; done < count;) {
    if (Status s = await_readable(target, limit, reply.socket); !s.ok()) return s;
    const ssize_t got = receive(reply, bytes + done, count - done);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return connection_closed(target, reply);
    done += static_cast<size_t>(got);
  }
  return {};
}

Status read_welcome(const JoinTarget& target, TimePoint limit, JoinReply& reply) {
  const auto read = [&](void* bytes, size_t count) {
    return read_bytes(target, limit, reply, static_cast<char*>(bytes), count);
  };
  uint32_t length = 0;
  if (Status s = read(&length, sizeof(length)); !s.ok()) return s;
  std::string bytes(length <= kWelcomeBytesMax ? length : 0, '\0');
  if (Status s = read(bytes.data(), bytes.size()); !s.ok()) return s;
  std::optional<Welcome> welcome = decode_welcome(bytes);
  if (length == 0 || bytes.empty() || !welcome)
    return internal_error("what answers at " + target.socket + " is no Tutti agent");
  reply.welcome = *std::move(welcome);
  return {};
}

Status check(const JoinTarget& target, const JoinReply& reply) {
  const Welcome& welcome = reply.welcome;
  if (welcome.code != Code::ok) return {welcome.code, welcome.message, welcome.culprit};
  if (welcome.version != kProtocolVersion)
    return failed_precondition("the agent at " + target.socket + " speaks protocol " +
                               std::to_string(welcome.version) + ", this library " +
                               std::to_string(kProtocolVersion) +
                               "; install the same version of both");
  const bool hosts_fit = welcome.hosts.size() == target.world_size;
  const auto here = hosts_fit ? std::ranges::count(welcome.hosts, welcome.hosts[target.rank]) : 0;
  if (reply.board.valid() && hosts_fit && std::ssize(reply.segments) == here) return {};
  return internal_error("the agent at " + target.socket +
                        " sent no segment (is the limit of open files reached?)");
}

// Joins with the time that is left until `limit`.
Status join_once(JoinTarget target, TimePoint limit, JoinReply& reply) {
  reply = {};
  if (Status s = connect_to(target, limit, reply.socket); !s.ok()) return s;
  const auto left = std::chrono::ceil<Millis>(limit - Clock::now()).count();
  target.timeout_ms = static_cast<uint32_t>(std::max<int64_t>(left, 1));
  if (Status s = send_hello(target, reply); !s.ok()) return s;
  if (Status s = read_welcome(target, limit + kGrace, reply); !s.ok()) return s;
  return check(target, reply);
}

}  // namespace

// After ABORTED, which means that the job's old worker was about to exit, the agent starts another.
// So it does where that worker died after it was given the connection, and said nothing.
Status join_job(const JoinTarget& target, JoinReply& reply) {
  const auto limit = Clock::now() + Millis(target.timeout_ms);
  for (int closed = 0;;) {
    Status s = join_once(target, limit, reply);
    const bool may_retry = s.code() == Code::aborted || (reply.was_closed && closed++ < kClosedMax);
    if (!may_retry || Clock::now() >= limit) return s;
    log(LogLevel::debug, "joins again: " + s.message());
    poll(nullptr, 0, kRetryMs);
  }
}

}  // namespace tutti::client
