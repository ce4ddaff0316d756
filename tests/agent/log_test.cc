// The log of tuttid and of its workers, while nobody reads it.
#include <gmock/gmock.h>

#include <array>

#include "daemon/base/program.h"
#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

// tuttid whose stderr is a pipe that is full.
struct AgentLog : AgentTest {
  AgentLog() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reader.reset(ends[0]);
    output.reset(ends[1]);
    fcntl(output.get(), F_SETPIPE_SZ, 4096);
    fcntl(output.get(), F_SETFL, O_NONBLOCK);
    while (write(output.get(), "x", 1) == 1) continue;
    fcntl(output.get(), F_SETFL, 0);
  }
  void refuse(int hellos) {
    for (int i = 0; i < hellos; ++i) {
      EXPECT_EQ(join("demo", 9).code(), TUTTI_INVALID_ARGUMENT);
      trainers.clear();
    }
  }
  // What is written until `words` are.
  std::string read_until(const std::string& words) {
    std::string text;
    std::array<char, 1000> part;
    while (text.find(words) == std::string::npos && wait_readable(reader.get())) {
      const ssize_t count = read(reader.get(), part.data(), part.size());
      if (count <= 0) break;
      text.append(part.data(), static_cast<size_t>(count));
    }
    return text;
  }
  Fd reader;
};

TEST_F(AgentLog, ThatIsNotReadHoldsUpNothing) {
  const pid_t agent = start({"--log-level=debug", "--log-lines=16"});
  refuse(100);
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
  EXPECT_EQ(join("other").code(), TUTTI_OK);
  EXPECT_EQ(end(agent, SIGTERM), 0);
}

TEST_F(AgentLog, TellsHowManyLinesWereDropped) {
  start({"--log-level=debug", "--log-lines=16"});
  refuse(100);
  // Of 102: no GPUs, it serves, and the hundred. 16 waited, and none to two were being written.
  const std::string text = read_until("lines are missing here");
  EXPECT_THAT(text, HasSubstr("] tuttid 0."));
  EXPECT_THAT(text, ContainsRegex("warning tuttid.[0-9]+. 8[4-6] lines are missing here: "
                                  "log_lines = 16 waited to be written"));
  refuse(1);
  EXPECT_THAT(read_until("refused a trainer"), HasSubstr("debug tuttid["));
  const auto reply = admin_status(address(), true, kPatienceMs);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_GE(reply->agents(0).dropped_log_lines(), 84u);
}

TEST_F(AgentLog, ThatIsNotReadDoesNotHoldUpWorkersEither) {
  const std::string worker = std::filesystem::path(TUTTI_AGENT).parent_path() / "tutti-worker";
  start({"--worker-binary=" + worker, "--worker-idle-ms=1"});
  v1::Hello hello = hello_of("demo");
  hello.set_world_size(1);
  const v1::Welcome welcome = join(hello);
  EXPECT_EQ(welcome.code(), TUTTI_OK);
  EXPECT_EQ(kill(static_cast<pid_t>(welcome.worker_pid()), 0), 0);
  trainers.clear();
  EXPECT_TRUE(await([&] { return kill(static_cast<pid_t>(welcome.worker_pid()), 0) != 0; }));
}

// The job's user chooses it.
TEST_F(AgentTest, WhatAWorkerWritesIsCleanedAndSaysWhoseItIs) {
  start({});
  const v1::Welcome welcome = join("write");
  ASSERT_EQ(welcome.code(), TUTTI_OK);
  kill(std::stoi(field(welcome, "pid")), SIGKILL);
  const std::string prefix = "] job \"write\": ";
  EXPECT_TRUE(await([&] { return count_in_log("last without an end") == 1; })) << log();
  EXPECT_THAT(log(), HasSubstr("serves")) << "the worker cut the log";
  EXPECT_THAT(log(), ContainsRegex("error tuttid.[0-9]+" + prefix + "worker.7. in words"));
  EXPECT_THAT(log(), HasSubstr(prefix + "tuttid[1] audit: root: stop: OK"));
  EXPECT_THAT(log(), ContainsRegex("error tuttid.[0-9]+" + prefix + "no level ..2J.2026"));
  std::istringstream lines(log());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(line.starts_with("2026-01-02")) << line;
    EXPECT_EQ(line.find_first_of("\x1b\r\x9b"), line.npos) << line;
    EXPECT_LT(line.size(), 4'500u);
  }
}

TEST_F(AgentTest, JsonHasALinePerObjectAndTheJobOfWhatAWorkerWrites) {
  start({"--log-format=json"});
  const v1::Welcome welcome = join("write");
  ASSERT_EQ(welcome.code(), TUTTI_OK);
  kill(std::stoi(field(welcome, "pid")), SIGKILL);
  EXPECT_TRUE(await([&] { return count_in_log("last without an end") == 1; })) << log();
  EXPECT_THAT(log(), ContainsRegex("\"level\":\"error\",\"program\":\"tuttid\",\"pid\":[0-9]+,"
                                   "\"job\":\"write\",\"message\":\"worker.7. in words"));
  std::istringstream lines(log());
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.starts_with("{\"time\":\"2") && line.ends_with("\"}")) << line;
}

// As systemd starts it: JOURNAL_STREAM names the file.
TEST_F(AgentTest, TheJournalGetsPrioritiesAndNoTimes) {
  const std::string path = home + "/journal";
  output.reset(open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  struct stat file {};
  ASSERT_EQ(fstat(output.get(), &file), 0);
  environment = {
      {"JOURNAL_STREAM", std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino)}};
  start({});
  const v1::Welcome welcome = join("write");
  ASSERT_EQ(welcome.code(), TUTTI_OK);
  kill(std::stoi(field(welcome, "pid")), SIGKILL);
  const auto journal = [&] { return text_of_file(path); };
  EXPECT_TRUE(await([&] { return journal().find("last without an end") != std::string::npos; }));
  EXPECT_THAT(journal(), HasSubstr("<6>tuttid 0."));
  EXPECT_THAT(journal(), HasSubstr("<3>job \"write\": worker[7] in words"));
  std::istringstream lines(journal());
  for (std::string line; std::getline(lines, line);)
    EXPECT_THAT(line, ContainsRegex("^<[2-7]>[^0-9<]"));
}

TEST_F(AgentTest, AWorkerThatFloodsTheLogIsNotHeldUpAndWritesNoMoreThanItsShare) {
  start({});
  EXPECT_NE(field(join("flood"), "pid"), "") << "its output took all that it wrote";
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentTest, WhatAWorkerWritesWhileThereIsNoAgentIsInTheNextOnesLog) {
  const pid_t first = start({});
  const v1::Welcome welcome = join("write");
  ASSERT_EQ(welcome.code(), TUTTI_OK);
  end(first, SIGKILL);
  start({});
  EXPECT_TRUE(await([&] { return count_in_log("job \"write\": between agents") == 1; })) << log();
  EXPECT_EQ(kill(std::stoi(field(welcome, "pid")), 0), 0);
}

}  // namespace
}  // namespace tutti
