// Which agents the commands ask where none serves the node.
#include "daemon/cli/private_agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/fd.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Answers all requests with nothing. Leaves its socket behind.
class Agent {
 public:
  explicit Agent(const fs::path& socket)
      : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] { answer_all(); });
  }
  ~Agent() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void answer_all() const {
    while (true) {
      const Fd asking(accept(listener_.get(), nullptr, nullptr));
      if (!asking.valid()) return;
      std::array<char, 4096> request{};
      (void)recv(asking.get(), request.data(), request.size(), 0);
      const uint32_t length = 0;
      (void)send(asking.get(), &length, sizeof(length), MSG_NOSIGNAL);
    }
  }

  Fd listener_;
  std::thread thread_;
};

// Other runs of this user may have private agents on this machine, too.
struct CliPrivateAgents : testing::Test {
  ~CliPrivateAgents() override {
    for (const fs::path& each : outside) fs::remove_all(each);
  }

  // Like one of tutti.torch, that has ended or not.
  fs::path start(const fs::path& parent, const std::string& name, bool ended = false) {
    const fs::path directory = parent / ("tutti-torch-" + home.filename().string() + name);
    fs::create_directory(directory);
    if (parent != home) outside.push_back(directory);
    const fs::path socket = directory / "tuttid.sock";
    auto agent = std::make_unique<Agent>(socket);
    if (!ended) agents.push_back(std::move(agent));
    return socket;
  }
  // Those of this test that are asked, and what is said meanwhile.
  std::vector<std::string> asked() {
    const Variable socket("TUTTI_SOCKET", home / "tuttid.sock");
    testing::internal::CaptureStderr();
    std::vector<std::string> found = agents_to_ask("unix:" + (home / "tuttid.sock").string());
    said = testing::internal::GetCapturedStderr();
    std::erase_if(found, [&](const std::string& each) {
      return each.find(home.filename()) == std::string::npos;
    });
    return found;
  }
  static std::string address(const fs::path& socket) { return "unix:" + socket.string(); }

  const Variable no_address{"TUTTI_ADDRESS", {}};
  const TemporaryDirectory home;
  std::vector<fs::path> outside;
  std::vector<std::unique_ptr<Agent>> agents;
  std::string said;
};

TEST_F(CliPrivateAgents, AreAskedInTheOrderOfTheirStart) {
  const Variable temporary("TMPDIR", home);
  const fs::path first = start(home, "z");
  const fs::path second = start(home, "a");
  fs::last_write_time(first, fs::last_write_time(second) - std::chrono::milliseconds(1));
  EXPECT_THAT(asked(), ElementsAre(address(first), address(second)));
  const auto one = agent_to_ask("unix:/tmp/of/another.sock");
  EXPECT_EQ(*one, "unix:/tmp/of/another.sock") << "it was named";
}

TEST_F(CliPrivateAgents, ThatAreReachedByTwoPathsAreAskedOnce) {
  fs::create_directory_symlink("/tmp", home / "link");
  const Variable temporary("TMPDIR", (home / "link" / "..").string() + "/tmp/.");
  const fs::path agent = start("/tmp", "");
  fs::create_directory_symlink(agent.parent_path(), agent.parent_path().string() + "-link");
  outside.push_back(agent.parent_path().string() + "-link");
  EXPECT_THAT(asked(), ElementsAre(address(agent)));
}

TEST_F(CliPrivateAgents, ThatEndedAreNotAskedAndNamedInOneLine) {
  const Variable temporary("TMPDIR", home);
  start(home, "a", true);
  const fs::path agent = start(home, "b");
  start(home, "c", true);
  EXPECT_THAT(asked(), ElementsAre(address(agent)));
  EXPECT_THAT(said, HasSubstr("tutti: no agent answers at "));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST_F(CliPrivateAgents, AreAskedWhereTheNodesAgentLeftItsSocketBehind) {
  const Variable temporary("TMPDIR", home);
  const fs::path agent = start(home, "a");
  auto node = std::make_unique<Agent>(home / "tuttid.sock");
  EXPECT_THAT(asked(), ElementsAre(address(home / "tuttid.sock")));
  node.reset();
  EXPECT_THAT(asked(), ElementsAre(address(agent)));
}

TEST_F(CliPrivateAgents, WhereAllHaveEndedTheNodesIsAsked) {
  const Variable temporary("TMPDIR", home);
  start(home, "a", true);
  const auto found = asked();
  EXPECT_EQ(std::ranges::count_if(found,
                                  [](const auto& each) { return each.find("torch") != each.npos; }),
            0);
}

}  // namespace
}  // namespace tutti
