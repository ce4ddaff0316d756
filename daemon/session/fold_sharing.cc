#include "daemon/session/fold_sharing.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace tutti {
namespace {

// Bytes of a source that are folded as one block; ranks divide less than that times their number.
constexpr uint64_t kBlockBytesMin = 16 * 1024;
constexpr uint64_t kBlockBytesMax = kBoardBlockBytes;
constexpr uint64_t kBlockMultiple = 64;  // Of elements.

constexpr Millis kLookInterval{1};
// The worker folds what nobody has claimed for so long: the ranks may be busy with others.
constexpr Millis kTakeBackAfter{2};
// Blocks that the worker folds in one turn of its loop.
constexpr int kTakenPerTurn = 4;
// How long a rank may go on with a fold of an operation that was cancelled.
constexpr Millis kHeldGrace{300};

// A part of the board's wire memory. It is never given back: the pool uses it again.
class WireSlab final : public Buffer {
 public:
  WireSlab(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

uint64_t read_bytes(const FoldHead& fold) {
  const size_t carry = fold.carry == kNowhere ? 0 : size_of(static_cast<Dtype>(fold.carry_dtype));
  return fold.count * (fold.sources * size_of(static_cast<Dtype>(fold.dtype)) + carry);
}

uint64_t elements_of_block(uint64_t bytes, uint64_t ranks, uint64_t element) {
  const uint64_t block = std::clamp(bytes / ranks, kBlockBytesMin, kBlockBytesMax) / element;
  return std::max(kBlockMultiple, block / kBlockMultiple * kBlockMultiple);
}

}  // namespace

class FoldSharing::Helpers final : public FoldHelpers,
                                   public std::enable_shared_from_this<Helpers> {
 public:
  Helpers(FoldSharing& sharing, const BoardOp& op, std::shared_ptr<const void> keeps)
      : sharing_(sharing), op(op), keeps_(std::move(keeps)) {}

  void begin(std::function<void()> resume) override { resume_ = std::move(resume); }
  std::shared_ptr<const int> start(const FoldWork& work, const Strategy& local) override {
    return is_cancelled ? nullptr : sharing_.publish(shared_from_this(), work, local);
  }
  ScratchPool& memory() override { return sharing_.wire_; }
  void cancel() override {
    is_cancelled = true;
    sharing_.cancel(*this);
  }
  bool settled() const override { return sharing_.is_settled(*this); }
  std::vector<int> busy_ranks() const override { return sharing_.holders(*this); }
  void resume() const { resume_(); }
  board::FoldWord word(board::FoldState state) const {
    return {state, 0, op.group->shared.index, op.slot_index()};
  }

 private:
  FoldSharing& sharing_;

 public:
  const BoardOp op;
  bool is_cancelled = false;
  uint32_t announced = 0;  // Blocks.

 private:
  const std::shared_ptr<const void> keeps_;
  std::function<void()> resume_;
};

FoldSharing::FoldSharing(Loop& loop, BoardOps& ops, OnStuck on_stuck)
    : loop_(loop),
      ops_(ops),
      on_stuck_(std::move(on_stuck)),
      wire_([this](size_t bytes) -> Result<std::unique_ptr<Buffer>> {
        if (bytes > kFoldBytes - wire_used_) return resource_exhausted("wire memory is used up");
        std::byte* at = ops_.view().wire() + std::exchange(wire_used_, wire_used_ + bytes);
        return std::unique_ptr<Buffer>(std::make_unique<WireSlab>(at, bytes));
      }) {
  for (uint32_t index = kSharedFolds; index != 0; --index) free_.push_back(index - 1);
}

std::shared_ptr<FoldHelpers> FoldSharing::helpers_of(const BoardOp& op,
                                                     std::shared_ptr<const void> keeps) {
  const std::vector<uint32_t>& members = op.group->local_ranks;
  const bool is_waited_for = std::ranges::any_of(members, [&](uint32_t local_rank) {
    const uint8_t flags = board::copy_request(op.entry(local_rank).request).flags;
    return ops_.is_attached(local_rank) && (flags & kRequestBlocking) != 0;
  });
  if (!is_waited_for || members.size() < 2) return nullptr;
  return std::make_shared<Helpers>(*this, op, std::move(keeps));
}

// ---- Publishing ----

std::shared_ptr<const int> FoldSharing::publish(const std::shared_ptr<Helpers>& helpers,
                                                const FoldWork& work, const Strategy& local) {
  const BoardOp& op = helpers->op;
  const uint64_t element = size_of(work.dtype);
  const uint64_t each =
      elements_of_block(work.count * element, op.group->local_ranks.size(), element);
  const uint64_t blocks = (work.count + each - 1) / each;
  Description fold;
  if (blocks > free_.size() || !describe(work, local, fold)) return nullptr;
  const auto left = std::make_shared<int>(static_cast<int>(blocks));
  BoardFolds& shared = ops_.view().folds();
  fold.head.first = free_.back();
  fold.head.number = ++folds_;
  shared.folds[fold.head.first].left.store(
      pack(board::Count{fold.head.number, static_cast<uint32_t>(blocks)}));
  for (uint64_t first = 0; first < work.count; first += each) {
    const uint32_t index = free_.back();
    free_.pop_back();
    const FoldHead head =
        write_block(fold, first, std::min(each, work.count - first), shared.folds[index]);
    shared.top.store(std::max(shared.top.load(), index + 1));
    shared.words[index].store(pack(helpers->word(board::FoldState::ready)));
    published_.push_back({index, head, helpers, left, Clock::now()});
  }
  helpers->announced += static_cast<uint32_t>(blocks);
  ops_.run<board::AnnounceFolds>(op, helpers->announced);
  watch();
  return left;
}

// False: some of its memory is not on the board.
bool FoldSharing::describe(const FoldWork& work, const Strategy& local, Description& fold) const {
  const board::FoldMemory all = memory();
  fold.element_bytes = size_of(work.dtype);
  const Dtype target = work.targets.front().dtype;
  for (const std::byte* source : work.contributions)
    fold.places.push_back(place_of(source, work.count * fold.element_bytes, all));
  for (const Target& to : work.targets)
    fold.places.push_back(place_of(to.data, work.count * size_of(target), all));
  const bool has_carry = work.carry.data != nullptr;
  const Dtype carry = has_carry ? work.carry.dtype : work.dtype;
  fold.head.carry = kNowhere;
  if (has_carry) {
    fold.head.carry = place_of(work.carry.data, work.count * size_of(carry), all);
    if (fold.head.carry == kNowhere) return false;
  }
  fold.head.divisor = work.divisor;
  fold.head.strategy = packed(local);
  fold.head.sources = static_cast<uint16_t>(work.contributions.size());
  fold.head.targets = static_cast<uint16_t>(work.targets.size());
  fold.head.dtype = static_cast<uint8_t>(work.dtype);
  fold.head.op = static_cast<uint8_t>(work.op);
  fold.head.carry_dtype = static_cast<uint8_t>(carry);
  fold.head.target_dtype = static_cast<uint8_t>(target);
  fold.head.past_cache = work.past_cache ? 1 : 0;
  fold.head.carry_first = work.carry_first ? 1 : 0;
  fold.head.count = work.count;
  return board::is_sound(fold.head) &&
         std::ranges::find(fold.places, kNowhere) == fold.places.end();
}

FoldHead FoldSharing::write_block(const Description& fold, uint64_t first, uint64_t count,
                                  SharedFold& block) {
  FoldHead head = fold.head;
  head.count = count;
  if (head.carry != kNowhere) head.carry += first * size_of(static_cast<Dtype>(head.carry_dtype));
  block.head = head;
  const size_t target = size_of(static_cast<Dtype>(head.target_dtype));
  for (size_t i = 0; i < fold.places.size(); ++i)
    block.places[i] = fold.places[i] + first * (i < head.sources ? fold.element_bytes : target);
  return head;
}

board::FoldMemory FoldSharing::memory() const {
  segments_.assign(ops_.view().local_ranks(), {});
  for (uint32_t local_rank = 0; local_rank < segments_.size(); ++local_rank)
    if (const auto& mapping = ops_.mapping(local_rank); mapping != nullptr)
      segments_[local_rank] = {mapping->base(), mapping->bytes()};
  return {segments_, {ops_.view().wire(), kWireBytes}};
}

// ---- Ending ----

board::FoldWord FoldSharing::load(const Published& block) const {
  return board::unpack_fold(ops_.view().folds().words[block.index].load());
}

// The index may be used again.
void FoldSharing::release(const Published& block) {
  ops_.view().folds().words[block.index].store(pack(board::FoldWord()));
  free_.push_back(block.index);
}

// What is called here may begin, end or cancel folds.
template <class IsOver>
void FoldSharing::end_if(const IsOver& is_over) {
  std::set<std::shared_ptr<Helpers>> resumed;
  std::erase_if(published_, [&](Published& block) {
    if (!is_over(block)) return false;
    if (*block.left == 0 || block.helpers->is_cancelled) resumed.insert(block.helpers);
    return true;
  });
  for (const Status& why : std::exchange(stuck_, {})) on_stuck_(why);  // First: memory is reused.
  for (const std::shared_ptr<Helpers>& helpers : resumed)
    if (!helpers->is_cancelled || is_settled(*helpers)) helpers->resume();
}

void FoldSharing::collect() {
  if (!published_.empty()) end_if([this](Published& block) { return has_ended(block); });
}

bool FoldSharing::has_ended(Published& block) {
  const board::FoldState state = load(block).state;
  if (state == board::FoldState::ready || state == board::FoldState::held) return false;
  if (state != board::FoldState::done) {
    stuck_.push_back(
        unavailable("a rank of this host could not do its part, or gave its worker up"));
    return true;
  }
  --*block.left;
  counts_.by_ranks += read_bytes(block.head);
  release(block);
  return true;
}

bool FoldSharing::take_back(Published& block) {
  const BoardOp& op = block.helpers->op;
  const board::FoldWord word = block.helpers->word(board::FoldState::ready);
  const auto taken =
      ops_.run<board::TakeFoldBack>(op, block.index, word, block.head.first, block.head.number);
  if (!taken.taken()) return false;
  if (!block.helpers->is_cancelled) {
    const uint64_t* const places = ops_.view().folds().folds[block.index].places;
    if (!board::run_shared(block.head, places, memory(), kernel_))
      stuck_.push_back(internal_error("a rank of this host has overwritten the board"));
    --*block.left;
    counts_.by_worker += read_bytes(block.head);
  }
  free_.push_back(block.index);
  return true;
}

void FoldSharing::cancel(const Helpers& helpers) {
  std::erase_if(published_, [&](Published& block) {
    if (block.helpers.get() != &helpers) return false;
    block.since = Clock::now();
    return take_back(block);
  });
}

bool FoldSharing::is_settled(const Helpers& helpers) const {
  return std::ranges::none_of(
      published_, [&](const Published& block) { return block.helpers.get() == &helpers; });
}

std::vector<int> FoldSharing::holders(const Helpers& helpers) const {
  std::vector<int> ranks;
  const HostGroup& group = *helpers.op.group;
  for (const Published& block : published_) {
    const board::FoldWord word = load(block);
    if (block.helpers.get() != &helpers || word.state != board::FoldState::held) continue;
    const auto member = std::ranges::find(group.local_ranks, word.holder);
    if (member != group.local_ranks.end())
      ranks.push_back(
          static_cast<int>(group.places[static_cast<size_t>(member - group.local_ranks.begin())]));
  }
  return ranks;
}

void FoldSharing::fold_rest() {
  end_if([this](Published& block) { return !block.helpers->is_cancelled && take_back(block); });
}

bool FoldSharing::remove(uint32_t local_rank) {
  collect();
  bool any = false;
  end_if([&](const Published& block) {
    const board::FoldWord word = load(block);
    const bool is_lost = word.state == board::FoldState::held && word.holder == local_rank;
    any |= is_lost;
    return is_lost;
  });
  return any;
}

// ---- Watching ----

void FoldSharing::watch() {
  if (timer_ == 0) timer_ = loop_.at(Clock::now() + kLookInterval, [this] { poll(); });
}

void FoldSharing::poll() {
  timer_ = 0;
  // An operation that is resumed may be the last that keeps this object.
  const std::shared_ptr<Helpers> keeps = published_.empty() ? nullptr : published_.front().helpers;
  collect();
  const TimePoint now = Clock::now();
  int folded = 0;
  end_if([&](Published& block) {
    if (block.helpers->is_cancelled) return now > block.since + kHeldGrace && give_up(block);
    if (folded == kTakenPerTurn || now < block.since + kTakeBackAfter) return false;
    const bool taken = take_back(block);
    folded += taken ? 1 : 0;
    return taken;
  });
  if (!published_.empty()) watch();
}

// A rank was stopped while it folded. The index is not used again.
bool FoldSharing::give_up(const Published& block) {
  const uint32_t holder = load(block).holder;
  const bool known = holder < ops_.view().local_ranks();
  const std::string who = known ? ops_.describe(holder) : "a rank of this host";
  stuck_.push_back(
      deadline_exceeded(who + " has not ended its part of an operation that has failed",
                        known ? ops_.culprit(holder) : Culprit()));
  return true;
}

}  // namespace tutti
