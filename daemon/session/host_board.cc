#include "daemon/session/host_board.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "daemon/session/board_words.h"
#include "daemon/session/request.h"

namespace tutti {
namespace {

// Passes over all that is called, in one turn of the loop.
constexpr int kPassesMax = 4;

// Whether GPUs of this worker may still touch the rank's memory for the operation. Once one has
// stored `done` they do not, and the operation ends by itself.
bool is_on_gpus(const Request& request, const Mapping* memory) {
  if ((request.flags & kRequestDevice) == 0) return false;
  DeviceRequest asked{};
  if (memory == nullptr || !in_arena(request.in_offset, sizeof(asked), memory->bytes()))
    return true;
  std::memcpy(&asked, memory->base() + request.in_offset, sizeof(asked));
  if (!in_arena(asked.done_offset, sizeof(uint64_t), memory->bytes()) ||
      asked.done_offset % alignof(uint64_t) != 0)
    return true;
  auto& done = *reinterpret_cast<std::atomic<uint64_t>*>(memory->base() + asked.done_offset);
  return done.load() != asked.value;
}

// Blocks of the board, or rows, in which the request's tensor passes through its window.
uint64_t blocks_to_fill(const HostGroup& group, const Request& request, uint64_t window_bytes) {
  const auto collective = static_cast<Collective>(request.collective % kCollectives);
  const auto dtype = static_cast<Dtype>(request.dtype % kDtypes);
  if (!has_blocks(collective)) return board::staged_blocks(request.count, dtype);
  const StagedRows rows = staged_rows_between_hosts({collective, request.root, group.size}, 0,
                                                    dtype, request.count, window_bytes);
  return rows.part == 0 ? 0 : rows.rows();
}

// That the rank has written to its window.
uint64_t filled_blocks(const BoardOps& ops, const EpochOp& op, uint32_t local_rank) {
  const std::optional<BoardOp> found = ops.find(op);
  return found ? found->entry(local_rank).ready.load() : 0;
}

// Operations of all ranks.
uint64_t ended_ok(const board::View& view) {
  uint64_t sum = 0;
  for (uint32_t local_rank = 0; local_rank < view.local_ranks(); ++local_rank)
    sum += view.counters(local_rank).operations.load();
  return sum;
}

// As BoardOps::end(), and the worker will report the failure.
bool end_op(const BoardOps& ops, HostRecorder& recorder, const BoardOp& op, const Status& status) {
  if (!ops.end(op, status)) return false;
  if (!status.ok()) recorder.on_failed(status, ended_ok(ops.view()));
  return true;
}

}  // namespace

Result<std::shared_ptr<HostBoard>> HostBoard::make(Loop& loop, const HostRanks& host,
                                                   const BoardOptions& options, uint32_t epoch,
                                                   BoardEvents& events) {
  const auto local_ranks = static_cast<uint32_t>(host.ranks.size());
  if (local_ranks > kLocalRanksMax)
    return resource_exhausted("a job has at most " + std::to_string(kLocalRanksMax) +
                              " ranks on one host, not " + std::to_string(local_ranks));
  std::vector<uint32_t> ranks;
  for (const HostRanks::Rank& rank : host.ranks) ranks.push_back(rank.rank);
  Result<std::shared_ptr<HostRecorder>> recorder =
      HostRecorder::make(ranks, host.world_size, epoch);
  if (!recorder.ok()) return recorder.status();
  Result<SealedMemory> memory =
      make_sealed_memory("tutti-board", "a board", board_bytes(local_ranks));
  if (!memory.ok()) return memory.status();
  auto board = std::make_shared<HostBoard>(loop, *std::move(memory), host, options,
                                           *std::move(recorder), events);
  if (Status s = board->make_segments(host, options.segment_bytes); !s.ok()) return s;
  std::vector<uint32_t> everyone(host.world_size);
  std::iota(everyone.begin(), everyone.end(), 0);
  if (Result<uint32_t> added = board->add_group(0, everyone); !added.ok()) return added.status();
  return board;
}

HostBoard::HostBoard(Loop& loop, SealedMemory memory, const HostRanks& host,
                     const BoardOptions& options, std::shared_ptr<HostRecorder> recorder,
                     BoardEvents& events)
    : memory_(std::move(memory.memory)),
      recorder_(std::move(recorder)),
      events_(events),
      window_bytes_(options.window_bytes),
      ranks_fold_(options.ranks_fold),
      ops_(loop, std::move(memory.mapping), host),
      questions_(ops_, events),
      folding_(ops_),
      watch_(
          loop, ops_, folding_,
          [this](const BoardOp& op, const Status& status) {
            return end_op(ops_, *recorder_, op, status);
          },
          [this](uint32_t local_rank, const Status& why) {
            stuck_ = true;
            update_ranks_decide();
            if (ops_.is_attached(local_rank)) events_.on_stuck(why);
          }),
      sharing_(loop, ops_,
               [this](const Status& why) {
                 stuck_ = true;
                 update_ranks_decide();
                 events_.on_stuck(why);
               }),
      results_(ops_, options.window_bytes) {
  BoardHeader& header = ops_.view().header();
  header.magic = kBoardMagic;
  header.version = kProtocolVersion;
  header.local_ranks = ops_.view().local_ranks();
  header.window_bytes = window_bytes_;
}

// ---- Ranks ----

Status HostBoard::make_segments(const HostRanks& host, uint64_t segment_bytes) {
  for (uint32_t local_rank = 0; local_rank < host.ranks.size(); ++local_rank) {
    const bool ended = host.ranks[local_rank].ended;
    Result<SealedMemory> segment = make_segment(ended ? 2 * kArenaOffset : segment_bytes);
    if (!segment.ok()) return segment.status();
    segments_.push_back(std::move(segment->memory));
    ops_.set_mapping(local_rank, std::move(segment->mapping));
    if (ended)
      ops_.add_gone(local_rank, unavailable("rank " + std::to_string(ops_.rank_of(local_rank)) +
                                            " died while joining"));
  }
  return {};
}

std::vector<int> HostBoard::shared_descriptors() const {
  std::vector<int> all = {memory_.get(), recorder_->descriptor()};
  for (const Fd& segment : segments_) all.push_back(segment.get());
  return all;
}

RankCounters HostBoard::counters(uint32_t rank) const {
  const BoardCounters& own = ops_.view().counters(ops_.local_rank_of(rank));
  return {own.operations.load(), own.failures.load(), own.bytes.load()};
}

bool HostBoard::is_leaving(uint32_t rank) const {
  const auto& memory = ops_.mapping(ops_.local_rank_of(rank));
  return memory != nullptr && memory->segment_header().leaving.load(std::memory_order_acquire) != 0;
}

// What the rank asked for is still forwarded.
void HostBoard::remove_rank(uint32_t rank, const Status& why) {
  const uint32_t local_rank = ops_.local_rank_of(rank);
  const Status blamed =
      why.ok() ? unavailable(ops_.describe(local_rank) + " left", ops_.culprit(local_rank))
               : Status(why.code(), why.message(), ops_.culprit(local_rank));
  if (!ops_.add_gone(local_rank, blamed)) return;
  update_ranks_decide();
  poll();
  check_unfilled_windows(local_rank, blamed);
  if (sharing_.remove(local_rank)) events_.on_stuck(blamed);
  ops_.settle_all(local_rank);
  detach(rank);
  watch_.start_polling();
}

// Other hosts wait for the rest of a tensor that will never come, or GPUs may read memory that is
// gone: the epoch must end.
void HostBoard::check_unfilled_windows(uint32_t local_rank, const Status& why) {
  for (const std::unique_ptr<HostGroup>& group : ops_.groups()) {
    const bool is_member =
        std::ranges::find(group->local_ranks, local_rank) != group->local_ranks.end();
    for (uint32_t slot = 0; is_member && slot < kBoardSlots; ++slot) {
      const BoardOp op = ops_.read(*group, slot);
      if (op.word.phase != board::Phase::called || !forwarded(*op.group).is_running(op)) continue;
      const Request request = board::copy_request(op.entry(local_rank).request);
      const bool arrived = op.entry(local_rank).arrived.load() == op.number + 1;
      if (arrived && is_on_gpus(request, ops_.mapping(local_rank).get()))
        return events_.on_stuck(why);
      if (group->is_local() || !ops_.is_staged(op, local_rank)) continue;
      if (filled_blocks(ops_, op.id(), local_rank) < blocks_to_fill(*group, request, window_bytes_))
        return events_.on_stuck(why);
    }
  }
}

void HostBoard::detach(uint32_t rank) {
  const uint32_t local_rank = ops_.local_rank_of(rank);
  if (!ops_.is_attached(local_rank)) return;
  sharing_.fold_rest();
  ops_.detach(local_rank);
  if (ops_.mapping(local_rank) == nullptr) {  // It was the last one.
    folding_.clear();
    sharing_.clear();
    for (Fd& segment : segments_) segment.reset();
  }
  update_ranks_decide();
}

// ---- Groups ----

Result<uint32_t> HostBoard::add_group(uint32_t number, std::span<const uint32_t> ranks) {
  const Result<uint32_t> area = ops_.add_group(number, ranks);
  if (!area.ok() || *area < forwarded_.size()) return area;
  const HostGroup& group = *ops_.groups()[*area];
  recorder_->add_group(*area, number, group.size, group.local_ranks);
  forwarded_.emplace_back().next.resize(group.local_ranks.size());
  update_ranks_decide();
  return area;
}

void HostBoard::answer_subgroup(uint32_t rank, const Result<uint32_t>& group,
                                const std::vector<uint32_t>& ranks) {
  questions_.answer_subgroup(ops_.local_rank_of(rank), group,
                             group.ok() ? add_group(*group, ranks) : group);
}

// ---- Polling ----

// Handling one call may need another pass, and may call poll() again.
void HostBoard::poll() {
  poll_again_ = true;
  if (polling_) return;
  polling_ = true;
  for (int pass = 0; pass < kPassesMax && std::exchange(poll_again_, false); ++pass) {
    ops_.view().header().looks.fetch_add(1);
    questions_.poll();
    sharing_.collect();
    take_bits(ops_.view().header().called, [this](uint32_t area) {
      if (area < ops_.groups().size()) poll_area(area);
    });
  }
  polling_ = false;
  if (poll_again_) ops_.post([this] { poll(); });
}

void HostBoard::poll_area(uint32_t area) {
  HostGroup& group = *ops_.groups()[area];
  std::vector<BoardOp> called;
  take_bits(group.shared.area.header().called,
            [&](uint32_t slot) { called.push_back(ops_.read(group, slot)); });
  std::ranges::sort(called, {}, &BoardOp::number);
  for (const BoardOp& op : called) {
    if (op.word.phase == board::Phase::called) {
      forward_requests(op);
      notify_window_filled(op);
      if (op.word.asleep && forwarded(group).is_running(op))
        forwarded(group).waited_for.set(op.slot_index());
    }
    if (op.word.phase == board::Phase::folding) watch_.check(op);
  }
}

// ---- Requests ----

// Forwards the members' requests of this operation, each after the requests that its rank made
// before: a rank may wait for a newer operation first.
void HostBoard::forward_requests(const BoardOp& op) {
  for (size_t member = 0; member < op.group->local_ranks.size(); ++member)
    forward_member(op, member);
}

void HostBoard::forward_member(const BoardOp& called, size_t member) {
  HostGroup& group = *called.group;
  const uint64_t number = called.number;
  const auto next = [&]() -> uint64_t& { return forwarded(group).next[member]; };
  // The slots of older operations serve later ones now.
  if (number >= kBoardSlots) next() = std::max(next(), number - kBoardSlots + 1);
  while (next() <= number && ops_.is_attached(group.local_ranks[member])) {
    const uint64_t forwarding = next();
    if (!forward_request(called, member, forwarding)) return;
    next() = std::max(next(), forwarding + 1);
  }
}

// False: the rank has not arrived. An operation that ranks fold, or that is over, is skipped. The
// rank may end, and so may the operation, while the request is handled. A slot whose operation
// was forwarded and has not ended forwards no other, whatever its word says: so their number is
// bounded.
// `called`: the operation for which the worker was called, or a later one.
bool HostBoard::forward_request(const BoardOp& called, size_t member, uint64_t number) {
  HostGroup& group = *called.group;
  const uint32_t local_rank = group.local_ranks[member];
  const auto slot = static_cast<uint32_t>(number % kBoardSlots);
  BoardOp op = ops_.read(group, slot);
  if (op.number != number || is_over(op.word.phase)) return true;
  BoardEntry& entry = op.entry(local_rank);
  if (entry.arrived.load(std::memory_order_acquire) != number + 1) return false;
  if (op.word.phase == board::Phase::open) {
    ops_.run<board::CallWorker>(op);
    poll_again_ = true;
    op = ops_.read(group, slot);
  }
  if (op.word.phase != board::Phase::called) return true;
  uint64_t& running = forwarded(group).running[slot];
  if (running != Forwarded::kNone && running != number) return true;
  running = number;
  forwarded(group).next[member] = number + 1;  // collect_requests() may be called from inside.
  Call call = call_of(op, member);
  // A call that nobody waited for has no start: its deadline is not after that of a later one.
  const BoardEntry& later = called.entry(local_rank);
  if (!call.started && later.arrived.load(std::memory_order_acquire) == called.number + 1)
    call.started = started_at(later.started_ns.load());
  events_.on_request(ops_.rank_of(local_rank), std::move(call));
  return true;
}

Call HostBoard::call_of(const BoardOp& op, size_t member) {
  const HostGroup& group = *op.group;
  const uint32_t local_rank = group.local_ranks[member];
  const std::shared_ptr<const Mapping>& memory = ops_.mapping(local_rank);
  Call call = read_request(board::copy_request(op.entry(local_rank).request),
                           {group.places[member], group.size}, memory->base(), memory->bytes(),
                           group.is_local() ? 0 : window_bytes_);
  if (call.window_bytes != 0)
    call.filled = [board = shared_from_this(), id = op.id(), local_rank] {
      return filled_blocks(board->ops_, id, local_rank);
    };
  if (call.invalid.ok() && call.ranks_only && !group.is_local())
    call.invalid = invalid_argument("windows and lists are for groups of one host");
  if (!call.invalid.ok())
    call.invalid =
        ops_.blame(local_rank, call.invalid,
                   " asked for " + std::string(name_of(call.signature.collective)) + ": ");
  call.group = group.number;
  call.number = op.number;
  call.memory = memory;
  call.started = started_at(op.entry(local_rank).started_ns.load());
  return call;
}

void HostBoard::collect_requests(const EpochOp& op) {
  if (const std::optional<BoardOp> found = ops_.find(op)) forward_requests(*found);
}

void HostBoard::clear_running(const EpochOp& op) {
  const HostGroup* known = ops_.find_group(op.group);
  if (known == nullptr) return;
  Forwarded& of = forwarded(*known);
  const size_t slot = op.number % kBoardSlots;
  if (of.running[slot] != op.number) return;
  of.running[slot] = Forwarded::kNone;
  of.waited_for.reset(slot);
}

// ---- Windows ----

// Ranks call the worker again when they have filled more of their windows.
void HostBoard::notify_window_filled(const BoardOp& op) {
  if (!forwarded(*op.group).is_running(op) || op.group->is_local()) return;
  if (std::ranges::any_of(op.group->local_ranks, [&](uint32_t local_rank) {
        return ops_.is_attached(local_rank) && ops_.is_staged(op, local_rank);
      }))
    events_.on_window_filled(op.id());
}

std::byte* HostBoard::result_window(const EpochOp& op, uint64_t bytes) {
  const std::optional<BoardOp> found = ops_.find(op);
  const bool is_called = found && found->word.phase == board::Phase::called;
  return is_called ? results_.make(*found, bytes) : nullptr;
}

void HostBoard::release_window(const EpochOp& op, uint64_t blocks) {
  const std::optional<BoardOp> found = ops_.find(op);
  if (found && found->word.phase == board::Phase::called)
    ops_.run<board::ReleaseWindow>(*found, static_cast<uint32_t>(blocks));
}

// ---- Who decides ----

void HostBoard::set_ranks_decide(bool let) {
  ranks_decide_ = let;
  update_ranks_decide();
}

// A rank reads the word before and after it arrives: either it sees the change, or call_begun()
// sees its arrival.
void HostBoard::update_ranks_decide() {
  for (const std::unique_ptr<HostGroup>& group : ops_.groups()) {
    const bool complete = std::ranges::all_of(group->local_ranks, [this](uint32_t local_rank) {
      return ops_.is_attached(local_rank) && !ops_.gone().contains(local_rank);
    });
    const bool let = ranks_decide_ && complete && !stuck_;
    const bool before = group->shared.area.header().ranks_decide.exchange(let ? 1 : 0) != 0;
    if (before && !let) call_begun(*group);
  }
}

void HostBoard::call_begun(HostGroup& group) {
  for (uint32_t slot = 0; slot < kBoardSlots; ++slot) {
    const BoardOp op = ops_.read(group, slot);
    const bool begun = op.word.phase == board::Phase::open && op.word.arrived != 0;
    if (op.generation() != 0 && (begun || op.word.phase == board::Phase::called))
      ops_.run<board::CallWorker>(op);
  }
  ops_.post([this] { poll(); });
}

// ---- Ending ----

// What ranks fold is folded to its end: outputs must not change after a failure is published.
void HostBoard::complete(const EpochOp& op, const Status& status) {
  clear_running(op);
  const std::optional<BoardOp> found = ops_.find(op);
  if (found && found->word.phase != board::Phase::folding) end_op(ops_, *recorder_, *found, status);
}

bool HostBoard::let_ranks_fold(const EpochOp& id) {
  const std::optional<BoardOp> op = ops_.find(id);
  board::MatchedOp matched;
  if (!op || !op->group->is_local() || op->word.phase != board::Phase::called ||
      !ops_.match(*op, matched))
    return false;
  for (const auto& [local_rank, why] : ops_.gone()) op->entry(local_rank).holding.store(0);
  board::Decision decision = board::decide(matched);
  decision.alone = false;
  const auto members = static_cast<uint32_t>(op->group->local_ranks.size());
  if (!ops_.run<board::ResumeFolding>(*op, members, decision).resumed()) return false;
  clear_running(id);
  if (!matched.anyone_waits) folding_.add(*op);
  if (!ops_.gone().empty()) watch_.start_polling();
  return true;
}

std::shared_ptr<FoldHelpers> HostBoard::helpers_of(const EpochOp& id) {
  if (ranks_fold_ && !ranks_fold_()) return nullptr;
  const std::optional<BoardOp> op = ops_.find(id);
  if (!op || op->group->is_local() || op->word.phase != board::Phase::called) return nullptr;
  return sharing_.helpers_of(*op, shared_from_this());
}

}  // namespace tutti
