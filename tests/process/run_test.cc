// The commands of `tutti` as users call them: output, exit codes, and no process or file left
// behind.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/control/admin_client.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_mesh.h"

namespace {

namespace fs = std::filesystem;
using tutti::text_of;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

std::string last_line(const std::string& text) {
  const std::string body = text.substr(0, text.find_last_not_of('\n') + 1);
  return body.substr(body.rfind('\n') + 1);
}

// Returns the text after the first line, which announces the mesh.
std::string after_announcement(const std::string& err) {
  EXPECT_TRUE(err.starts_with("tutti: mesh of ")) << err;
  return err.substr(std::min(err.find('\n'), err.size() - 1) + 1);
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

class CliRun : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(directory_ / "tmp");
    unsetenv("TUTTI_ADDRESS");
    setenv("TUTTI", TUTTI_PROGRAM, 1);
    setenv("TRAINER", TUTTI_TRAINER, 1);
  }

  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(directory_ / "tmp")) << "tutti left its directory behind";
  }

  // Starts the shell command, with a TMPDIR of its own.
  pid_t start(const std::string& line) const {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    setenv("TMPDIR", (directory_ / "tmp").c_str(), 1);
    const std::string redirected = "exec >" + (directory_ / "out").string() + " 2>" +
                                   (directory_ / "err").string() + "\n" + line;
    execl("/bin/sh", "sh", "-c", redirected.c_str(), nullptr);
    _exit(126);
  }

  Outcome wait_for(pid_t pid) const {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            .out = text_of(directory_ / "out"),
            .err = text_of(directory_ / "err")};
  }

  Outcome tutti(const std::string& arguments) const {
    return wait_for(start("exec \"$TUTTI\" " + arguments));
  }

  std::string fifo_path() const { return directory_ / "fifo"; }
  // Opened for writing as well: ranks that write to a fifo without a reader die of SIGPIPE.
  std::fstream open_fifo() const {
    EXPECT_EQ(mkfifo(fifo_path().c_str(), 0600), 0);
    return std::fstream(fifo_path());
  }

  const tutti::TemporaryDirectory directory_;
};

TEST_F(CliRun, RanksAreHostMajorAndKnowTheirPlace) {
  const Outcome run = tutti(
      "run --hosts 2 --per-host 2,1 --job demo -- sh -c 'echo $RANK $TUTTI_RANK $WORLD_SIZE "
      "$TUTTI_WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $TUTTI_HOST $TUTTI_JOB; test -S "
      "$TUTTI_SOCKET'");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(
      sorted_lines(run.out),
      (std::vector<std::string>{"0 0 3 3 0 2 a demo", "1 1 3 3 1 2 a demo", "2 2 3 3 0 1 b demo"}));
  EXPECT_EQ(after_announcement(run.err), "");
}

TEST_F(CliRun, LabelNamesTheRankOfEachLine) {
  const Outcome run = tutti("run --per-host 2 --label -- sh -c 'echo one; printf two >&2'");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(sorted_lines(run.out),
            (std::vector<std::string>{"[0] one", "[0] two", "[1] one", "[1] two"}));
}

TEST_F(CliRun, StandardErrorNamesItsRankWhereThereAreSeveral) {
  const std::string command = "-- sh -c 'echo out; echo Traceback >&2; printf End >&2; exit 3'";
  const Outcome two = tutti("run --per-host 2 --keep-going " + command);
  EXPECT_EQ(sorted_lines(two.out), (std::vector<std::string>{"out", "out"}));
  for (const char* line : {"[0] Traceback\n", "[0] End\n", "[1] Traceback\n", "[1] End\n"})
    EXPECT_EQ(occurrences(two.err, line), 1u) << line << two.err;
  const Outcome one = tutti("run " + command);
  EXPECT_EQ(one.out, "out\n");
  EXPECT_TRUE(after_announcement(one.err).starts_with("Traceback\nEnd")) << one.err;
}

