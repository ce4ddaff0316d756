// The ranks' side of the board, each step by itself: what a job does at moments that are too short
// to meet from outside. The worker's side is real sessions.
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "client/calls.h"
#include "tests/session_trainer.h"

namespace tutti::client {
namespace {

using board::Phase;
using ::testing::HasSubstr;

constexpr uint64_t kCount = 2 * kBoardBlockBytes / sizeof(float) + 5;
constexpr uint32_t kBlocks = 3;  // Of kCount floats.

// A rank as the client library has it, and the worker's session with it.
struct Rank {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<Calls> calls;
  RecordedEvents events;
  std::unique_ptr<Session> session;
  float* in = nullptr;
  float* out = nullptr;

  void set_up() {
    calls = std::make_shared<Calls>(*connection, 0, std::vector<uint32_t>{0, 1}, 2);
    connection->add(calls);
    in = reinterpret_cast<float*>(connection->allocate(kCount * sizeof(float)));
    out = reinterpret_cast<float*>(connection->allocate(kCount * sizeof(float)));
  }
  // An all_reduce of so many floats, of which the first is `value` and each one more.
  Outcome arrive(Ticket& ticket, float value, uint64_t count = 1,
                 uint8_t flags = kRequestBlocking) {
    for (uint64_t i = 0; i < count; ++i) in[i] = value + static_cast<float>(i % 100);
    Request request{};
    request.verb = TUTTI_ALL_REDUCE;
    request.flags = flags;
    request.count = count;
    request.in_offset = connection->offset_of(in);
    request.out_offset = connection->offset_of(out);
    request.timeout_ms = timeout_ms;
    return calls->arrive(request, ticket);
  }
  uint32_t timeout_ms = 60'000;
};

// Two ranks of one host that joined through a socket.
class ClientBoardTest : public ::testing::Test {
 protected:
  ClientBoardTest() {
    Result<tutti::Fd> listener = listen_unix(path_, SOCK_STREAM, 0600);
    EXPECT_TRUE(listener.ok());
    std::vector<std::thread> joining;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      joining.emplace_back([this, rank] {
        const JoinTarget target{path_, "job", "", rank, 2, 30'000};
        const Outcome joined = Connection::open(target, ranks_[rank].connection);
        EXPECT_TRUE(joined.ok()) << joined.message;
      });
      admit(listener->get(), ranks_[rank]);  // One after the other.
    }
    serve();
    for (std::thread& one : joining) one.join();
    for (Rank& rank : ranks_) rank.set_up();
  }
  ~ClientBoardTest() override {
    for (Rank& rank : ranks_) rank.calls.reset();
    unlink(path_.c_str());
  }

  Calls& calls(uint32_t rank) { return *ranks_[rank].calls; }
  board::Area area() { return ranks_[0].connection->memory().view().area(0); }
  BoardSlot& slot(uint64_t number) { return area().slot_of(number); }
  board::SlotWord word(uint64_t number) { return board::unpack(slot(number).word.load()); }
  std::vector<uint64_t> taken_of(uint32_t rank) {
    std::vector<uint64_t> numbers;
    for (const OpRequest& request : ranks_[rank].events.requests) numbers.push_back(request.number);
    return numbers;
  }
  // Both arrive with kBlocks blocks to fold.
  void begin_folding(Ticket& a, Ticket& b) {
    ASSERT_TRUE(ranks_[0].arrive(a, 1, kCount).ok());
    ASSERT_TRUE(ranks_[1].arrive(b, 2, kCount).ok());
    ASSERT_EQ(word(a.number).phase, Phase::folding);
  }
  // All blocks are claimed, and so many folded.
  void set_folded(uint64_t number, uint32_t folded) {
    const uint32_t turn = board::turn_of(number);
    slot(number).claimed = pack(board::Count{turn, kBlocks});
    slot(number).folded = pack(board::Count{turn, folded});
  }

  Loop loop_;
  std::array<Rank, 2> ranks_;
  Session& session(uint32_t rank) { return *ranks_[rank].session; }

