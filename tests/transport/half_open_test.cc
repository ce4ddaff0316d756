// What a dialler can cost a listener before it has proven the secret, over every transport between
// processes.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <filesystem>

#include "tests/transport/raw_grpc.h"

namespace tutti {
namespace {

constexpr size_t kFloodBytes = 256 * kMiB;
// HTTP/2 receives 64 KiB of a stream before anybody reads it; the rest is protocol overhead.
constexpr size_t kReadMax = 128 << 10;

int port_at(int descriptor, bool of_peer) {
  sockaddr_in name{};
  socklen_t size = sizeof(name);
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  const int error = of_peer ? ::getpeername(descriptor, generic, &size)
                            : ::getsockname(descriptor, generic, &size);
  return error == 0 && name.sin_family == AF_INET ? ntohs(name.sin_port) : -1;
}

// Returns how many bytes this process has read from connections to its own port in `address`.
size_t read_at(const std::string& address) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  size_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    tcp_info info{};
    socklen_t size = sizeof(info);
    int unread = 0;
    if (port_at(descriptor, false) != port || port_at(descriptor, true) < 0 ||
        ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        ::ioctl(descriptor, FIONREAD, &unread) != 0)
      continue;
    sum += info.tcpi_bytes_received - static_cast<size_t>(unread);
  }
  return sum;
}

// Sends what a dialler without the secret can, then as much more as the listener accepts.
class Flooder {
 public:
  Flooder(const std::string& kind, const std::string& address)
      : thread_([=, this] { kind.starts_with("grpc") ? over_grpc(address) : over_tcp(address); }) {}
  ~Flooder() { thread_.join(); }
  // Until it blocks because the listener reads no more.
  void wait_stuck() { stuck_.get_future().wait(); }

 private:
  void over_tcp(const std::string& address) {
    const Bare client = Bare::dial(address);
    client.say(hello_of("a guess"));
    client.hear(sizeof(LinkChallenge));
    client.say(to_bytes(LinkProof()));
    client.say_patiently(Bytes(kMiB, 'x'), kFloodBytes, [this] { stuck_.set_value(); });
  }
  void over_grpc(const std::string& address) {
    RawClient client(address, "a guess");
    const Bytes flood(kFloodBytes, 'x');
    const bool all = client.write(flood, std::chrono::seconds(2));
    stuck_.set_value();
    EXPECT_FALSE(all);
    client.wait();
  }

  std::promise<void> stuck_;
  std::thread thread_;
};

// Leaves every dialler unauthenticated except the right one, whose link it accepts.
class Doorkeeper {
 public:
  Doorkeeper(const std::string& kind, const LinkLimits& limits)
      : transport_(make_transport(kind, limits, nullptr)) {
    address = *transport_->listen("127.0.0.1:0", [this](const IncomingLink& guest, auto) {
      const bool right = guest.host == "right" && guest.verify_secret(kSecret);
      guests.change([&] { ++asked; });
      return Result<std::shared_ptr<LinkHandler>>(right ? taken : parked);
    });
  }
  std::string address;
  Monitor guests;
  int asked = 0;
  const std::shared_ptr<Recorder> taken = std::make_shared<Recorder>();
  const std::shared_ptr<Recorder> parked = std::make_shared<Recorder>();

 private:
  std::unique_ptr<Transport> transport_;
};

class HalfOpen : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<Link> dial(const Doorkeeper& door, const std::string& host,
                             std::shared_ptr<Recorder> end = std::make_shared<Recorder>()) {
    return here_->connect(door.address, {"demo", 7, host, kSecret}, std::move(end));
  }
  // A dialler that knows the secret is accepted, and its frames arrive.
  void expect_open(Doorkeeper& door) {
    const auto link = dial(door, "right");
    EXPECT_TRUE(link->send({{.op_seq = 5}, {}, nullptr}).ok());
    EXPECT_EQ(door.taken->next().value().header.op_seq, 5u);
  }

  const std::unique_ptr<Transport> here_ = make_transport(GetParam(), {}, nullptr);
};

