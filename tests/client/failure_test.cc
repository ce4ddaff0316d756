// Failures through the C ABI: their codes, messages and culprits, and that they come in time.
#include <poll.h>
#include <sys/wait.h>

#include <semaphore>

#include "daemon/base/framing.h"
#include "tests/client/fixture.h"
#include "tests/session/trainer.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string last_message() { return tutti_last_error()->message; }

// Joins with options and environment variables, which each test sets.
class JoinTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"TUTTI_SOCKET", "TUTTI_JOB", "TUTTI_TOKEN", "TUTTI_RANK",
                             "TUTTI_WORLD_SIZE", "TUTTI_TIMEOUT", "TUTTI_REPRODUCIBLE"})
      unsetenv(name);
  }
  void expect_refused(tutti_code code, const std::string& words) const {
    tutti_group* group = nullptr;
    EXPECT_EQ(tutti_join(&options, &group), code) << words;
    EXPECT_EQ(group, nullptr);
    EXPECT_EQ(tutti_last_error()->code, code);
    EXPECT_THAT(last_message(), HasSubstr(words));
  }

  std::string path = ::testing::TempDir() + "join_" + std::to_string(getpid()) + ".sock";
  tutti_join_options options = tutti_join_defaults();
};

TEST_F(JoinTest, NamesWhatIsMissing) {
  expect_refused(TUTTI_INVALID_ARGUMENT, "TUTTI_RANK");
  options.rank = 1;
  expect_refused(TUTTI_INVALID_ARGUMENT, "TUTTI_WORLD_SIZE");
  options.world_size = 4;
  expect_refused(TUTTI_INVALID_ARGUMENT, "TUTTI_JOB");
  options.job = "demo";
  options.rank = 4;
  expect_refused(TUTTI_INVALID_ARGUMENT, "rank 4 is out of range");
  options.rank = 0;
  options.timeout_ms = 0;
  expect_refused(TUTTI_INVALID_ARGUMENT, "timeout must be > 0");
}

TEST_F(JoinTest, RefusesNonsenseInTheEnvironment) {
  setenv("TUTTI_RANK", "one", 1);
  expect_refused(TUTTI_INVALID_ARGUMENT, "TUTTI_RANK='one'");
  setenv("TUTTI_RANK", "1", 1);
  setenv("TUTTI_WORLD_SIZE", "-2", 1);
  expect_refused(TUTTI_INVALID_ARGUMENT, "TUTTI_WORLD_SIZE='-2'");
  setenv("TUTTI_WORLD_SIZE", "2", 1);
  for (const char* timeout : {"soon", "", "0", "-1", "nan", "1e30"}) {
    setenv("TUTTI_TIMEOUT", timeout, 1);
    expect_refused(TUTTI_INVALID_ARGUMENT, "TUTTI_TIMEOUT=");
  }
  unsetenv("TUTTI_TIMEOUT");
  for (const char* name : {"TUTTI_REPRODUCIBLE", "TUTTI_VERIFY"}) {
    for (const char* choice : {"yes", "2", ""}) {
      setenv(name, choice, 1);
      expect_refused(TUTTI_INVALID_ARGUMENT, std::string(name) + "='" + choice + "'");
    }
    unsetenv(name);
  }
}

TEST_F(JoinTest, SaysHowToStartAnAgent) {
  setenv("TUTTI_SOCKET", path.c_str(), 1);
  options.job = "demo";
  options.rank = 0;
  options.world_size = 1;
  expect_refused(TUTTI_UNAVAILABLE, "no agent at " + path);
  expect_refused(TUTTI_UNAVAILABLE, "start one with: tuttid --socket " + path);
}

TEST_F(JoinTest, TakesEverythingFromTheEnvironment) {
  FakeJob job(path, 1);
  setenv("TUTTI_SOCKET", path.c_str(), 1);
  setenv("TUTTI_JOB", "demo", 1);
  setenv("TUTTI_RANK", "0", 1);
  setenv("TUTTI_WORLD_SIZE", "1", 1);
  setenv("TUTTI_TIMEOUT", "12.5", 1);
  tutti_group* group = nullptr;
  ASSERT_EQ(tutti_join(nullptr, &group), TUTTI_OK) << last_message();
  EXPECT_EQ(tutti_world_size(group), 1);
  tutti_group_free(group);
}

