// `tutti doctor` and `top` beside real agents and jobs, and `plan`, as operators call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_mesh.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ShellOutcome run_tutti(const std::string& arguments) {
  return run_shell("exec '" + (program_directory() / "tutti").string() + "' " + arguments);
}

std::string doctor_of(const LocalMesh::Host& host) {
  return "doctor --socket '" + host.socket + "' --run-dir '" +
         std::filesystem::path(host.socket).parent_path().string() + "' ";
}

TEST(DoctorProcess, SeesTheAgentAndTheMesh) {
  const TestMesh mesh(2);
  const ShellOutcome seen =
      run_tutti(doctor_of(mesh.host(1)) + "--coordinator " + mesh.host(0).control);
  for (const char* part :
       {"OK    agent          tuttid of host b (pid ", "agents that answer: 2", "OK    versions",
        "OK    clocks", "OK    kernel", "OK    shared_memory", " has registered this node's agent",
        "1 of 1 other agents for certain", "OK    directories"})
    EXPECT_THAT(seen.out, HasSubstr(part));
  EXPECT_EQ(seen.code, seen.out.find("FAIL") == std::string::npos ? 0 : 1) << seen.out;
}

TEST(DoctorProcess, SaysWhatIsWrongAndHowToFixIt) {
  const TestMesh mesh(1);
  const std::string config = ::testing::TempDir() + "doctor_" + std::to_string(getpid());
  std::ofstream(config) << "listen = 127.0.0.1:7601\nops_in_flight = many\n";
  const ShellOutcome seen =
      run_tutti("doctor --config '" + config + "' --socket /nowhere/x.sock --listen " +
                mesh.host(0).control + " --coordinator 127.0.0.1:1");
  EXPECT_EQ(seen.code, 1);
  EXPECT_THAT(seen.out, HasSubstr("FAIL  settings       " + config + ":2: setting ops_in_flight"));
  EXPECT_THAT(seen.out, HasSubstr("FAIL  agent          no tuttid answers at /nowhere/x.sock"));
  EXPECT_THAT(seen.out, HasSubstr("\n                     -> start it: systemctl start tuttid"));
  std::ofstream(config) << "listen = " << mesh.host(0).control << "\ncoordinator = 127.0.0.1:1\n";
  const ShellOutcome fixed = run_tutti("doctor --config '" + config + "' --socket /nowhere/x.sock");
  std::filesystem::remove(config);
  EXPECT_EQ(fixed.code, 1);
  EXPECT_THAT(fixed.out, HasSubstr("OK    settings       " + config + " is valid"));
  EXPECT_THAT(fixed.out, HasSubstr("FAIL  coordinator    127.0.0.1:1 is not reached: "));
  EXPECT_THAT(fixed.out, HasSubstr("FAIL  listen         cannot listen at " + mesh.host(0).control +
                                   ": Address already in use"));
}

// What tuttid says of a wrong token, and what doctor does, is one.
TEST(DoctorProcess, AWrongTokenIsNotTakenForADeadCoordinator) {
  const TestMesh mesh(2);
  const std::filesystem::path home = std::filesystem::path(mesh.host(1).socket).parent_path();
  std::ofstream(home / "wrong") << "another-token role=agent,admin\n";
  std::filesystem::permissions(home / "wrong", std::filesystem::perms(0600));
  kill(mesh.host(1).agent, SIGKILL);
  restart_agent(mesh.host(1), {"--coordinator=" + mesh.host(0).control,
                               "--token-file=" + (home / "wrong").string()});
  const std::string what =
      "the coordinator " + mesh.host(0).control + " refuses this agent: wrong token";
  ShellOutcome seen;
  EXPECT_TRUE(await([&] {
    seen = run_tutti(doctor_of(mesh.host(1)) + "--coordinator= --token-file=");
    return seen.out.find("FAIL  coordinator    " + what) != std::string::npos;
  })) << seen.out
      << mesh.log_tails();
  EXPECT_THAT(seen.out,
              HasSubstr(what + "\n                     -> give both the same token_file"));
  EXPECT_THAT(seen.out, HasSubstr("OK    settings"));
  EXPECT_THAT(seen.out, HasSubstr("WARN  mesh"));
  EXPECT_THAT(text_of(mesh.host(1).log), HasSubstr(what + "; give both the same token_file"));
  EXPECT_THAT(text_of(mesh.host(0).log), HasSubstr("refused an agent at 127.0.0.1: wrong token; "));
}

TEST(DoctorProcess, ForProgramsItIsJson) {
  const TestMesh mesh(1);
  const ShellOutcome seen = run_tutti(doctor_of(mesh.host(0)) + "--json");
  EXPECT_TRUE(seen.out.starts_with(R"({"checks":[{"subject":"settings","grade":"OK",)"))
      << seen.out;
}

// A job whose ranks run operations until they are asked to end.
Trainer::Body busy(const Gate& end) {
  return [&end](const RankContext& context) {
    Group group = context.join();
    write_line("joined");
    for (bool more = true; more;) {
      std::vector<int32_t> stop = {0};
      if (group.rank() == 0 && end.is_open()) stop[0] = 1;
      group.all_reduce(std::span(stop), max);
      more = stop[0] == 0;
    }
    group.leave();
  };
}

TEST(TopProcess, WithoutATerminalItIsOneTableOfRates) {
  const TestMesh mesh(1);
  const Gate end;
  std::vector<Trainer> trainers = mesh.start("busy", {2}, busy(end));
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "joined");
  const ShellOutcome seen = run_tutti("top --address '" + mesh.host(0).address + "'");
  end.open_for(1);
  EXPECT_EQ(TestMesh::wait(trainers), "");
  EXPECT_EQ(seen.code, 0);
  EXPECT_THAT(seen.out, ::testing::ContainsRegex("busy +[0-9]+ +running +2 of 2 +[1-9]"));
  EXPECT_THAT(seen.out,
              ::testing::ContainsRegex("busy +1 +a +[0-9]+ +joined +[1-9][0-9.]* +[1-9]"));
  EXPECT_THAT(seen.out, Not(HasSubstr("\x1b")));
}

TEST(TopProcess, OnATerminalItDrawsUntilInterruptedAndRestoresTheScreen) {
  const TestMesh mesh(1);
  winsize size{.ws_row = 20, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  const std::string program = program_directory() / "tutti";
  const std::string address = mesh.host(0).address;
  if (pid == 0) {
    execl(program.c_str(), "tutti", "top", "--address", address.c_str(), nullptr);
    _exit(126);
  }
  std::string shown;
  char byte = 0;
  while (shown.find("no jobs") == std::string::npos && read(terminal, &byte, 1) == 1) shown += byte;
  kill(pid, SIGINT);
  while (read(terminal, &byte, 1) == 1) shown += byte;
  int status = 0;
  waitpid(pid, &status, 0);
  close(terminal);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(shown.starts_with("\x1b[?1049h\x1b[?25l")) << shown;
  EXPECT_TRUE(shown.ends_with("\x1b[?25h\x1b[?1049l")) << shown;
}

TEST(PlanProcess, PredictsABarrierWithoutBytes) {
  const ShellOutcome planned = run_tutti("plan --op barrier --bytes 1G --hosts 2 --json");
  EXPECT_EQ(planned.code, 0) << planned.out;
  EXPECT_THAT(planned.out, HasSubstr(R"("op":"barrier","bytes":0,)"));
}

}  // namespace
}  // namespace tutti::testing
