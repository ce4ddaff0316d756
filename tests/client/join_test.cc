// join_job() against an agent that sends wrong descriptors.
#include "client/rank/join.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "daemon/session/session.h"
#include "proto/board.h"
#include "proto/session.pb.h"
#include "tests/session/trainer.h"

namespace tutti::client {
namespace {

// Sends the Welcome of a job of one rank, with `descriptors` descriptors of /dev/null.
void send_welcome(int socket, size_t descriptors) {
  v1::Welcome welcome;
  welcome.set_version(kProtocolVersion);
  welcome.add_hosts("a");
  const std::string body = welcome.SerializeAsString();
  const auto length = static_cast<uint32_t>(body.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += body;
  const tutti::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<int> fds(descriptors, null.get());
  std::vector<char> control(CMSG_SPACE(descriptors * sizeof(int)));
  iovec data{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
  std::copy_n(reinterpret_cast<const char*>(fds.data()), descriptors * sizeof(int),
              reinterpret_cast<char*>(CMSG_DATA(header)));
  EXPECT_EQ(sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// The agent first closes `closed` connections without an answer.
Status join_agent_that_sends(size_t descriptors, JoinReply& reply, int closed = 0) {
  const std::string path = ::testing::TempDir() + "greet_" + std::to_string(getpid()) + ".sock";
  const Result<tutti::Fd> listener = listen_unix(path, SOCK_STREAM, 0600);
  EXPECT_TRUE(listener.ok());
  const JoinTarget target{path, "job", "", 0, 1, 30'000};
  Status outcome;
  std::thread trainer([&] { outcome = join_job(target, reply); });
  tutti::Fd socket;
  for (; closed >= 0; --closed) {
    do socket.reset(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
    while (!socket.valid());
  }
  send_welcome(socket.get(), descriptors);
  trainer.join();
  unlink(path.c_str());
  return outcome;
}

TEST(ClientJoinSocket, KeepsTheDescriptorsOfAWelcome) {
  JoinReply reply;
  const Status outcome = join_agent_that_sends(5, reply);
  EXPECT_TRUE(outcome.ok()) << outcome.message();
  EXPECT_EQ(reply.segments.size(), 1u);
}

// As an agent does that has given it to a worker that died.
TEST(ClientJoinSocket, JoinsAgainWhereTheConnectionIsClosed) {
  JoinReply reply;
  const Status outcome = join_agent_that_sends(5, reply, 2);
  EXPECT_TRUE(outcome.ok()) << outcome.message();
}

// The padding of a control message has room for one descriptor more than a Welcome has.
TEST(ClientJoinSocket, DescriptorsBeyondThoseOfAWelcomeAreRefused) {
  const int before = open_descriptors();
  for (const size_t descriptors :
       {size_t{1}, size_t{4}, size_t{6}, size_t{kWelcomeDescriptors},
        size_t{kWelcomeDescriptors + 1}, size_t{kWelcomeDescriptors + 2}, size_t{253}}) {
    JoinReply reply;
    const Status outcome = join_agent_that_sends(descriptors, reply);
    EXPECT_EQ(outcome.code(), Code::internal) << descriptors;
    EXPECT_THAT(outcome.message(), ::testing::HasSubstr("sent no segment")) << descriptors;
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tutti::client