 private:
  void admit(int listener, Rank& rank) {
    tutti::Fd socket;
    ASSERT_TRUE(turn_until(loop_, [&] {
      socket = tutti::Fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      return socket.valid();
    }));
    bool said = false;
    const auto reader = read_hello(loop_, socket.get(), Clock::now() + Millis(30'000),
                                   [&](const Result<TrainerHello>& hello) { said = hello.ok(); });
    ASSERT_TRUE(turn_until(loop_, [&] { return said; }));
    auto opened = open_session(loop_, socket, uint64_t{8} << 20, rank.events);
    ASSERT_TRUE(opened.ok());
    rank.session = *std::move(opened);
  }
  void serve() {
    Session* const sessions[] = {ranks_[0].session.get(), ranks_[1].session.get()};
    const uint32_t numbers[] = {0, 1};
    EXPECT_TRUE(share_board(loop_, sessions, numbers, 2).ok());
    for (Rank& rank : ranks_) EXPECT_TRUE(rank.session->welcome(1, {"h", "h"}).ok());
  }

  const std::string path_ = ::testing::TempDir() + "client_board_" + std::to_string(getpid());
};

TEST_F(ClientBoardTest, TheLastToArriveFoldsForAll) {
  for (uint64_t number = 0; number < 3 * kBoardSlots; ++number) {
    const auto value = static_cast<float>(number);
    Ticket first;
    Ticket last;
    ASSERT_TRUE(ranks_[number % 2].arrive(first, value).ok());
    ASSERT_EQ(first.number, number);
    ASSERT_EQ(word(number), (board::SlotWord{board::turn_of(number), Phase::open, false, 1}));
    ASSERT_TRUE(ranks_[(number + 1) % 2].arrive(last, 1).ok());
    ASSERT_EQ(word(number), (board::SlotWord{board::turn_of(number), Phase::done, false, 2}));
    ASSERT_EQ(*ranks_[0].out, value + 1);
    ASSERT_EQ(*ranks_[1].out, value + 1);
    ASSERT_TRUE(calls(number % 2).done(first) && calls((number + 1) % 2).done(last));
    ASSERT_TRUE(first.outcome.ok() && last.outcome.ok());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(area().entry(number, rank).holding.load(), 0u);
      ASSERT_EQ(area().settled(rank).load(), number + 1);
    }
  }
  drain(loop_);
  EXPECT_TRUE(ranks_[0].events.requests.empty()) << "the worker had no part in it";
}

TEST_F(ClientBoardTest, WhoComesToACalledOperationComesToTheWorker) {
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  session(0).let_ranks_decide(false);  // Who arrived before is taken over.
  session(0).let_ranks_decide(true);
  EXPECT_EQ(word(0).phase, Phase::called);
  drain(loop_);
  EXPECT_EQ(taken_of(0), std::vector<uint64_t>{0});
  ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  drain(loop_);
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{0});
  session(1).complete(0, 0, unavailable("because", {1, "h"}));
  EXPECT_TRUE(calls(0).done(a) && calls(1).done(b));
  for (const Ticket* ticket : {&a, &b}) {
    EXPECT_EQ(ticket->outcome.code, TUTTI_UNAVAILABLE);
    EXPECT_EQ(ticket->outcome.message, "because");
    EXPECT_EQ(ticket->outcome.rank, 1);
    EXPECT_EQ(ticket->outcome.host, "h");
  }
}

// It comes when there is a verdict already: the same.
TEST_F(ClientBoardTest, WhoComesAfterTheVerdictHearsIt) {
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  session(0).let_ranks_decide(false);
  drain(loop_);
  session(0).complete(0, 0, unavailable("because", {1, "h"}));
  ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
  ASSERT_TRUE(calls(1).done(b) && calls(0).done(a));
  EXPECT_EQ(b.outcome.message, "because");
  EXPECT_EQ(a.outcome.message, "because");
  drain(loop_);
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{});
}

TEST_F(ClientBoardTest, WhereRanksDoNotDecideNobodyFolds) {
  session(0).let_ranks_decide(false);
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  ASSERT_TRUE(ranks_[1].arrive(b, 2).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  EXPECT_FALSE(calls(0).help(0));
  drain(loop_);
  EXPECT_EQ(taken_of(0), std::vector<uint64_t>{0});
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{0});
  ASSERT_TRUE(session(0).fold(0, 0));  // The worker lets them.
  EXPECT_TRUE(calls(1).wait(b, 30'000).ok());
  EXPECT_TRUE(calls(0).done(a));
  EXPECT_EQ(*ranks_[0].out, 3);
  EXPECT_EQ(*ranks_[1].out, 3);
}

TEST_F(ClientBoardTest, RanksThatDisagreeAreTheWorkersBusiness) {
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1, 2).ok());
  ASSERT_TRUE(ranks_[1].arrive(b, 1, 1).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  drain(loop_);
  EXPECT_EQ(taken_of(0), std::vector<uint64_t>{0});
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{0});
  EXPECT_EQ(area().entry(0, 1).holding.load(), 0u);
}