TEST_F(JoinTest, PassesOnTheAgentsRefusal) {
  FakeJob job(path, 2);
  options.socket = path.c_str();
  options.job = "demo";
  options.rank = 0;
  options.world_size = 2;
  options.token = "wrong";
  expect_refused(TUTTI_UNAUTHENTICATED, "wrong token");
  EXPECT_EQ(tutti_last_error()->rank, -1);
}

// Accepts one connection, reads the Hello and answers with `bytes`.
void answer_with(const Fd& listener, const std::string& bytes) {
  pollfd ready{listener.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 30'000), 1);
  const Fd trainer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::array<char, 256> hello{};
  EXPECT_GT(recv(trainer.get(), hello.data(), hello.size(), 0), 0);
  EXPECT_EQ(send(trainer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST_F(JoinTest, RefusesWrongAnswers) {
  v1::Welcome other_version;
  other_version.set_version(kProtocolVersion + 1);
  v1::Welcome no_segment;
  no_segment.set_version(kProtocolVersion);
  no_segment.add_hosts("a");
  const std::vector<std::tuple<std::string, tutti_code, std::string>> answers = {
      {"", TUTTI_UNAVAILABLE, "or the job's worker, has ended; join again"},
      {"HTTP/1.1 400 Bad Request\r\n", TUTTI_INTERNAL, "no Tutti agent"},
      {std::string(4, '\0'), TUTTI_INTERNAL, "no Tutti agent"},
      {std::string("\x03\0\0\0\x0a\x7f\x01", 7), TUTTI_INTERNAL, "no Tutti agent"},
      {framed(other_version.SerializeAsString()), TUTTI_FAILED_PRECONDITION,
       "install the same version"},
      {framed(no_segment.SerializeAsString()), TUTTI_INTERNAL, "sent no segment"},
  };
  Result<Fd> listener = listen_unix(path, SOCK_STREAM, 0600);
  ASSERT_TRUE(listener.ok());
  options.socket = path.c_str();
  options.job = "demo";
  options.rank = 0;
  options.world_size = 1;
  const int descriptors = open_descriptors();
  for (const auto& [bytes, code, words] : answers) {
    const int joins = bytes.empty() ? 4 : 1;  // Without an answer the library joins again.
    std::thread agent([&] {
      for (int i = 0; i < joins; ++i) answer_with(*listener, bytes);
    });
    expect_refused(code, words);
    agent.join();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

using ClientFailureTest = ClientTest;

// The second of two trainers with the same rank is refused.
TEST_F(ClientFailureTest, RankTakenIsRefusedWithTheCulprit) {
  std::counting_semaphore<2> returned{0};
  std::array<tutti_code, 2> codes{};
  std::array<int, 2> culprits{};
  std::vector<std::thread> trainers;
  for (size_t i = 0; i < 2; ++i)
    trainers.emplace_back([&, i] {
      tutti_group* group = nullptr;
      codes[i] = join(0, &group);
      culprits[i] = tutti_last_error()->rank;
      returned.release();
    });
  returned.acquire();
  job.kill();
  for (std::thread& trainer : trainers) trainer.join();
  const size_t refused = codes[0] == TUTTI_ALREADY_EXISTS ? 0 : 1;
  EXPECT_EQ(codes[refused], TUTTI_ALREADY_EXISTS);
  EXPECT_EQ(culprits[refused], 0);
  EXPECT_EQ(codes[1 - refused], TUTTI_UNAVAILABLE) << "the worker was killed while it joined";
}

TEST_F(ClientFailureTest, FailureCarriesCodeWordsAndCulprit) {
  join_all();
  each([&](int rank) {
    std::vector<float> x(kFailingCount);
    EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), x.size(), TUTTI_F32, TUTTI_SUM,
                               nullptr, nullptr),
              TUTTI_FAILED_PRECONDITION);
    EXPECT_EQ(tutti_last_error()->code, TUTTI_FAILED_PRECONDITION);
    EXPECT_EQ(last_message(), "ranks disagree");
    EXPECT_EQ(tutti_last_error()->rank, 1);
    EXPECT_STREQ(tutti_last_error()->host, "b");
    EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK) << "the group goes on";
  });
}

TEST_F(ClientFailureTest, MeanOfIntegersFailsForAll) {
  join_all();
  each([&](int rank) {
    std::array<int32_t, 4> x{};
    EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), 4, TUTTI_I32, TUTTI_MEAN, nullptr,
                               nullptr),
              TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(last_message(), HasSubstr("use SUM and divide"));
  });
}

