// A trainer's greeting on a stream, in two pieces. It is answered once; it is read as protobuf
// reads it, and as the client would write it; no byte behind it is taken.
#include "client/rank/hello.h"
#include "daemon/session/session.h"
#include "proto/session.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sockets.h"

namespace tutti {
namespace {

constexpr size_t kHelloBytesMax = 64 * 1024;

Loop& loop() {
  static Loop the_loop;
  return the_loop;
}

size_t bytes_left(const Fd& socket) {
  std::array<char, 64 * 1024> buffer;
  const ssize_t got = recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  return got < 0 ? 0 : static_cast<size_t>(got);
}

void check_fields(const v1::Hello& hello, const v1::Hello& real) {
  require(hello.version() == real.version() && hello.job() == real.job(), "version and job");
  require(hello.token() == real.token() && hello.rank() == real.rank(), "token and rank");
  require(hello.world_size() == real.world_size() && hello.pid() == real.pid(), "size and pid");
  require(hello.timeout_ms() == real.timeout_ms(), "timeout");
}

void check_client_writes_it(const v1::Hello& hello) {
  v1::Hello again;
  require(again.ParseFromString(
              client::encode({hello.version(), hello.job(), hello.token(), hello.rank(),
                              hello.world_size(), hello.timeout_ms(), hello.pid()})),
          "what the client writes is read");
  check_fields(hello, again);
}

void check(const Result<v1::Hello>& answer, std::string_view stream, size_t left) {
  uint32_t length = 0;
  if (stream.size() >= sizeof(length)) std::memcpy(&length, stream.data(), sizeof(length));
  const bool has_length = stream.size() >= sizeof(length);
  if (has_length && length > kHelloBytesMax)
    return require(answer.status().code() == Code::invalid_argument, "too long is refused");
  if (!has_length || stream.size() - sizeof(length) < length)
    return require(answer.status().code() == Code::unavailable, "too short is a hang-up");
  require(left == stream.size() - sizeof(length) - length, "nothing behind the hello is read");
  v1::Hello real;
  const bool readable = real.ParseFromString(std::string(stream.substr(sizeof(length), length)));
  require(answer.ok() == readable, "what protobuf reads is a hello");
  if (!answer.ok())
    return require(answer.status().code() == Code::invalid_argument, "garbage is refused");
  check_fields(*answer, real);
  check_client_writes_it(*answer);
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  fuzz::Input input(data, size);
  const size_t cut = input.take<uint8_t>();
  const std::string_view stream = input.rest();
  fuzz::SocketPair sockets = fuzz::socket_pair(SOCK_STREAM);
  std::vector<Result<v1::Hello>> answers;
  const HelloReader reader(loop(), sockets.ours.get(), Clock::now() + Millis(60'000),
                           [&](Result<v1::Hello> hello) { answers.push_back(hello); });
  for (const std::string_view piece :
       {stream.substr(0, cut), stream.substr(std::min(cut, stream.size()))}) {
    fuzz::send_all(sockets.theirs, piece);
    loop().run_once(Clock::now());
  }
  shutdown(sockets.theirs.get(), SHUT_WR);
  for (int turns = 0; turns < 4 && answers.empty(); ++turns) loop().run_once(Clock::now());
  require(answers.size() == 1, "a greeting is answered once");
  check(answers.front(), stream, bytes_left(sockets.ours));
  return 0;
}
