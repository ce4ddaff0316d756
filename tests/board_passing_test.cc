// Every interleaving of a rank whose tensor passes through a window and of the worker that uses it:
// no place is filled before its result was taken, no result is taken before it is there, and nobody
// sleeps for ever. Faults put in are found.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <type_traits>
#include <unordered_set>

#include "daemon/board/board.h"

namespace tutti::board {
namespace {

constexpr uint32_t kTurn = 1;
constexpr uint8_t kResult = 0x80;

enum class Fault {
  none,
  feeds_without_a_word,       // The worker is not called.
  looks_before_it_is_filled,  // The rank looks at the word, then says what is ready.
  passes_without_waking,      // The worker does not look who sleeps.
  sleeps_without_a_look,      // The rank does not look again what is passed.
  fills_before_it_takes,      // A place is used again as soon as the worker is through with it.
};

struct Setup {
  uint32_t blocks;
  uint32_t window;
  Fault fault = Fault::none;
};

struct Shared {
  uint64_t word;
  uint64_t passed;
  uint32_t ready;
  bool rung;
  uint8_t places[4];  // The block that lies there, and one; kResult where it is its result.
};

struct Memory {
  Shared& shared;
  Fault fault;

  uint64_t load_word() const { return shared.word; }
  bool exchange_word(uint64_t& seen, uint64_t next) const {
    if (shared.word != seen) {
      seen = shared.word;
      return false;
    }
    shared.word = next;
    return true;
  }
  void store_ready(uint32_t, uint32_t blocks) const { shared.ready = blocks; }
  void store_passed(uint64_t value) const { shared.passed = value; }
  uint64_t load_passed() const {
    return fault == Fault::sleeps_without_a_look ? pack(Count{kTurn, 0}) : shared.passed;
  }
  void mark() const {}
  void ring() const { shared.rung = true; }
};

enum class RankAt : uint8_t { decide, feed, fall, doze, asleep, finished };
enum class WorkerAt : uint8_t { unbegun, idle, look, pass, end, finished };

// Zeroed before use, so that equal states are equal bytes.
struct State {
  Shared shared;
  RankAt rank_at;
  WorkerAt worker_at;
  uint32_t fed;
  uint32_t taken;
  uint32_t done;
  Feeding<Memory> feeding{kTurn, 0, 0, false};
  FallingAsleep<Memory> falling{kTurn, 0};
  Passing<Memory> passing{kTurn, 0};
  Ending<Memory> ending{kTurn, Phase::done};
};
static_assert(std::is_trivially_copyable_v<State>);

class Explorer {
 public:
  explicit Explorer(const Setup& setup) : setup_(setup) {}

  // What went wrong; "": nothing, ever.
  std::string explore() {
    State first;
    std::memset(static_cast<void*>(&first), 0, sizeof first);
    first.shared.word = pack(SlotWord{kTurn, Phase::open, false, 1});
    first.feeding = Feeding<Memory>(kTurn, 0, 0, false);
    first.falling = FallingAsleep<Memory>(kTurn, 0);
    first.passing = Passing<Memory>(kTurn, 0);
    first.ending = Ending<Memory>(kTurn, Phase::done);
    enter(first);
    while (!frontier_.empty() && what_.empty()) {
      const State state = frontier_.front();
      frontier_.pop_front();
      bool any = advance(state, &Explorer::step_rank);
      any |= advance(state, &Explorer::step_worker);
      const bool over = state.rank_at == RankAt::finished;
      if (!any && !over) what_ = "nobody goes on";
    }
    return what_;
  }
  size_t states() const { return seen_.size(); }

 private:
  using Stepper = bool (Explorer::*)(State&);

  bool advance(const State& from, Stepper step) {
    State next;
    std::memcpy(static_cast<void*>(&next), static_cast<const void*>(&from), sizeof next);
    if (!(this->*step)(next)) return false;
    enter(next);
    return true;
  }
  void enter(const State& state) {
    std::string bytes(sizeof state, '\0');
    std::memcpy(bytes.data(), static_cast<const void*>(&state), sizeof state);
    if (!seen_.insert(std::move(bytes)).second) return;
    frontier_.emplace_back();
    std::memcpy(static_cast<void*>(&frontier_.back()), static_cast<const void*>(&state),
                sizeof state);
  }
  void wrong(const std::string& what) {
    if (what_.empty()) what_ = what;
  }

  bool step_rank(State& s) {
    Memory memory{s.shared, setup_.fault};
    switch (s.rank_at) {
      case RankAt::decide:
        decide(s);
        return true;
      case RankAt::feed:
        if (s.feeding.step(memory) == Step::end) s.rank_at = RankAt::decide;
        return true;
      case RankAt::fall:
        if (s.falling.step(memory) == Step::end)
          s.rank_at = s.falling.may_sleep() ? RankAt::doze : RankAt::decide;
        return true;
      case RankAt::doze: {
        const bool same =
            static_cast<uint32_t>(s.falling.word()) == static_cast<uint32_t>(s.shared.word);
        s.rank_at = same ? RankAt::asleep : RankAt::decide;
        return true;
      }
      case RankAt::asleep:
      case RankAt::finished:
        return false;
    }
    return false;
  }

