// Unix sockets: listening, packets with descriptors, and hellos, valid and hostile.
#include <fcntl.h>

#include <fstream>
#include <random>

#include "daemon/base/framing.h"
#include "tests/session/trainer.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::string socket_path(const std::string& name) { return testing::TempDir() + name; }

TEST(UnixSocket, ListensWithTheModeAsked) {
  const std::string path = socket_path("mode.sock");
  const Result<Fd> listener = listen_unix(path, SOCK_STREAM, 0660);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_TRUE(connect_unix(path, SOCK_STREAM).ok());
  unlink(path.c_str());
}

TEST(UnixSocket, ReplacesADeadSocketButNotALiveOne) {
  const std::string path = socket_path("dead.sock");
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    Result<Fd> first = listen_unix(path, type, 0600);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    const Result<Fd> second = listen_unix(path, type, 0600);
    EXPECT_EQ(second.status().code(), Code::already_exists);
    EXPECT_THAT(second.status().message(), HasSubstr(path));
    first->reset();
  }
  EXPECT_TRUE(listen_unix(path, SOCK_STREAM, 0600).ok());
  unlink(path.c_str());
}

TEST(UnixSocket, LeavesOtherFilesAlone) {
  const std::string path = socket_path("plain.file");
  std::ofstream(path) << "precious";
  EXPECT_EQ(listen_unix(path, SOCK_STREAM, 0600).status().code(), Code::already_exists);
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
  unlink(path.c_str());
}