// A refused call keeps its place in the order. Otherwise rank 0's next call would be matched with
// the other ranks' current one.
TEST_F(ClientFailureTest, ACallRefusedInTheLibraryFailsForAllAtOnce) {
  join_all();
  float x = 1;
  struct Case {
    const char* strategy;
    const void* in;
    size_t count;
    tutti_code code;
    const char* words;
  };
  const std::vector<Case> cases = {
      {"tree:0", &x, 1, TUTTI_INVALID_ARGUMENT, "arity must be >= 1"},
      {"star", &x, 1, TUTTI_INVALID_ARGUMENT, "unknown strategy 'star'"},
      {nullptr, nullptr, 1, TUTTI_INVALID_ARGUMENT, "a buffer is NULL"},
      {nullptr, &x, ~size_t{0} / 2, TUTTI_INVALID_ARGUMENT, "more than any memory holds"},
      {nullptr, &x, size_t{1} << 40, TUTTI_RESOURCE_EXHAUSTED, "segment_bytes"}};
  for (const Case& c : cases) {
    each([&](int rank) {
      float y = 1;
      tutti_options options = tutti_defaults();
      if (rank == 0) options.strategy = c.strategy;
      const tutti_code code =
          tutti_all_reduce(group(rank), rank == 0 ? c.in : &y, &y, rank == 0 ? c.count : 1,
                           TUTTI_F32, TUTTI_SUM, &options, nullptr);
      EXPECT_EQ(code, c.code);
      EXPECT_THAT(last_message(), HasSubstr(c.words));
      if (rank == 0) return;
      EXPECT_THAT(last_message(), HasSubstr("rank 0 (host a, pid "));
      EXPECT_EQ(tutti_last_error()->rank, 0);
    });
    each([&](int rank) {  // The next calls of all ranks meet.
      float y = static_cast<float>(rank);
      EXPECT_EQ(tutti_all_reduce(group(rank), &y, &y, 1, TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
                TUTTI_OK);
      EXPECT_EQ(y, 0 + 1 + 2);
    });
  }
}

TEST_F(ClientFailureTest, MistakesOutsideOfCollectivesDoNotAffectOthers) {
  join_all();
  const std::array<uint32_t, 2> others = {1, 2};
  tutti_group* subgroup = nullptr;
  EXPECT_EQ(tutti_subgroup(group(0), others.data(), 2, &subgroup), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(tutti_barrier(nullptr, nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(tutti_alloc(group(0), size_t{1} << 40), nullptr);
  each([&](int rank) { EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK); });
}

TEST_F(ClientFailureTest, OperationEndsAtItsDeadline) {
  join_all();
  tutti_options options = tutti_defaults();
  options.timeout_ms = 50;
  EXPECT_EQ(tutti_barrier(group(0), &options, nullptr), TUTTI_DEADLINE_EXCEEDED);
  EXPECT_EQ(last_message(), "not all ranks came in time");
}

TEST_F(ClientFailureTest, ADeadWorkerIsDetectedAtOnce) {
  join_all();
  tutti_work* work = nullptr;
  ASSERT_EQ(tutti_barrier(group(0), nullptr, &work), TUTTI_OK);
  const TimePoint start = Clock::now();
  job.kill();
  EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_THAT(last_message(), HasSubstr("the worker of job 'demo' on host "));
  EXPECT_STREQ(tutti_last_error()->host, "a");
  EXPECT_EQ(tutti_work_done(work), 1);
  tutti_work_free(work);
  EXPECT_EQ(tutti_barrier(group(0), nullptr, nullptr), TUTTI_UNAVAILABLE);
  EXPECT_EQ(tutti_barrier(group(1), nullptr, nullptr), TUTTI_UNAVAILABLE);
}

TEST_F(ClientFailureTest, CallsAfterTheWorkersDeathFailWithoutDelay) {
  join_all();
  job.kill();
  EXPECT_EQ(tutti_barrier(group(0), nullptr, nullptr), TUTTI_UNAVAILABLE);
  const TimePoint start = Clock::now();
  for (int call = 0; call < 100; ++call)
    EXPECT_EQ(tutti_barrier(group(0), nullptr, nullptr), TUTTI_UNAVAILABLE);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST_F(ClientFailureTest, ResultsFromBeforeTheWorkersDeathAreKept) {
  join_all();
  float x = 1;
  tutti_work* work = nullptr;
  ASSERT_EQ(tutti_all_reduce(group(0), &x, &x, 1, TUTTI_F32, TUTTI_SUM, nullptr, &work), TUTTI_OK);
  each([&](int rank) {
    if (rank == 0) return;
    float y = 1;
    EXPECT_EQ(tutti_all_reduce(group(rank), &y, &y, 1, TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
              TUTTI_OK);
  });
  job.kill();
  EXPECT_EQ(tutti_barrier(group(0), nullptr, nullptr), TUTTI_UNAVAILABLE);
  EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_OK);
  EXPECT_EQ(x, 3);
  tutti_work_free(work);
}

TEST_F(ClientFailureTest, AWorkerThatNeverAnswersIsGivenUp) {
  join_all();
  void* staged = tutti_alloc(group(0), kForgottenCount * sizeof(float));
  tutti_free(group(0), staged);  // The next allocation of this size gets it.
  tutti_options options = tutti_defaults();
  options.timeout_ms = 1;
  std::vector<float> x(kForgottenCount);
  EXPECT_EQ(tutti_all_reduce(group(0), x.data(), x.data(), x.size(), TUTTI_F32, TUTTI_SUM, &options,
                             nullptr),
            TUTTI_DEADLINE_EXCEEDED);
  EXPECT_THAT(last_message(), HasSubstr("does not answer"));
  EXPECT_NE(tutti_alloc(group(0), kForgottenCount * sizeof(float)), staged)
      << "a worker that is late may still write there";
}

// It looks at the board, so it lives, and knows who is to blame.
TEST_F(ClientFailureTest, AWorkerThatHasNoCoreForAWhileIsWaitedFor) {
  join_all();
  tutti_options options = tutti_defaults();
  options.timeout_ms = 1;
  std::vector<float> x(kBusyCount);
  EXPECT_EQ(tutti_all_reduce(group(0), x.data(), x.data(), x.size(), TUTTI_F32, TUTTI_SUM, &options,
                             nullptr),
            TUTTI_DEADLINE_EXCEEDED);
  EXPECT_THAT(last_message(), HasSubstr("not all ranks came in time"));
}

TEST_F(ClientFailureTest, LeavingTellsTheOthers) {
  join_all();
  tutti_work* mine = nullptr;
  tutti_work* other = nullptr;
  ASSERT_EQ(tutti_barrier(group(0), nullptr, &mine), TUTTI_OK);
  ASSERT_EQ(tutti_barrier(group(1), nullptr, &other), TUTTI_OK);
  auto* kept = static_cast<float*>(tutti_alloc(group(0), 64));
  EXPECT_EQ(tutti_leave(group(0)), TUTTI_OK);
  EXPECT_EQ(tutti_leave(group(0)), TUTTI_FAILED_PRECONDITION);
  EXPECT_EQ(tutti_work_wait(mine, -1), TUTTI_CANCELLED);
  EXPECT_EQ(tutti_work_wait(other, -1), TUTTI_UNAVAILABLE);
  EXPECT_EQ(last_message(), "a rank left");
  EXPECT_EQ(tutti_last_error()->rank, 0);
  EXPECT_EQ(tutti_barrier(group(0), nullptr, nullptr), TUTTI_FAILED_PRECONDITION);
  kept[3] = 4;  // Still mapped.
  tutti_work_free(mine);
  tutti_work_free(other);
}

TEST_F(ClientFailureTest, ForkedChildDoesNoHarm) {
  join_all();
  void* memory = tutti_alloc(group(0), 4096);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = tutti_barrier(group(0), nullptr, nullptr) == TUTTI_FAILED_PRECONDITION;
    tutti_free(group(0), memory);
    for (tutti_group* group : groups) tutti_group_free(group);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  each([&](int rank) { EXPECT_EQ(tutti_barrier(group(rank), nullptr, nullptr), TUTTI_OK); });
}

// The fake worker closes its ends a little later.
TEST_F(ClientFailureTest, NoDescriptorLeaks) {
  const int before = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    join_all();
    each([&](int rank) {
      std::vector<float> x = input(rank, 100);
      EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), 100, TUTTI_F32, TUTTI_SUM,
                                 nullptr, nullptr),
                TUTTI_OK);
    });
    for (tutti_group*& group : groups) tutti_group_free(std::exchange(group, nullptr));
  }
  tutti::await([&] { return open_descriptors() <= before; });
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tutti