TEST_F(CliRun, TheLibraryLogsWhatItJoinsAndWhyItFailsOnDemand) {
  const std::string command = "run --per-host 2 -- \"$TRAINER\" fail-first 1";
  const Outcome logged = wait_for(start("TUTTI_LOG=debug \"$TUTTI\" " + command));
  for (const char* part :
       {"debug: joins job 'run' (TUTTI_JOB) as rank 0 (TUTTI_RANK) of 2 (TUTTI_WORLD_SIZE) at ",
        " (TUTTI_SOCKET), for 30000 ms (default), without a token\n",
        "info: rank 0 of 2 of job 'run' has joined: host a, epoch 1, 2 ranks here, worker pid ",
        "info: rank 1 of 2 of job 'run' leaves\n", "warn: UNAVAILABLE: rank 1 (host a, pid "})
    EXPECT_EQ(occurrences(logged.err, part), 1u + (std::string(part).starts_with(" (TUTTI_SOCKET")))
        << part << "\n"
        << logged.err;
  const Outcome silent = wait_for(start("exec \"$TUTTI\" " + command));
  EXPECT_EQ(occurrences(silent.err, "tutti["), 0u) << silent.err;
}

TEST_F(CliRun, ATemporaryDirectoryThatIsNoneIsNamed) {
  const Outcome run = wait_for(start("TMPDIR=/nonexistent/x exec \"$TUTTI\" run -- true"));
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("TMPDIR is no directory"), std::string::npos) << run.err;
}

TEST_F(CliRun, RankZeroReadsStandardInput) {
  const Outcome run =
      wait_for(start("echo hello | \"$TUTTI\" run --per-host 2 -- sh -c 'cat | sed s/^/$RANK:/'"));
  EXPECT_EQ(run.out, "0:hello\n") << run.err;
}

