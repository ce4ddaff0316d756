#include "daemon/session/host_board.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/session/board_words.h"

namespace tutti {
namespace {

// What the worker folds in one turn of its loop.
constexpr int kHelpBlocks = 8;
// Looks at all that is called, in one turn of the loop.
constexpr int kLooksMax = 4;

// Between two looks at what is folded while a rank is gone.
constexpr Millis kReview{20};
// How long ranks that fold a block of an operation past its deadline are waited for.
constexpr Millis kFolding{300};
// Behind all blocks that are held.
constexpr uint64_t kUnheld = uint64_t{1} << 32;

}  // namespace

Result<std::shared_ptr<HostBoard>> HostBoard::make(Loop& loop, std::span<const uint32_t> ranks,
                                                   uint32_t world_size) {
  const auto seats = static_cast<uint32_t>(ranks.size());
  if (seats > kSeatsMax)
    return resource_exhausted("a job has at most " + std::to_string(kSeatsMax) +
                              " ranks on one host, not " + std::to_string(seats));
  Fd memory(memfd_create("tutti-board", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!memory.valid()) return errno_status("cannot make a board");
  const auto bytes = static_cast<off_t>(board_bytes(seats));
  if (ftruncate(memory.get(), bytes) != 0) return errno_status("cannot size a board");
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_status("cannot seal a board");
  void* base = mmap(nullptr, board_bytes(seats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    memory.get(), 0);
  if (base == MAP_FAILED) return errno_status("cannot map a board");
  auto board =
      std::make_shared<HostBoard>(loop, static_cast<std::byte*>(base), std::move(memory), ranks);
  std::vector<uint32_t> everyone;
  for (uint32_t rank = 0; rank < world_size; ++rank) everyone.push_back(rank);
  if (Result<uint32_t> opened = board->open(0, everyone); !opened.ok()) return opened.status();
  return board;
}

HostBoard::HostBoard(Loop& loop, std::byte* base, Fd memory, std::span<const uint32_t> ranks)
    : loop_(loop),
      view_(base, static_cast<uint32_t>(ranks.size())),
      memory_(std::move(memory)),
      ranks_(ranks.begin(), ranks.end()),
      segments_(ranks.size()),
      mappings_(ranks.size()),
      seats_(ranks.size()),
      asked_(ranks.size()) {
  view_.header().magic = kBoardMagic;
  view_.header().version = kProtocolVersion;
  view_.header().seats = view_.seats();
}

HostBoard::~HostBoard() {
  *alive_ = false;
  loop_.cancel(review_timer_);
  munmap(view_.base(), board_bytes(view_.seats()));
}

void HostBoard::attach(uint32_t seat, Seat& session, Fd segment,
                       std::shared_ptr<const Mapping> mapping) {
  seats_.at(seat) = &session;
  segments_.at(seat) = std::move(segment);
  mappings_.at(seat) = std::move(mapping);
  ++attached_;
}

// The others map something, too, in its place.
Status HostBoard::attach_nobody(uint32_t seat) {
  Result<Segment> segment = make_segment(2 * kArenaOffset);
  if (!segment.ok()) return segment.status();
  segments_.at(seat) = std::move(segment->memory);
  mappings_.at(seat) = std::move(segment->mapping);
  gone_.emplace(seat, unavailable("rank " + std::to_string(ranks_[seat]) + " died while joining"));
  for (const std::unique_ptr<Group>& group : groups_)
    group->group_area.area.settled(seat).store(UINT64_MAX);
  return {};
}

std::vector<int> HostBoard::descriptors() const {
  std::vector<int> all = {memory_.get()};
  for (const Fd& segment : segments_) all.push_back(segment.get());
  return all;
}

void HostBoard::handed_out() {
  if (++handed_out_ < attached_) return;
  memory_.reset();
  segments_.clear();
}

void HostBoard::detach(uint32_t seat) {
  seats_[seat] = nullptr;
  update_ranks_decide();
}

// ---- Groups ----

Result<uint32_t> HostBoard::open(uint32_t number, std::span<const uint32_t> ranks) {
  if (const auto known = area_of_.find(number); known != area_of_.end()) return known->second;
  if (groups_.size() == kAreasMax)
    return resource_exhausted("an epoch has at most " + std::to_string(kAreasMax) + " groups");
  const auto area = static_cast<uint32_t>(groups_.size());
  auto group = std::make_unique<Group>();
  group->number = number;
  group->size = static_cast<uint32_t>(ranks.size());
  for (uint32_t place = 0; place < ranks.size(); ++place) {
    const auto seat = std::ranges::find(ranks_, ranks[place]);
    if (seat == ranks_.end()) continue;
    group->seats.push_back(static_cast<uint32_t>(seat - ranks_.begin()));
    group->places.push_back(place);
    group->next.push_back(0);
  }
  group->group_area = {view_.area(area), area, group->seats};
  for (const auto& [seat, why] : gone_) group->group_area.area.settled(seat).store(UINT64_MAX);
  groups_.push_back(std::move(group));
  area_of_.emplace(number, area);
  update_ranks_decide();
  return area;
}

void HostBoard::answer(uint32_t seat, const Result<uint32_t>& group,
                       const std::vector<uint32_t>& ranks) {
  BoardSubgroupRequest& subgroup = view_.subgroup_request(seat);
  asked_[seat] = false;
  const Result<uint32_t> area = group.ok() ? open(*group, ranks) : group;
  write_failure(subgroup.failure, 0, area.status());
  subgroup.group = group.ok() ? *group : 0;
  subgroup.area = area.ok() ? *area : 0;
  subgroup.state.store(static_cast<uint32_t>(SubgroupRequestState::answered),
                       std::memory_order_release);
  board::wake_all(subgroup.state);
}

std::optional<HostBoard::Found> HostBoard::find(uint32_t group, uint64_t number) {
  const auto area = area_of_.find(group);
  if (area == area_of_.end()) return std::nullopt;
  const Found found = look(*groups_[area->second], static_cast<uint32_t>(number % kBoardSlots));
  return found.number == number ? std::optional(found) : std::nullopt;
}

HostBoard::Found HostBoard::look(Group& group, uint32_t slot) const {
  const board::SlotWord word = board::unpack(group.group_area.area.slot(slot).word.load());
  return {&group, board::number_of(word.turn, slot), word};
}

// ---- Taking over ----

// What one look leads to may call for another; the bits say so.
void HostBoard::collect() {
  again_ = true;
  if (collecting_) return;
  collecting_ = true;
  for (int looks = 0; looks < kLooksMax && std::exchange(again_, false); ++looks) {
    collect_mail();
    take_bits(view_.header().called, [this](uint32_t area) {
      if (area < groups_.size()) collect_area(area);
    });
  }
  collecting_ = false;
  if (again_) collect_later();
}

void HostBoard::collect_later() {
  loop_.post([this, alive = alive_] {
    if (*alive) collect();
  });
}

void HostBoard::collect_mail() {
  for (uint32_t seat = 0; seat < seats_.size(); ++seat) {
    BoardSubgroupRequest& subgroup = view_.subgroup_request(seat);
    if (subgroup.state.load(std::memory_order_acquire) !=
            static_cast<uint32_t>(SubgroupRequestState::asked) ||
        !is_here(seat) || asked_[seat])
      continue;
    asked_[seat] = true;
    seats_[seat]->handle_subgroup_request(subgroup);
  }
}

void HostBoard::collect_area(uint32_t area) {
  Group& group = *groups_[area];
  std::vector<Found> called;
  take_bits(group.group_area.area.header().called,
            [&](uint32_t slot) { called.push_back(look(group, slot)); });
  std::ranges::sort(called, {}, &Found::number);
  for (const Found& found : called) attend(found);
}

void HostBoard::attend(const Found& found) {
  if (found.word.phase == board::Phase::called) {
    take(found);
    tell_filled(found);
  }
  if (found.word.phase == board::Phase::folding) attend_folding(found);
}

bool HostBoard::is_staged(const Found& found, uint32_t seat) const {
  const BoardEntry& at = entry(found, seat);
  return at.arrived.load(std::memory_order_acquire) == found.number + 1 &&
         (board::copy_request(at.request).flags & kRequestStaged) != 0;
}

// Ranks call again when they have filled more of their windows.
void HostBoard::tell_filled(const Found& found) {
  const Group& group = *found.group;
  if (group.taken[found.number % kBoardSlots] != found.number || is_local(group.number)) return;
  for (const uint32_t seat : group.seats)
    if (is_here(seat) && is_staged(found, seat))
      return seats_[seat]->fill(group.number, found.number);
}

uint64_t HostBoard::filled(uint32_t group, uint64_t number, uint32_t seat) {
  const std::optional<Found> found = find(group, number);
  return found ? entry(*found, seat).ready.load() * kBoardBlockBytes : 0;
}

void HostBoard::release_window(uint32_t group, uint64_t number, uint64_t bytes) {
  const std::optional<Found> found = find(group, number);
  if (!found || found->word.phase != board::Phase::called) return;
  const auto blocks = static_cast<uint32_t>(bytes / kBoardBlockBytes);
  if (run(*found, board::ReleaseWindow<Memory>(found->turn(), blocks)).must_wake())
    board::wake_low_half(found->group->group_area.area.slot_of(number).word);
}

// Hands on the members' requests of this operation, and before each what that rank asked for
// earlier: who waits for a newer operation first must not bring it before an older one.
void HostBoard::take(const Found& found) {
  for (size_t member = 0; member < found.group->seats.size(); ++member)
    take_from(*found.group, member, found.number);
}

void HostBoard::take_from(Group& group, size_t member, uint64_t number) {
  uint64_t& next = group.next[member];
  if (number >= kBoardSlots) next = std::max(next, number - kBoardSlots + 1);  // It is one behind.
  while (next <= number && is_here(group.seats[member])) {
    const uint64_t taking = next;
    if (!take_one(group, member, taking)) return;
    next = std::max(next, taking + 1);
  }
}

// False: the rank has not come to it. What its ranks fold, or is over, need not be handed on. A
// session may end, and the operation, while this is done. A slot whose operation was handed on and
// has not ended serves no other, whatever its word says: so what is handed on is bounded.
bool HostBoard::take_one(Group& group, size_t member, uint64_t number) {
  const uint32_t seat = group.seats[member];
  Found found = look(group, static_cast<uint32_t>(number % kBoardSlots));
  if (found.number != number || is_over(found.word.phase)) return true;
  BoardEntry& at = entry(found, seat);
  if (at.arrived.load(std::memory_order_acquire) != number + 1) return false;
  if (found.word.phase == board::Phase::open) {
    run(found, board::CallWorker<Memory>(found.turn()));
    again_ = true;
    found = look(group, static_cast<uint32_t>(number % kBoardSlots));
  }
  if (found.word.phase != board::Phase::called) return true;
  uint64_t& taken = group.taken[number % kBoardSlots];
  if (taken != Group::kNone && taken != number) return true;
  taken = number;
  group.next[member] = number + 1;  // What it is handed to may ask to gather.
  seats_[seat]->take(group.number, number, {group.places[member], group.size},
                     board::copy_request(at.request), waited_ms(at.started_ns.load()));
  return true;
}

void HostBoard::collect_requests(uint32_t group, uint64_t number) {
  if (const std::optional<Found> found = find(group, number)) take(*found);
}

void HostBoard::take_end(uint32_t group, uint64_t number) {
  const auto area = area_of_.find(group);
  if (area == area_of_.end()) return;
  uint64_t& taken = groups_[area->second]->taken[number % kBoardSlots];
  if (taken == number) taken = Group::kNone;
}

void HostBoard::set_ranks_decide(bool let) {
  ranks_decide_ = let;
  update_ranks_decide();
}

// A rank looks at it before and after it arrives: either it sees this, or we see it.
void HostBoard::update_ranks_decide() {
  for (const std::unique_ptr<Group>& group : groups_) {
    const bool all_here = std::ranges::all_of(
        group->seats, [this](uint32_t seat) { return is_here(seat) && !gone_.contains(seat); });
    const bool let = ranks_decide_ && all_here && !over_;
    std::atomic<uint32_t>& word = group->group_area.area.header().ranks_decide;
    const bool before = word.exchange(let ? 1 : 0) != 0;
    if (before && !let) call_open(*group);
  }
}

void HostBoard::call_open(Group& group) {
  for (uint32_t slot = 0; slot < kBoardSlots; ++slot) {
    const Found found = look(group, slot);
    const bool waits = found.word.phase == board::Phase::open && found.word.arrived != 0;
    if (found.turn() != 0 && (waits || found.word.phase == board::Phase::called))
      run(found, board::CallWorker<Memory>(found.turn()));
  }
  collect_later();
}

// ---- Ending ----

// What is folded is folded to its end: outputs must not change after a failure is told.
void HostBoard::complete(uint32_t group, uint64_t number, const Status& status) {
  take_end(group, number);
  const std::optional<Found> found = find(group, number);
  if (found && found->word.phase != board::Phase::folding) end(*found, status);
}

// The failure is there before the word says so. That of an operation that is over stays: some may
// have read it.
bool HostBoard::end(const Found& found, const Status& status) {
  const Found now = look(*found.group, static_cast<uint32_t>(found.number % kBoardSlots));
  if (now.number != found.number || is_over(now.word.phase)) return false;
  if (!status.ok())
    write_failure(found.group->group_area.area.failure(found.number), found.number, status);
  const auto verdict = status.ok() ? board::Phase::done : board::Phase::failed;
  const auto ending = run(found, board::EndOp<Memory>(found.turn(), verdict));
  if (ending.must_wake())
    board::wake_low_half(found.group->group_area.area.slot_of(found.number).word);
  return ending.ended();
}

// ---- Folding ----

bool HostBoard::match(const Found& found, board::MatchedOp& op) const {
  std::vector<board::MemberRequest> asked;
  for (const uint32_t seat : found.group->seats)
    asked.push_back({board::copy_request(entry(found, seat).request),
                     {mappings_[seat]->base(), mappings_[seat]->bytes()}});
  return board::match(asked, op);
}

bool HostBoard::is_local(uint32_t number) const {
  const auto area = area_of_.find(number);
  if (area == area_of_.end()) return false;
  const Group& group = *groups_[area->second];
  return group.size == group.seats.size();
}

bool HostBoard::let_ranks_fold(uint32_t group, uint64_t number) {
  const std::optional<Found> found = find(group, number);
  if (!found || found->group->size != found->group->seats.size()) return false;
  if (found->word.phase != board::Phase::called || !match(*found, op_)) return false;
  for (const auto& [seat, why] : gone_) entry(*found, seat).holding.store(0);
  board::Decision decision = board::decide(op_);
  decision.alone = false;
  const bool waited_for = op_.anyone_waits;
  const auto members = static_cast<uint32_t>(found->group->seats.size());
  const auto resumption =
      run(*found, board::ResumeFolding<Memory>(found->turn(), members, decision));
  if (resumption.must_wake())
    board::wake_low_half(found->group->group_area.area.slot_of(number).word);
  if (!resumption.resumed()) return false;
  take_end(group, number);
  if (!waited_for) help(*found);
  if (!gone_.empty() && review_timer_ == 0) review();
  return true;
}

// What it reads of the requests is read once.
void HostBoard::help(const Found& found) {
  const Place place{found.group->group_area.index,
                    static_cast<uint32_t>(found.number % kBoardSlots)};
  const auto known = helped_.find(place);
  if (known != helped_.end() && known->second.number == found.number) return;
  Helped helped{found.number, {}};
  if (!match(found, helped.op)) return;
  const bool idle = helped_.empty();
  helped_.insert_or_assign(place, std::move(helped));
  if (idle) help_more();
}

// In turns of the loop: it must hear of deaths meanwhile. One operation after the other: none waits
// for another's end.
void HostBoard::help_more() {
  while (!helped_.empty()) {
    auto next = helped_.upper_bound(last_helped_);
    if (next == helped_.end()) next = helped_.begin();
    last_helped_ = next->first;
    if (help_once(look(*groups_[last_helped_.first], last_helped_.second), next->second)) break;
    helped_.erase(next);
  }
  if (helped_.empty()) return;
  loop_.post([this, alive = alive_] {
    if (*alive) help_more();
  });
}

// Folds some blocks. False: there is nothing more to do. How many blocks there are is what the
// requests say, not what shared memory does.
bool HostBoard::help_once(const Found& found, Helped& helped) {
  if (found.word.phase != board::Phase::folding || found.number != helped.number) return false;
  for (int block = 0; block < kHelpBlocks; ++block) {
    const auto claim = run(found, board::ClaimBlock<Memory>(found.turn(), board::kWorkerSeat));
    if (!claim.claimed() || claim.block() >= helped.op.blocks) return false;
    run_block(helped.op, claim.block(), kernel_);
    const auto finish =
        run(found, board::FinishBlock<Memory>(found.turn(), board::kWorkerSeat, claim.blocks()));
    if (finish.must_wake())
      board::wake_low_half(found.group->group_area.area.slot_of(found.number).word);
  }
  return true;
}

// ---- Ranks that die, stop or are late while they fold ----

// What waits for the rank is the worker's from now on. Its own verdicts count as taken note of.
void HostBoard::leave(uint32_t seat, const Status& why) {
  if (!gone_.emplace(seat, why).second) return;
  update_ranks_decide();
  collect();
  give_up_windows(seat, why);
  seats_[seat] = nullptr;
  for (const std::unique_ptr<Group>& group : groups_)
    group->group_area.area.settled(seat).store(UINT64_MAX);
  if (review_timer_ == 0) review();
}

// Of an operation that other hosts wait for the rank's tensor is not all there, and never will be.
void HostBoard::give_up_windows(uint32_t seat, const Status& why) {
  for (const std::unique_ptr<Group>& group : groups_) {
    const bool member = std::ranges::find(group->seats, seat) != group->seats.end();
    for (uint32_t slot = 0; member && slot < kBoardSlots; ++slot) {
      const Found found = look(*group, slot);
      if (found.word.phase != board::Phase::called || group->taken[slot] != found.number ||
          is_local(group->number) || !is_staged(found, seat))
        continue;
      const Request request = board::copy_request(entry(found, seat).request);
      const uint64_t bytes = request.count * size_of(static_cast<Dtype>(request.dtype % kDtypes));
      if (filled(group->number, found.number, seat) < bytes) return seats_[seat]->end_epoch(why);
    }
  }
}

// What the living can finish they do, when they next wait; what the gone left half done fails.
// Outputs must not change after that is told: whoever folds ends first.
void HostBoard::review() {
  review_timer_ = 0;
  bool again = false;
  for (const std::unique_ptr<Group>& group : groups_) {
    const auto touched = [&](const auto& gone) {
      return std::ranges::find(group->seats, gone.first) != group->seats.end();
    };
    if (std::ranges::none_of(gone_, touched)) continue;
    for (uint32_t slot = 0; slot < kBoardSlots; ++slot) again |= review_slot(look(*group, slot));
  }
  again |= end_overdue();
  if (again) review_later();
}

void HostBoard::review_later() {
  if (review_timer_ == 0) review_timer_ = loop_.at(Clock::now() + kReview, [this] { review(); });
}

// True: it must be looked at again.
bool HostBoard::review_slot(const Found& found) {
  if (found.word.phase != board::Phase::folding) return false;
  if (is_folded(found)) {
    const auto completion = run(found, board::CompleteOp<Memory>(found.turn()));
    if (completion.must_wake())
      board::wake_low_half(found.group->group_area.area.slot_of(found.number).word);
    return false;
  }
  const Status fault = fault_of(found);
  if (fault.ok()) return false;
  run(found, board::StopClaims<Memory>(found.turn()));
  if (others_hold(found) || is_folded(found)) return true;
  end(found, fault);
  return false;
}

bool HostBoard::is_folded(const Found& found) const {
  const BoardSlot& slot = found.group->group_area.area.slot_of(found.number);
  const board::Count folded = board::unpack_count(slot.folded.load());
  return folded.turn == found.turn() && folded == board::unpack_count(slot.blocks.load());
}

bool HostBoard::left_undone(const Found& found, uint32_t seat) const {
  const BoardEntry& at = entry(found, seat);
  if (at.holding.load() != 0) return true;
  if (!is_staged(found, seat)) return false;
  const uint64_t blocks = found.group->group_area.area.slot_of(found.number).blocks.load();
  return at.ready.load() < board::unpack_count(blocks).blocks;
}

Status HostBoard::fault_of(const Found& found) const {
  for (const uint32_t seat : found.group->seats)
    if (const auto gone = gone_.find(seat); gone != gone_.end() && left_undone(found, seat))
      return gone->second;
  return {};
}

bool HostBoard::others_hold(const Found& found, std::optional<uint32_t> but) const {
  return std::ranges::any_of(found.group->seats, [&](uint32_t seat) {
    return is_here(seat) && seat != but && entry(found, seat).holding.load() != 0;
  });
}

// ---- Deadlines ----

// Past the deadline of which rank, by its time-out.
std::optional<uint32_t> HostBoard::overdue_ms(const Found& found) const {
  for (const uint32_t seat : found.group->seats) {
    const BoardEntry& at = entry(found, seat);
    const uint32_t timeout_ms = board::copy_request(at.request).timeout_ms;
    const int64_t started_ns = at.started_ns.load();
    if (timeout_ms != 0 && started_ns > 0 &&
        now_ns() - started_ns > int64_t{timeout_ms} * 1'000'000)
      return timeout_ms;
  }
  return std::nullopt;
}

// Somebody wants it looked at: it is past its deadline, or nobody waits for it.
void HostBoard::attend_folding(const Found& found) {
  if (const std::optional<uint32_t> timeout_ms = overdue_ms(found))
    return check_overdue(found, *timeout_ms);
  const bool waited_for = std::ranges::any_of(found.group->seats, [&](uint32_t seat) {
    return (board::copy_request(entry(found, seat).request).flags & kRequestBlocking) != 0;
  });
  if (!waited_for) help(found);
}

// Who keeps the others waiting: the one that holds the first block; where none is held, the one
// whose own blocks come last.
std::optional<uint32_t> HostBoard::culprit_of(const Found& found) const {
  std::optional<uint32_t> culprit;
  uint64_t least = UINT64_MAX;
  for (const uint32_t seat : found.group->seats) {
    const uint64_t block = entry(found, seat).holding.load();
    const uint64_t place = block != 0 ? block : kUnheld + entry(found, seat).ready.load();
    if (!is_here(seat) || !left_undone(found, seat) || place >= least) continue;
    least = place;
    culprit = seat;
  }
  return culprit;
}

// As with the engine, an operation that passes its deadline while data moves ends the epoch; once
// nobody but the culprit folds, as outputs must not change after a failure is told.
void HostBoard::check_overdue(const Found& found, uint32_t timeout_ms) {
  const bool known = std::ranges::any_of(overdue_, [&](const Overdue& late) {
    return late.found.group == found.group && late.found.number == found.number;
  });
  const std::optional<uint32_t> culprit = culprit_of(found);
  if (known || is_folded(found)) return;
  if (!culprit) return help(found);  // Nobody keeps the others waiting, nor folds.
  const Request request = board::copy_request(entry(found, *culprit).request);
  const Status why = seats_[*culprit]->blame(
      Code::deadline_exceeded, name_of_verb(request) + " #" + std::to_string(found.number) +
                                   " timed out after " + std::to_string(timeout_ms) +
                                   " ms: " + seats_[*culprit]->who() + " has not folded its part");
  run(found, board::StopClaims<Memory>(found.turn()));
  std::erase_if(overdue_, [&](const Overdue& late) {  // Whose turn is past.
    return late.found.group == found.group &&
           late.found.number % kBoardSlots == found.number % kBoardSlots;
  });
  overdue_.push_back({found, *culprit, why, Clock::now() + kFolding});
  loop_.cancel(review_timer_);
  review();
}

// True: some are to be looked at again.
bool HostBoard::end_overdue() {
  std::vector<Overdue> waiting;
  for (const Overdue& late : std::exchange(overdue_, {})) {
    if (others_hold(late.found, late.culprit) && Clock::now() < late.until) {
      waiting.push_back(late);
      continue;
    }
    Seat* seat = seats_[late.culprit];
    if (!end(late.found, late.why)) continue;
    over_ = true;
    update_ranks_decide();
    if (seat != nullptr) seat->end_epoch(late.why);
  }
  overdue_.insert(overdue_.end(), waiting.begin(), waiting.end());
  return !overdue_.empty();
}

}  // namespace tutti