TEST(UnixSocket, NamesThePathThatFails) {
  EXPECT_EQ(listen_unix(std::string(200, 'x'), SOCK_STREAM, 0600).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(connect_unix("", SOCK_STREAM).status().code(), Code::invalid_argument);
  const Result<Fd> nobody = connect_unix(socket_path("nobody.sock"), SOCK_STREAM);
  EXPECT_EQ(nobody.status().code(), Code::not_found);
  EXPECT_THAT(nobody.status().message(), HasSubstr("nobody.sock"));
}

TEST(UnixSocket, PeerCredentialsAreThePeers) {
  const auto [a, b] = socket_pair();
  const Result<PeerCredentials> peer = peer_credentials(a.get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->uid, getuid());
  EXPECT_EQ(peer->gid, getgid());
  EXPECT_EQ(peer->pid, static_cast<uint32_t>(getpid()));
}

TEST(UnixPacket, CarriesBytesAndDescriptors) {
  const auto [a, b] = socket_pair(SOCK_SEQPACKET);
  EXPECT_FALSE((*receive_packet(b.get())).has_value()) << "nothing was sent yet";
  const Fd bell(eventfd(5, EFD_CLOEXEC));
  const std::array descriptors = {bell.get()};
  ASSERT_TRUE(send_packet(a.get(), std::string(70'000, 'p'), descriptors).ok());
  ASSERT_TRUE(send_packet(a.get(), "bare", {}).ok());
  Result<std::optional<Packet>> first = receive_packet(b.get());
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->bytes, std::string(70'000, 'p'));
  ASSERT_EQ((*first)->descriptors.size(), 1u);
  eventfd_t value = 0;
  EXPECT_EQ(eventfd_read((*first)->descriptors[0].get(), &value), 0);
  EXPECT_EQ(value, 5u);
  EXPECT_EQ(fcntl((*first)->descriptors[0].get(), F_GETFD), FD_CLOEXEC);
  Result<std::optional<Packet>> second = receive_packet(b.get());
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->bytes, "bare");
  EXPECT_TRUE((*second)->descriptors.empty());
}

TEST(UnixPacket, SaysWhenThePeerIsGoneOrFull) {
  auto [a, b] = socket_pair(SOCK_SEQPACKET);
  Status sent;
  for (int i = 0; i < 100'000 && sent.ok(); ++i) sent = send_packet(a.get(), "0123456789", {});
  EXPECT_EQ(sent.code(), Code::unavailable);
  EXPECT_THAT(sent.message(), HasSubstr("full"));
  b.reset();
  EXPECT_EQ(receive_packet(a.get()).status().code(), Code::unavailable);
  EXPECT_THAT(send_packet(a.get(), "x", {}).message(), HasSubstr("gone"));
}

std::string hello_bytes(const v1::Hello& hello) { return framed(hello.SerializeAsString()); }

class HelloTest : public testing::Test {
 protected:
  void listen(Millis limit = std::chrono::seconds(30)) {
    reader = std::make_unique<HelloReader>(loop, ends.first.get(), Clock::now() + limit,
                                           [this](auto result) {
                                             ++calls;
                                             hello = std::move(result);
                                             reader.reset();  // The reader must bear it.
                                           });
  }
  void say(const std::string& bytes) {
    EXPECT_EQ(send(ends.second.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  bool answered() {
    return await(loop, [this] { return calls > 0; });
  }

  Loop loop;
  std::pair<Fd, Fd> ends = socket_pair();
  std::unique_ptr<HelloReader> reader;
  int calls = 0;
  Result<v1::Hello> hello = unavailable("none yet");
};

TEST_F(HelloTest, ReadsEveryFieldThoughItComesInCrumbs) {
  v1::Hello sent;
  sent.set_version(1);
  sent.set_job("demo");
  sent.set_token("secret");
  sent.set_rank(3);
  sent.set_world_size(4);
  sent.set_timeout_ms(30'000);
  sent.set_pid(4711);
  listen();
  for (const char byte : hello_bytes(sent)) {
    EXPECT_EQ(calls, 0);
    say(std::string(1, byte));
    drain(loop);
  }
  ASSERT_TRUE(answered());
  ASSERT_TRUE(hello.ok()) << hello.status().to_string();
  EXPECT_EQ(hello->version(), 1u);
  EXPECT_EQ(hello->job(), "demo");
  EXPECT_EQ(hello->token(), "secret");
  EXPECT_EQ(hello->rank(), 3u);
  EXPECT_EQ(hello->world_size(), 4u);
  EXPECT_EQ(hello->timeout_ms(), 30'000u);
  EXPECT_EQ(hello->pid(), 4711u);
  EXPECT_EQ(calls, 1);
}

TEST_F(HelloTest, RefusesAWebBrowser) {
  listen();
  say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(answered());
  EXPECT_EQ(hello.status().code(), Code::invalid_argument);
  EXPECT_THAT(hello.status().message(), HasSubstr("no Tutti hello"));
}

TEST_F(HelloTest, RefusesAnEarlyEnd) {
  listen();
  say(std::string("\x08\0\0\0ab", 6));
  ends.second.reset();
  ASSERT_TRUE(answered());
  EXPECT_EQ(hello.status().code(), Code::unavailable);
}

TEST_F(HelloTest, RefusesSilence) {
  listen(Millis(10));
  ASSERT_TRUE(answered());
  EXPECT_EQ(hello.status().code(), Code::deadline_exceeded);
}

TEST_F(HelloTest, DestroyingTheReaderCancelsIt) {
  listen(Millis(10));
  say("GET / HTTP/1.1\r\n");
  reader.reset();
  const TimePoint later = Clock::now() + Millis(30);
  while (Clock::now() < later) loop.run_once(later);
  EXPECT_EQ(calls, 0);
}

TEST_F(HelloTest, GarbageGetsAnAnswerEveryTime) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    ends = socket_pair();
    calls = 0;
    listen();
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (bytes.size() > 4 && i % 2 == 0)
      bytes.replace(0, 4, std::string{static_cast<char>(bytes.size() - 4), 0, 0, 0});
    if (!bytes.empty()) say(bytes);
    ends.second.reset();
    ASSERT_TRUE(answered());
    ASSERT_EQ(calls, 1);
  }
}

TEST_F(HelloTest, RefusalCarriesCodeMessageAndCulprit) {
  refuse_trainer(ends.first.get(), already_exists("rank 2 is taken", {2, "b"}));
  std::string bytes(4096, '\0');
  const ssize_t got = recv(ends.second.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(got, 4);
  bytes.resize(static_cast<size_t>(got));
  const v1::Welcome welcome = parse_welcome(bytes);
  EXPECT_EQ(welcome.code(), TUTTI_ALREADY_EXISTS);
  EXPECT_EQ(welcome.message(), "rank 2 is taken");
  EXPECT_EQ(welcome.culprit_rank(), 2);
  EXPECT_EQ(welcome.culprit_host(), "b");
  ends.second.reset();
  refuse_trainer(ends.first.get(), unavailable("too late"));  // The trainer is gone: no harm.
}

}  // namespace
}  // namespace tutti