TEST_F(ClientBoardTest, ARankMayBeSoFarAhead) {
  std::vector<std::unique_ptr<Ticket>> tickets;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    tickets.push_back(std::make_unique<Ticket>());
    ASSERT_TRUE(ranks_[0].arrive(*tickets.back(), 1).ok());
  }
  Ticket more;
  std::thread ahead([&] { EXPECT_TRUE(ranks_[0].arrive(more, 1).ok()); });
  Ticket other;
  ASSERT_TRUE(ranks_[1].arrive(other, 1).ok());
  while (!calls(1).done(other)) {
  }
  ahead.join();
  EXPECT_EQ(more.number, kBoardSlots) << "operation 0 is over, for all";
}

// A rank that takes no note of its verdicts keeps the slots: the others wait for it, and are lost
// with its name when their time is up, as a call that gave up would leave its place to the next.
TEST_F(ClientBoardTest, WhoDoesNotSettleIsNamed) {
  std::vector<std::unique_ptr<Ticket>> tickets;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    tickets.push_back(std::make_unique<Ticket>());
    ASSERT_TRUE(ranks_[1].arrive(*tickets.back(), 1).ok());
    Ticket own;
    ASSERT_TRUE(ranks_[0].arrive(own, 1).ok());
    ASSERT_TRUE(calls(0).done(own));
  }
  Ticket more;
  ranks_[0].timeout_ms = 50;
  const Outcome full = ranks_[0].arrive(more, 1);
  EXPECT_EQ(full.code, TUTTI_RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.message, HasSubstr("rank 1 (host h) has not taken note"));
  EXPECT_EQ(ranks_[0].arrive(more, 1).code, TUTTI_RESOURCE_EXHAUSTED) << "it is lost";
}

// ---- Deaths of those who fold ----

TEST_F(ClientBoardTest, WhatADeadRankFoldedIsDone) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  set_folded(0, kBlocks);
  area().entry(0, 1).holding = kBlocks;  // It died before it could say so.
  EXPECT_TRUE(calls(0).done(a));
  EXPECT_TRUE(a.outcome.ok()) << a.outcome.message;
  EXPECT_EQ(word(0).phase, Phase::done);
}

TEST_F(ClientBoardTest, WhatIsNotFoldedIsNotConcluded) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  set_folded(0, kBlocks - 1);
  EXPECT_FALSE(calls(0).done(a)) << "a block is missing";
  slot(0).folded = pack(board::Count{2, kBlocks});
  EXPECT_FALSE(calls(0).done(a)) << "of another turn";
  EXPECT_EQ(word(0).phase, Phase::folding);
  set_folded(0, kBlocks);
  BoardFailure& why = area().failure(0);
  why.number = 0;
  why.code = TUTTI_UNAVAILABLE;
  slot(0).word = pack(board::SlotWord{1, Phase::failed, false, 2});
  EXPECT_TRUE(calls(0).done(a) && calls(1).done(b));
  EXPECT_EQ(a.outcome.code, TUTTI_UNAVAILABLE) << "the worker's verdict stays";
  EXPECT_EQ(b.outcome.code, TUTTI_UNAVAILABLE);
}

TEST_F(ClientBoardTest, SeveralMayConcludeAtOnce) {
  for (uint64_t number = 0; number < 200; ++number) {
    Ticket a;
    Ticket b;
    begin_folding(a, b);
    set_folded(number, kBlocks);
    std::thread other([&] { EXPECT_TRUE(calls(1).done(b)); });
    EXPECT_TRUE(calls(0).done(a));
    other.join();
    ASSERT_TRUE(a.outcome.ok() && b.outcome.ok());
    ASSERT_EQ(word(number).phase, Phase::done);
  }
}

// A rank that was stopped and goes on must not fold what the worker gave up.
TEST_F(ClientBoardTest, WhatWasGivenUpIsNotFolded) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  slot(0).claimed = pack(board::Count{1, board::kNoMoreBlocks});
  EXPECT_FALSE(calls(0).help(0));
  EXPECT_EQ(word(0).phase, Phase::folding);
  slot(0).claimed = pack(board::Count{2, 0});
  EXPECT_FALSE(calls(0).help(0)) << "of another turn";
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 0}));
  EXPECT_EQ(area().entry(0, 0).holding.load(), 0u);
}

TEST_F(ClientBoardTest, HelpersShareTheBlocks) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  EXPECT_TRUE(calls(0).help(0, 1));
  EXPECT_TRUE(calls(1).help(0, 1));
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 2}));
  EXPECT_EQ(word(0).phase, Phase::folding);
  EXPECT_TRUE(calls(0).help(0));
  EXPECT_EQ(word(0).phase, Phase::done);
  EXPECT_FALSE(calls(1).help(0));
  EXPECT_TRUE(calls(0).done(a) && calls(1).done(b));
  for (const Rank& rank : ranks_)
    for (uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(rank.out[i], static_cast<float>(2 * (i % 100) + 3)) << i;
}

}  // namespace
}  // namespace tutti::client