TEST_F(CliRun, ExitCodeIsTheFirstFailedRanksAndTheOthersAreEnded) {
  const Outcome run =
      tutti("run --hosts 2 --per-host 2 -- sh -c 'test $RANK = 2 && exit 7; exec sleep 600'");
  EXPECT_EQ(run.code, 7);
  EXPECT_TRUE(after_announcement(run.err).starts_with("tutti: rank 2 (host b, pid ")) << run.err;
  EXPECT_NE(run.err.find(") exited with code 7\n"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("ending the 3 other ranks still running: 0, 1, 3\n"), std::string::npos)
      << run.err;
  EXPECT_EQ(run.err.find("log of host"), std::string::npos) << "nothing to warn of\n" << run.err;
}

TEST_F(CliRun, TheLastLineOfAFailureNamesItsRank) {
  for (const std::string command :
       {"--hosts 2 --per-host 2 -- \"$TRAINER\" crash 2",
        "--hosts 2 --per-host 2 -- \"$TRAINER\" fail-first 2",
        "--hosts 2 --per-host 2 --keep-going -- sh -c 'test $RANK = 2 && exit 7; sleep 1; false'",
        "--hosts 2 --per-host 2 -- sh -c 'test $RANK = 2 && exit 7; exec sleep 600'"}) {
    const Outcome run = tutti("run " + command);
    EXPECT_EQ(run.code, 7) << command;
    const std::string last = last_line(run.err);
    EXPECT_TRUE(last.starts_with("tutti: rank 2 (host b, pid ")) << command << "\n" << run.err;
    EXPECT_TRUE(last.ends_with(") exited with code 7")) << command << "\n" << run.err;
  }
}

TEST_F(CliRun, WarningsAfterAFailureAreOfBeforeTheOthersWereEnded) {
  const Outcome run = tutti("run --hosts 2 --per-host 2 -- \"$TRAINER\" crash 2");
  EXPECT_NE(run.err.find("log of host b:"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(" warning tuttid["), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(": worker["), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find(" info "), std::string::npos) << run.err;
  for (const char* ended : {"rank 0 ", "rank 1 ", "rank 3 "})
    EXPECT_EQ(occurrences(run.err, ended), 0u) << ended << run.err;
}

TEST_F(CliRun, RanksSeeTheGpusThatAreTheirs) {
  const std::string nvml = "TUTTI_NVML_LIBRARY=" TUTTI_FAKE_NVML " FAKE_NVML_GPUS=4 ";
  const auto gpu = [](int index) {
    return "GPU-" + std::to_string(index) + "0000000-1111-2222-3333-444444444444";
  };
  const std::string echo = " -- sh -c 'echo $RANK $CUDA_VISIBLE_DEVICES'";
  const auto run = [&](const std::string& variable, const std::string& options) {
    return wait_for(start("unset CUDA_VISIBLE_DEVICES\n" + nvml + variable +
                          " exec \"$TUTTI\" run " + options));
  };
  const Outcome two = run("", "--hosts 2 --gpus 2" + echo);
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(sorted_lines(two.out),
            (std::vector<std::string>{"0 " + gpu(0) + "," + gpu(1), "1 " + gpu(2) + "," + gpu(3)}));
  const Outcome shared = run("CUDA_VISIBLE_DEVICES=3,1", "--per-host 3 --gpus auto" + echo);
  EXPECT_EQ(sorted_lines(shared.out),
            (std::vector<std::string>{"0 " + gpu(3), "1 " + gpu(1), "2 " + gpu(3)}));
  EXPECT_EQ(run("CUDA_VISIBLE_DEVICES=3", echo).out, "0 3\n") << "without --gpus it is kept";
  const Outcome few = run("", "--per-host 3 --gpus 2" + echo);
  EXPECT_EQ(few.code, 1);
  EXPECT_EQ(few.err,
            "tutti: --gpus 2 needs 6 GPUs for 3 ranks, and there are 4; start fewer ranks, or let "
            "--gpus auto divide what there is\n");
  EXPECT_EQ(run("", "--gpus some" + echo).code, 2);
  EXPECT_EQ(run("", "--gpus ''" + echo).code, 2);
}

// NVML does not tell of XIDs that came before a program asked, but the node's agent knows them.
TEST_F(CliRun, AGpuThatTheNodesAgentHasSeenFailIsNotUsed) {
  const fs::path events = directory_ / "events";
  const tutti::Variable library("TUTTI_NVML_LIBRARY", TUTTI_FAKE_NVML);
  std::optional<tutti::Variable> told(std::in_place, "FAKE_NVML_EVENTS", events);
  const tutti::testing::TestMesh mesh(1);
  std::ofstream(events) << "0 48" << std::endl;
  const std::string address = mesh.host(0).address;
  const auto has_failed = [&] {
    const auto status = tutti::admin_status(address, true, 5'000);
    return status.ok() && status->agents(0).gpus(0).failed();
  };
  while (!has_failed()) sched_yield();
  told.reset();
  const Outcome run = wait_for(start("unset CUDA_VISIBLE_DEVICES\nTUTTI_ADDRESS=" + address +
                                     " exec \"$TUTTI\" run --gpus auto -- sh -c "
                                     "'echo $CUDA_VISIBLE_DEVICES'"));
  EXPECT_EQ(run.out, "GPU-10000000-1111-2222-3333-444444444444\n") << run.err;
}

TEST_F(CliRun, GpusWithoutNvmlAreRefused) {
  const Outcome none = wait_for(start(
      "TUTTI_NVML_LIBRARY=libnvml-that-is-not-there.so exec \"$TUTTI\" run --gpus auto -- true"));
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(none.err.starts_with("tutti: there is no GPU for --gpus: there is no NVML here: "))
      << none.err;
  EXPECT_TRUE(none.err.ends_with("; leave out --gpus to run without\n")) << none.err;
}

// The process of the rank that fails first ends after those of all its victims.
TEST_F(CliRun, FirstFailureInTheJobIsNamedWhicheverProcessEndsFirst) {
  for (const char* mesh : {"--hosts 2 --per-host 2", "--hosts 2 --per-host 1,3", "--per-host 4",
                           "--hosts 2 --per-host 2 --keep-going"})
    for (const char* culprit : {"0", "1", "3"}) {
      const Outcome run =
          tutti("run " + std::string(mesh) + " -- \"$TRAINER\" fail-first " + culprit);
      EXPECT_EQ(run.code, 7) << run.err;
      EXPECT_EQ(occurrences(run.err, "\ntutti: rank "), 1u) << run.err;
      EXPECT_NE(run.err.find("\ntutti: rank " + std::string(culprit) + " (host "),
                std::string::npos)
          << run.err;
      for (const char* victim : {"0", "1", "2", "3"})
        EXPECT_EQ(occurrences(run.err, "[" + std::string(victim) + "] UNAVAILABLE: "),
                  std::string(victim) == culprit ? 0u : 1u)
            << run.err;
    }
}

// A rank may take long to end, for example to upload logs: here longer than the usual grace of 2 s.
TEST_F(CliRun, FirstFailureIsNamedEvenIfItIsSlowToEnd) {
  for (const char* mode : {"fail-late", "all-late"}) {
    const Outcome run =
        tutti("run --hosts 2 --per-host 1,2 -- \"$TRAINER\" " + std::string(mode) + " 2");
    EXPECT_EQ(run.code, 7) << run.err;
    EXPECT_NE(run.err.find("\ntutti: rank 2 (host b, pid "), std::string::npos) << run.err;
  }
}

// Rank 1 leaves on purpose and ends with 0: the failure is that of rank 0.
TEST_F(CliRun, RankThatLeftAndEndsWellIsNotBlamed) {
  const Outcome run = tutti("run --per-host 2 -- \"$TRAINER\" leave-first 1");
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_NE(run.err.find("\ntutti: rank 0 (host a, pid "), std::string::npos) << run.err;
}

TEST_F(CliRun, RankThatIgnoresSignalsIsKilled) {
  const Outcome run = tutti(
      "run --per-host 2 -- sh -c 'test $RANK = 1 && exit 3; trap \"\" TERM INT; while :; do sleep "
      "600; done'");
  EXPECT_EQ(run.code, 3);
}

TEST_F(CliRun, KilledRankGives128PlusItsSignal) {
  const Outcome run = tutti("run --per-host 2 -- sh -c 'test $RANK = 1 && kill -KILL $$; true'");
  EXPECT_EQ(run.code, 128 + SIGKILL);
  EXPECT_NE(run.err.find("was killed by SIGKILL"), std::string::npos) << run.err;
}

// The others run longer than the two seconds after which they would be ended.
TEST_F(CliRun, KeepGoingDoesNotEndTheOthers) {
  const Outcome run = tutti(
      "run --per-host 3 --keep-going --label -- sh -c 'test $RANK = 1 && exit 5; sleep 3; echo "
      "done'");
  EXPECT_EQ(run.code, 5);
  EXPECT_EQ(sorted_lines(run.out), (std::vector<std::string>{"[0] done", "[2] done"}));
}

TEST_F(CliRun, InterruptEndsRanksAndMesh) {
  std::fstream fifo = open_fifo();
  const pid_t pid = start("exec \"$TUTTI\" run --hosts 2 -- sh -c 'echo $$ $PPID >" + fifo_path() +
                          "; exec sleep 600'");
  std::vector<pid_t> ranks(2);
  for (pid_t& rank : ranks) {
    pid_t parent = 0;
    fifo >> rank >> parent;
    EXPECT_EQ(parent, pid);
  }
  kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid).code, 128 + SIGINT);
  for (const pid_t rank : ranks) EXPECT_EQ(kill(rank, 0), -1);
}

// Its agents and ranks end with it; its workers and its folder, which holds a token, by a process
// of its own.
TEST_F(CliRun, ALauncherThatIsKilledLeavesNeitherFolderNorProcess) {
  std::fstream fifo = open_fifo();
  const pid_t pid = start("exec \"$TUTTI\" run --hosts 2 -- sh -c '\"$TRAINER\" sum && echo $$ >" +
                          fifo_path() + "; exec sleep 600'");
  pid_t rank = 0;
  fifo >> rank;
  EXPECT_FALSE(fs::is_empty(directory_ / "tmp"));
  kill(pid, SIGKILL);
  EXPECT_EQ(wait_for(pid).code, 1000 + SIGKILL);
  const auto runs = [&] {
    return std::system(("grep -lsa TMPDIR=" + (directory_ / "tmp").string() +
                        " /proc/[0-9]*/environ | grep -v self >/dev/null")
                           .c_str()) == 0;
  };
  tutti::await([&] { return fs::is_empty(directory_ / "tmp") && !runs(); });
}

// As batch systems set them: for all of a job, and for one rank.
TEST_F(CliRun, RanksRunWhereAddressSpaceOrFilesAreLimited) {
  for (const std::string limits : {"-v 16000000", "-f 6000000", "-v 16000000 -f 6000000"}) {
    const Outcome run = wait_for(start(
        "ulimit " + limits + "; exec \"$TUTTI\" run --hosts 2 --per-host 2 -- \"$TRAINER\" sum"));
    EXPECT_EQ(run.code, 0) << limits << run.err;
    EXPECT_EQ(occurrences(run.out, "right sums\n"), 4u) << limits;
  }
  const Outcome one = tutti(
      "run --per-host 2 -- sh -c 'test $RANK = 1 && ulimit -v 4000000; exec "
      "\"$TRAINER\" sum'");
  EXPECT_EQ(occurrences(one.out, "right sums\n"), 2u) << one.err;
}

TEST_F(CliRun, ALimitThatLeavesNoRoomIsNamedToAllRanks) {
  const Outcome run = tutti(
      "run --hosts 2 --per-host 2 --keep-going -- sh -c 'test $RANK = 1 && ulimit -v 100000; exec "
      "\"$TRAINER\" sum'");
  EXPECT_NE(run.code, 0);
  const std::string told = "] RESOURCE_EXHAUSTED: host a: there is no room";
  EXPECT_EQ(occurrences(run.err, told), 4u) << run.err;
  EXPECT_NE(run.err.find("address space (ulimit -v) of rank 1"), std::string::npos) << run.err;
}

// A rank that writes to a closed pipe itself would be killed by SIGPIPE; one whose output passes
// through `tutti run` is, too, and the run ends as after any other failure.
TEST_F(CliRun, ClosedOutputFailsTheRanksAndLeavesNothing) {
  for (const char* redirected : {"--label -- sh -c '%s' 2>&1", "-- sh -c '%s >&2' 2>&1"}) {
    const std::string pids = directory_ / "pids";
    const std::string code = directory_ / "code";
    std::string command = redirected;
    command.replace(command.find("%s"), 2,
                    "echo $$ >>" + pids + "; while :; do echo line; sleep 0.01; done");
    wait_for(start("{ \"$TUTTI\" run --per-host 2 " + command + "; echo $? >" + code +
                   "; } | head -n 1"));
    EXPECT_EQ(text_of(code), std::to_string(128 + SIGPIPE) + "\n");
    EXPECT_TRUE(fs::is_empty(directory_ / "tmp")) << "tutti left its directory behind";
    for (const std::string& rank : sorted_lines(text_of(pids)))
      EXPECT_EQ(kill(std::stoi(rank), 0), -1) << rank;
  }
}

TEST_F(CliRun, UsageErrorsAreOneLineAndCodeTwo) {
  for (const char* arguments :
       {"bogus", "run", "run --", "run --hosts 0 -- true", "run --hosts two -- true",
        "run --per-host 0 -- true", "run --hosts 2 --per-host 1,2,3 -- true",
        "run --rate 1gbit -- true", "run --netns --rate fast -- true", "run --bogus -- true",
        "bench --op bogus", "bench --dtype f8", "bench --redop xor", "bench --min 8 --max 4",
        "bench --min 0", "bench --strategy tree:0", "bench --redop mean --dtype i32",
        "bench --redop band --dtype f32", "strategy"}) {
    const Outcome run = tutti(arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    EXPECT_TRUE(run.err.starts_with("tutti: ")) << arguments << ": " << run.err;
    EXPECT_EQ(occurrences(run.err, "\n"), 1u) << arguments << ": " << run.err;
  }
}

TEST_F(CliRun, ProgramThatIsNotThere) {
  const Outcome run = tutti("run --per-host 2 -- no-such-program");
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("tutti: cannot run 'no-such-program'"), std::string::npos) << run.err;
}

TEST_F(CliRun, HelpAndVersionAreNoFailures) {
  EXPECT_EQ(tutti("--help").code, 0);
  const std::string help = tutti("run --help").out;
  for (const char* part : {"Examples:", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"})
    EXPECT_NE(help.find(part), std::string::npos) << help;
  EXPECT_TRUE(tutti("version").out.starts_with("tutti "));
  const Outcome bare = tutti("");
  EXPECT_EQ(bare.code, 0);
  EXPECT_EQ(bare.out, tutti("--help").out);
}

TEST_F(CliRun, WhatIsMistypedIsSuggested) {
  EXPECT_EQ(tutti("stauts").err,
            "tutti: there is no command 'stauts'; did you mean 'status'? (see tutti --help)\n");
  EXPECT_EQ(tutti("status --adress x").err,
            "tutti: there is no option '--adress'; did you mean '--address'? (see tutti status "
            "--help)\n");
  EXPECT_EQ(tutti("status --address foo").err,
            "tutti: the address 'foo': expected host:port or unix:PATH\n");
}

TEST_F(CliRun, WithoutAnAgentItSaysHowToStartOne) {
  for (const char* command : {"status", "strategy job ring", "drain", "stop"}) {
    const Outcome run = tutti(std::string(command) + " --address 127.0.0.1:1");
    EXPECT_EQ(run.code, 1) << command;
    EXPECT_NE(run.err.find("tuttid"), std::string::npos) << run.err;
  }
}

TEST_F(CliRun, StatusShowsTheMeshFromInside) {
  const Outcome run = tutti(
      "run --hosts 2 --label -- sh -c 'test $RANK = 1 || \"$TUTTI\" status "
      "--json'");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\"host\":\"a\""), std::string::npos) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"coordinator\":true"), 1u) << run.out;
}

