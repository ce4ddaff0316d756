// A trainer's Hello, read without blocking and without trust.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "daemon/base/framing.h"
#include "daemon/base/status_message.h"
#include "daemon/session/session.h"

namespace tutti {
namespace {

constexpr uint32_t kHelloBytesMax = 4096;

}  // namespace

HelloReader::HelloReader(Loop& loop, int socket, TimePoint deadline, Done done)
    : loop_(loop), socket_(socket), done_(std::move(done)) {
  timer_ = loop_.at(deadline, [this] {
    finish(deadline_exceeded("the trainer sent no complete hello in time"));
  });
  const Status watched = loop_.watch(socket_, EPOLLIN, [this](uint32_t) { read_some(); });
  if (watched.ok()) return;
  loop_.cancel(timer_);
  timer_ = loop_.at(Clock::now(), [this, watched] { finish(watched); });
}

// Reads no byte past the message.
void HelloReader::read_some() {
  std::array<char, 4096> buffer;
  while (true) {
    const size_t wanted = std::min(buffer.size(), bytes_wanted());
    const ssize_t got = recv(socket_, buffer.data(), wanted, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return finish(unavailable("the trainer closed its connection before its hello"));
    bytes_.append(buffer.data(), static_cast<size_t>(got));
    if (bytes_.size() == sizeof(uint32_t) && !length_ok()) return;
    if (bytes_wanted() == 0) return decode();
  }
}

uint32_t HelloReader::length() const {
  uint32_t length = 0;
  std::memcpy(&length, bytes_.data(), sizeof(length));
  return length;
}

size_t HelloReader::bytes_wanted() const {
  if (bytes_.size() < sizeof(uint32_t)) return sizeof(uint32_t) - bytes_.size();
  return sizeof(uint32_t) + length() - bytes_.size();
}

bool HelloReader::length_ok() {
  if (length() <= kHelloBytesMax) return true;
  finish(invalid_argument("the greeting is no Tutti hello (too long)"));
  return false;
}

void HelloReader::decode() {
  v1::Hello hello;
  if (hello.ParseFromString(bytes_.substr(sizeof(uint32_t)))) return finish(std::move(hello));
  finish(invalid_argument("the greeting is no Tutti hello"));
}

void HelloReader::stop() {
  if (!done_) return;
  loop_.unwatch(socket_);
  loop_.cancel(timer_);
}

void HelloReader::finish(Result<v1::Hello> result) {
  stop();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

void refuse_trainer(int socket, const Status& status) {
  require(!status.ok(), "a refusal needs a reason");
  v1::Welcome welcome;
  welcome.set_version(kProtocolVersion);
  write_status(status, welcome);
  // It fails only where the trainer is gone.
  static_cast<void>(send_packet(socket, framed(welcome.SerializeAsString()), {}).ok());
}

}  // namespace tutti