TEST_P(HalfOpen, NoFrameReachesAHandlerThatHasNotAskedForTheProof) {
  Sender sender;
  Doorkeeper door(GetParam(), {.connect_timeout_ms = 1'000});
  const auto end = std::make_shared<Recorder>();
  const auto link = dial(door, "eager", end);
  ASSERT_TRUE(sender.send(*link, 10, 1).ok());
  EXPECT_EQ(door.parked->closed_code(), Code::deadline_exceeded);
  EXPECT_EQ(end->closed_code(), Code::unavailable);
  EXPECT_EQ(door.parked->count(), 0u);
}

TEST_P(HalfOpen, AFloodIsNotRead) {
  Doorkeeper door(GetParam(), {.connect_timeout_ms = 8'000});
  Flooder flooder(GetParam(), door.address);
  flooder.wait_stuck();
  expect_open(door);
  EXPECT_LE(read_at(door.address), kReadMax);
  EXPECT_EQ(door.parked->closed_code(), Code::deadline_exceeded);
  EXPECT_EQ(door.parked->count(), 0u);
}

TEST_P(HalfOpen, WhoSaysNothingIsDroppedInTime) {
  Doorkeeper door(GetParam(), {.connect_timeout_ms = 1'000});
  const Bare silent = Bare::dial(door.address);
  // HTTP/2's preface and empty settings: all that a connection without a stream needs.
  const Bare idle = Bare::dial(door.address);
  idle.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Bytes("\0\0\0\4\0\0\0\0\0", 9));
  expect_open(door);
  for (const Bare* dropped : {&silent, &idle}) EXPECT_LT(dropped->hear(kMiB).size(), kMiB);
  EXPECT_EQ(door.asked, 1);
}

// It tries again, and is let in as soon as there is room.
TEST_P(HalfOpen, TheOldestOfTooManyMakesRoom) {
  constexpr int kMost = 4;
  Doorkeeper door(GetParam(), {.connect_timeout_ms = 120'000, .half_open_max = kMost});
  const auto oldest = std::make_shared<Recorder>();
  const auto newest = std::make_shared<Recorder>();
  std::vector<std::shared_ptr<Link>> links = {dial(door, "oldest", oldest)};
  const auto wait_for = [&](int count) {
    return door.guests.wait([&] { return door.asked >= count; });
  };
  ASSERT_TRUE(wait_for(1));
  for (int i = 1; i < kMost; ++i) links.push_back(dial(door, "another"));
  ASSERT_TRUE(wait_for(kMost));
  links.push_back(dial(door, "newest", newest));
  ASSERT_TRUE(wait_for(kMost + 2)) << "the oldest has not dialled again";
  expect_open(door);
  for (const auto& end : {oldest, newest})
    EXPECT_FALSE(end->closed(std::chrono::milliseconds(100)).has_value());
}

struct TcpHalfOpen : HalfOpen {};

TEST_P(TcpHalfOpen, OneAddressDoesNotDriveOutAnother) {
  constexpr int kFlood = 20;
  Doorkeeper door(GetParam(), {.connect_timeout_ms = 120'000, .half_open_max = 4});
  const auto end = std::make_shared<Recorder>();
  const auto honest = dial(door, "honest", end);
  ASSERT_TRUE(door.guests.wait([&] { return door.asked == 1; }));
  std::vector<Bare> flood;
  for (int i = 0; i < kFlood; ++i) {
    flood.push_back(Bare::dial(door.address, "127.0.0.2"));
    flood.back().say(hello_of("a guess"));
    EXPECT_EQ(flood.back().hear(sizeof(LinkChallenge)).size(), sizeof(LinkChallenge));
    flood.back().say(to_bytes(LinkProof()));
  }
  ASSERT_TRUE(door.guests.wait([&] { return door.asked >= 1 + kFlood; }));
  expect_open(door);
  EXPECT_FALSE(end->closed(3 * kRedialPause).has_value());
  EXPECT_EQ(door.asked, 2 + kFlood) << "the honest link was driven out and dialled again";
}

INSTANTIATE_TEST_SUITE_P(Transports, TcpHalfOpen, testing::Values("tcp", "tcp+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });
INSTANTIATE_TEST_SUITE_P(Transports, HalfOpen,
                         testing::Values("grpc", "tcp", "grpc+tls", "tcp+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });

}  // namespace
}  // namespace tutti