TEST_F(CliRun, StatusShowsTheMeshFromOutsideAsAnnounced) {
  std::fstream fifo = open_fifo();
  const pid_t pid = start("exec \"$TUTTI\" run --hosts 2 --per-host 1,2 -- sh -c 'echo >" +
                          fifo_path() + "; exec sleep 600'");
  fifo.get();
  const std::string line = text_of(directory_ / "err");
  const std::string before = "tutti: mesh of 2 hosts, 3 ranks (1,2); tutti status --address ";
  EXPECT_TRUE(line.starts_with(before)) << line;
  const std::string asked = (directory_ / "status").string();
  const std::string address = line.substr(std::min(before.size(), line.size()));
  const std::string command =
      "\"$TUTTI\" status --json >" + asked + " --address " + address;  // Its line ends there.
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(occurrences(text_of(asked), "\"state\":\"serving\""), 2u) << text_of(asked);
  kill(pid, SIGINT);
  EXPECT_EQ(wait_for(pid).code, 128 + SIGINT);
}

// Rank 0 listens there, the others connect.
TEST_F(CliRun, RanksMeetAtTheMastersPortAsRoot) {
  const std::string command = " --hosts 2 --per-host 2 -- \"$TRAINER\" meet";
  const Outcome run = tutti("run" + command);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "3 came to 127.0.0.1\n") << run.err;
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const Outcome apart = tutti("run --netns" + command);
  EXPECT_EQ(apart.code, 0) << apart.err;
  EXPECT_EQ(apart.out, "3 came to 10.77.0.1\n") << apart.err;
}

