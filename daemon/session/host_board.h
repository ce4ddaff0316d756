// The worker's side of the board (proto/board.h): takes over what the ranks of this host do not
// settle among themselves, folds what none of them waits for, and ends what its rules say.
//
// On the loop's thread. Nothing read from the board is trusted: a wrong word costs its job the
// right answer, and nobody else anything.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/board/board.h"
#include "daemon/session/mapping.h"

namespace tutti {

class HostBoard {
 public:
  // Of one procedure that the worker runs.
  static constexpr int kStepsMax = 10'000;

  // A rank's session.
  class Seat {
   public:
    virtual ~Seat() = default;
    // A called request, which waited so long. Once, in the order of the rank's calls of the group.
    virtual void take(uint32_t group, uint64_t number, GroupPlace place, const Request& request,
                      uint32_t waited_ms) = 0;
    // Some rank's window has more of that operation's tensor.
    virtual void fill(uint32_t group, uint64_t number) = 0;
    virtual void handle_subgroup_request(const BoardSubgroupRequest& subgroup) = 0;
    virtual std::string who() const = 0;  // "rank 3 (host a, pid 7)".
    virtual Status blame(Code code, const std::string& what) const = 0;
    // This rank may write to the others' memory when it goes on: nothing more can be done here.
    virtual void end_epoch(const Status& why) = 0;
  };

  static Result<std::shared_ptr<HostBoard>> make(Loop& loop, std::span<const uint32_t> ranks,
                                                 uint32_t world_size);
  HostBoard(Loop& loop, std::byte* base, Fd memory, std::span<const uint32_t> ranks);
  HostBoard(const HostBoard&) = delete;
  HostBoard& operator=(const HostBoard&) = delete;
  ~HostBoard();

  // Before anybody is welcomed. `segment`: the rank's memory.
  void attach(uint32_t seat, Seat& session, Fd segment, std::shared_ptr<const Mapping> mapping);
  // What a trainer needs: the board's memory and everybody's segment, by seat. Borrowed.
  std::vector<int> descriptors() const;
  // Once for each rank that has them; then the descriptors are closed.
  void handed_out();
  // Of a rank that ended before it could be welcomed.
  Status attach_nobody(uint32_t seat);
  // The seat is not called again.
  void detach(uint32_t seat);

  // A group with these ranks of the job, in its order. The area is the answer to those who made it.
  Result<uint32_t> open(uint32_t group, std::span<const uint32_t> ranks);
  // Looks at what the ranks have called.
  void collect();
  // The rank takes no further part: what waits for it is taken over, what it left half done fails
  // with `why`. Its seat is not called again.
  void leave(uint32_t seat, const Status& why);
  void set_ranks_decide(bool let);
  void complete(uint32_t group, uint64_t number, const Status& status);
  // Before any rank is welcomed. See BoardHeader.
  void set_window(uint64_t bytes) { view_.header().window_bytes = window_bytes_ = bytes; }
  uint64_t window_bytes() const { return window_bytes_; }
  // Bytes of its tensor that the rank has brought to its window; any number, where it lies.
  uint64_t filled(uint32_t group, uint64_t number, uint32_t seat);
  void release_window(uint32_t group, uint64_t number, uint64_t bytes);
  // Hands on what the ranks have asked for of it, called or not.
  void collect_requests(uint32_t group, uint64_t number);
  bool let_ranks_fold(uint32_t group, uint64_t number);
  // All ranks of the group are on this host.
  bool is_local(uint32_t group) const;
  BoardCounters& counters(uint32_t seat) const { return view_.counters(seat); }
  void answer(uint32_t seat, const Result<uint32_t>& group, const std::vector<uint32_t>& ranks);

 private:
  class Host;
  using Memory = board::SlotMemory<Host>;