  // As Stage does.
  void decide(State& s) {
    const Count passed = unpack_count(s.shared.passed);
    const bool over = is_over(unpack(s.shared.word).phase);
    const bool eager = setup_.fault == Fault::fills_before_it_takes;
    const uint32_t room = eager ? passed.blocks : s.taken;
    const bool fills = s.fed < setup_.blocks && s.fed < room + setup_.window;
    if (eager && fills) return fill(s);
    if (s.taken < s.fed && (over || s.taken < passed.blocks)) return take(s);
    if (fills) return fill(s);
    s.falling = FallingAsleep<Memory>(kTurn, s.taken);
    s.rank_at = over ? RankAt::finished : RankAt::fall;
    if (over && s.taken != setup_.blocks) wrong("it ended before all was taken");
  }
  void fill(State& s) {
    uint8_t& place = s.shared.places[s.fed % setup_.window];
    if (place != 0) wrong("a place is filled that is in use");
    place = static_cast<uint8_t>(++s.fed);
    const bool tells = setup_.fault != Fault::feeds_without_a_word;
    s.feeding = Feeding<Memory>(kTurn, 0, s.fed, tells);
    s.rank_at = RankAt::feed;
    if (setup_.fault != Fault::looks_before_it_is_filled) return;
    const bool called = unpack(s.shared.word).phase == Phase::called;
    s.feeding = Feeding<Memory>(kTurn, 0, s.fed, false);
    s.shared.rung |= called;
  }
  void take(State& s) {
    uint8_t& place = s.shared.places[s.taken % setup_.window];
    if (place != (static_cast<uint8_t>(s.taken + 1) | kResult)) wrong("no result lies there");
    place = 0;
    ++s.taken;
  }

  bool step_worker(State& s) {
    Memory memory{s.shared, setup_.fault};
    switch (s.worker_at) {
      case WorkerAt::unbegun:
        begin(s);
        return true;
      case WorkerAt::idle:
        if (!s.shared.rung) return false;
        s.shared.rung = false;
        s.worker_at = WorkerAt::look;
        return true;
      case WorkerAt::look:
        use(s);
        return true;
      case WorkerAt::pass:
        if (s.passing.step(memory) == Step::more) return true;
        if (s.passing.wakes() && setup_.fault != Fault::passes_without_waking) wake(s);
        s.worker_at = s.done == setup_.blocks ? WorkerAt::end : WorkerAt::look;
        return true;
      case WorkerAt::end:
        if (s.ending.step(memory) == Step::more) return true;
        if (s.ending.wakes()) wake(s);
        s.worker_at = WorkerAt::finished;
        return true;
      case WorkerAt::finished:
        return false;
    }
    return false;
  }
  // The last member arrives, and calls.
  void begin(State& s) {
    const SlotWord word = unpack(s.shared.word);
    if (word.asleep) wake(s);
    s.shared.word = pack(with_arrival(word, Phase::called));
    s.shared.rung = true;
    s.worker_at = WorkerAt::idle;
  }
  void use(State& s) {
    s.worker_at = WorkerAt::idle;
    if (s.shared.ready == s.done) return;
    uint8_t& place = s.shared.places[s.done % setup_.window];
    if (place != s.done + 1) wrong("the worker finds another block");
    place |= kResult;
    s.passing = Passing<Memory>(kTurn, ++s.done);
    s.worker_at = WorkerAt::pass;
  }
  static void wake(State& s) {
    if (s.rank_at == RankAt::asleep) s.rank_at = RankAt::decide;
  }

  const Setup setup_;
  std::unordered_set<std::string> seen_;
  std::deque<State> frontier_;
  std::string what_;
};

TEST(BoardPassing, EveryInterleavingEndsWithEveryResultTaken) {
  for (const uint32_t window : {1u, 2u, 3u})
    for (uint32_t blocks = 1; blocks <= 6; ++blocks) {
      Explorer explorer({blocks, window});
      EXPECT_EQ(explorer.explore(), "") << blocks << " blocks through " << window;
      EXPECT_GT(explorer.states(), 10u);
    }
}

TEST(BoardPassing, FaultsPutInAreFound) {
  for (const Fault fault :
       {Fault::feeds_without_a_word, Fault::looks_before_it_is_filled, Fault::passes_without_waking,
        Fault::sleeps_without_a_look, Fault::fills_before_it_takes}) {
    Explorer explorer({5, 2, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace tutti::board