TEST_F(CliRun, DrainAndStopReachTheAgent) {
  const Outcome run = tutti(
      "run -- sh -c '\"$TUTTI\" drain && \"$TUTTI\" status && \"$TUTTI\" drain --undo && "
      "\"$TUTTI\" status && \"$TUTTI\" stop'");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(occurrences(run.out, "draining"), 1u) << run.out;
  EXPECT_EQ(occurrences(run.out, "serving"), 1u) << run.out;
}

TEST_F(CliRun, BenchMeasuresAndVerifies) {
  const Outcome run = tutti(
      "bench --hosts 2 --per-host 2 --op all --strategy ring,centralized+tree:2 --min 64K --max "
      "64K --iters 3 --json");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(occurrences(run.out, "\"wrong\":0,"), 18u) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"strategy\":\"centralized,tree:2\""), 9u) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"transport\":\"tcp\",\"hosts\":2,\"per_host\":2"), 18u);
  EXPECT_EQ(occurrences(run.out, "\"bytes\":65536,"), 16u) << run.out;
}

TEST_F(CliRun, BenchForPeople) {
  for (const char* buffers : {"--zero-copy", "--staged"}) {
    const Outcome run = tutti(
        "bench --min 4 --max 64K --factor 128 --dtype bf16 --redop mean "
        "--iters 3 " +
        std::string(buffers));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.out.find("# all_reduce, strategy auto, 2 ranks on 1 host,"), std::string::npos);
    EXPECT_EQ(occurrences(run.out, " bf16   mean "), 3u) << run.out;
  }
}