  // A group with members on this host.
  struct Group {
    uint32_t number = 0;
    uint32_t size = 0;
    std::vector<uint32_t> seats;   // Of the members here, by their order in the group.
    std::vector<uint32_t> places;  // Their ranks in the group.
    board::GroupArea group_area;
    // By member: all its requests below this number are handed on, or need not be.
    std::vector<uint64_t> next;
    // By slot: the operation that was handed on and has not ended; kNone: none.
    static constexpr uint64_t kNone = UINT64_MAX;
    std::vector<uint64_t> taken = std::vector<uint64_t>(kBoardSlots, kNone);
  };
  // An operation of a group at one moment.
  struct Found {
    Group* group = nullptr;
    uint64_t number = 0;
    board::SlotWord word;
    uint32_t turn() const { return word.turn; }
  };
  // An operation that nobody waits for, as its ranks asked for it.
  struct Helped {
    uint64_t number = 0;
    board::MatchedOp op;
  };
  using Place = std::pair<uint32_t, uint32_t>;  // Area and slot.
  // An operation past its deadline that waits for those who still fold.
  struct Overdue {
    Found found;
    uint32_t culprit = 0;
    Status why;
    TimePoint until;
  };

  BoardEntry& entry(const Found& found, uint32_t seat) const {
    return found.group->group_area.area.entry(found.number, seat);
  }
  bool is_here(uint32_t seat) const { return seats_[seat] != nullptr; }
  std::optional<Found> find(uint32_t group, uint64_t number);
  Found look(Group& group, uint32_t slot) const;
  template <class Procedure>
  Procedure run(const Found& found, Procedure procedure);
  void collect_mail();
  void collect_later();
  void collect_area(uint32_t area);
  void attend(const Found& found);
  void tell_filled(const Found& found);
  bool is_staged(const Found& found, uint32_t seat) const;
  void give_up_windows(uint32_t seat, const Status& why);
  void take(const Found& found);
  void take_end(uint32_t group, uint64_t number);
  void take_from(Group& group, size_t member, uint64_t number);
  bool take_one(Group& group, size_t member, uint64_t number);
  void attend_folding(const Found& found);
  bool match(const Found& found, board::MatchedOp& op) const;
  void help(const Found& found);
  void help_more();
  bool help_once(const Found& found, Helped& helped);
  void call_open(Group& group);
  void update_ranks_decide();
  void review();
  void review_later();
  bool review_slot(const Found& found);
  bool is_folded(const Found& found) const;
  Status fault_of(const Found& found) const;
  bool left_undone(const Found& found, uint32_t seat) const;
  bool others_hold(const Found& found, std::optional<uint32_t> but = {}) const;
  std::optional<uint32_t> culprit_of(const Found& found) const;
  std::optional<uint32_t> overdue_ms(const Found& found) const;
  void check_overdue(const Found& found, uint32_t timeout_ms);
  bool end_overdue();
  bool end(const Found& found, const Status& status);

  Loop& loop_;
  board::View view_;
  Fd memory_;
  const std::vector<uint32_t> ranks_;                     // Of the job, by seat.
  std::vector<Fd> segments_;                              // By seat, until handed out.
  std::vector<std::shared_ptr<const Mapping>> mappings_;  // By seat.
  std::vector<Seat*> seats_;                              // nullptr: gone.
  std::vector<bool> asked_;                               // By seat: its request was handed on.
  std::map<uint32_t, Status> gone_;                       // By seat.
  std::vector<std::unique_ptr<Group>> groups_;            // By area.
  std::map<uint32_t, uint32_t> area_of_;                  // By group number.
  uint64_t window_bytes_ = 0;
  bool ranks_decide_ = true;
  bool over_ = false;  // Some rank stopped half way.
  size_t attached_ = 0;
  size_t handed_out_ = 0;
  bool collecting_ = false;
  bool again_ = false;
  std::vector<Overdue> overdue_;
  std::map<Place, Helped> helped_;  // The worker folds them, in turn.
  Place last_helped_;
  Kernel kernel_ = choose_kernel();
  board::MatchedOp op_;
  Loop::TimerId review_timer_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// The worker arrives nowhere; it looks when the present turn is over.
class HostBoard::Host {
 public:
  board::Decision decide(uint64_t) const { return {}; }
  void ring() const {}
  uint64_t settled_by_all() const { return 0; }
  uint32_t seat() const { return board::kWorkerSeat; }
  Request request() const { return {}; }
  int64_t started_ns() const { return 0; }
};

template <class Procedure>
Procedure HostBoard::run(const Found& found, Procedure procedure) {
  Host host;
  Memory memory(view_, found.group->group_area, found.number, host);
  // A word that changes all the time is left to those who change it.
  for (int step = 0; step < kStepsMax && procedure.step(memory) == board::Step::more; ++step) {
  }
  return procedure;
}

}  // namespace tutti