// Over the fake driver.
class CliBenchOnGpus : public CliRun {
 protected:
  Outcome bench(const std::string& environment, const std::string& options) const {
    return wait_for(start("TUTTI_CUDA_DRIVER=" TUTTI_FAKE_CUDA " " + environment +
                          " exec \"$TUTTI\" bench --device cuda " + options));
  }
};

TEST_F(CliBenchOnGpus, EveryCollectiveIsMeasuredAndVerified) {
  const Outcome run =
      bench("", "--hosts 2 --per-host 2 --op all --min 64K --max 64K --iters 3 --json");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(occurrences(run.out, "\"wrong\":0,"), 9u) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"buffers\":\"cuda\""), 9u) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"gpus\":2,\"gpu\":\"Fake GPU\",\"copy_us\":"), 9u) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"copy_us\":0,"), 1u) << "a barrier copies nothing\n" << run.out;
}

TEST_F(CliBenchOnGpus, ForPeople) {
  const Outcome run = bench("FAKE_CUDA_GPUS=3", "--per-host 4 --min 1K --max 1M --factor 32");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("4 ranks on 1 host, buffers on 3 GPUs (Fake GPU)\n"), std::string::npos)
      << run.out;
  EXPECT_EQ(occurrences(run.out, "of copy\n"), 1u) << run.out;
  EXPECT_EQ(occurrences(run.out, " f32    sum "), 3u) << run.out;
}

TEST_F(CliBenchOnGpus, StrategiesInTurn) {
  const Outcome run = bench("", "--compare --strategy ring,centralized --min 1K --max 1K");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(occurrences(run.out, "ring/best"), 1u) << run.out;
}

TEST_F(CliBenchOnGpus, WrongResultsFailIt) {
  const Outcome run = bench("FAKE_CUDA_ERRS=1", "--min 64K --max 64K --iters 3 --json");
  EXPECT_EQ(run.code, 1) << run.out;
  EXPECT_EQ(occurrences(run.out, "\"wrong\":0,"), 0u) << run.out;
  EXPECT_NE(run.err.find("elements of results were wrong"), std::string::npos) << run.err;
}

TEST_F(CliBenchOnGpus, WithoutADriverItSaysWhatToDo) {
  const Outcome run = wait_for(
      start("TUTTI_CUDA_DRIVER=libcuda-that-is-not-there.so exec \"$TUTTI\" bench --device cuda"));
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(run.err.starts_with("tutti: there is no CUDA driver here: libcuda-that-is-not-"))
      << run.err;
  EXPECT_TRUE(run.err.ends_with("or leave out --device cuda to measure on host memory\n"))
      << run.err;
  EXPECT_EQ(bench("", "--staged").code, 2);
  EXPECT_EQ(tutti("bench --device tpu").code, 2);
}

TEST_F(CliRun, HostsHaveNetworksOfTheirOwnAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const Outcome run = tutti(
      "run --hosts 2 --netns --rate 1gbit -- sh -c 'ip -4 -o addr show dev "
      "eth0; echo $TUTTI_ADDRESS'");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("10.77.0.1/24"), std::string::npos) << run.out;
  EXPECT_TRUE(run.err.starts_with("tutti: mesh of 2 hosts x 1 rank; tutti status --address unix:" +
                                  directory_.string()));
  EXPECT_NE(run.out.find("/b/tuttid.sock\n"), std::string::npos) << run.out;
  const Outcome bench = tutti("bench --hosts 2 --per-host 1 --netns --min 64K --max 64K --json");
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_EQ(occurrences(bench.out, "\"wrong\":0,"), 1u) << bench.out;
}

}  // namespace
