#include "daemon/engine/device_tensors.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti {
namespace {

// Slices whose folding is in the queue before the engine asks for them.
constexpr uint64_t kSlicesAhead = 4;
// Elements that are folded in one go where a strategy needs inner results.
constexpr uint64_t kInnerBlock = uint64_t{1} << 20;
// How long an operation's end waits for lanes, where it cannot come back later.
constexpr std::chrono::seconds kEndBound{2};
constexpr std::chrono::milliseconds kEndPause{1};

// The i-th of n parts of [0, count), on a bound that keeps every type aligned.
Range part_of(uint64_t count, size_t i, size_t n) {
  constexpr uint64_t kGrain = 128;
  const auto bound = [&](size_t at) { return at == n ? count : count / n * at / kGrain * kGrain; };
  return {bound(i), bound(i + 1) - bound(i)};
}

std::span<const double> factors_of(const FoldJob& job) {
  return {job.factors, job.factors == nullptr ? 0 : job.source_count};
}

template <class Byte>
std::vector<Byte*> shifted(std::vector<Byte*> addresses, uint64_t bytes) {
  for (Byte*& address : addresses) address += bytes;
  return addresses;
}

}  // namespace

DeviceTensors::DeviceTensors(GpuSet& gpus, std::function<void()> wake, const Operation& operation,
                             const Geometry& geometry)
    : gpus_(gpus),
      wake_(std::move(wake)),
      operation_(operation),
      geometry_(geometry),
      ranks_(operation, geometry) {}

// The streams of ranks that still wait are released by who holds their memory: Call::memory.
DeviceTensors::~DeviceTensors() {
  const bool ended = await_end();
  for (std::unique_ptr<Lane>& lane : lanes_)
    ended ? gpus_.give_back(std::move(lane)) : gpus_.abandon(std::move(lane), operation_.memory);
  if (!ended) return;
  for (const auto& [slice, blocks] : pinned_)
    for (const GpuSet::Pinned& block : blocks) gpus_.give_back(block);
  for (const auto& [pending, blocks] : copied_out_)
    for (const GpuSet::Pinned& block : blocks) gpus_.give_back(block);
}

bool DeviceTensors::await_end() {
  if (settled()) return true;
  if (has_hung_) return false;
  if (!is_cancelled_) cancel();
  const auto limit = std::chrono::steady_clock::now() + kEndBound;
  while (!settled()) {
    has_hung_ = gpus_.has_abandoned() || std::chrono::steady_clock::now() >= limit;
    if (has_hung_) return false;
    std::this_thread::sleep_for(kEndPause);
  }
  return true;
}

// ---- Beginning and end ----

// Takes a lane of each GPU that holds a tensor.
Status DeviceTensors::begin() {
  begun_ = true;
  for (const RankBuffers* rank : ranks_.all()) {
    const auto has_lane = [&](const auto& lane) { return lane->gpu == rank->gpu; };
    if (std::ranges::any_of(lanes_, has_lane)) continue;
    if (Status added = add_lane(rank->gpu); !added.ok()) return added;
  }
  return {};
}

Status DeviceTensors::add_lane(int gpu) {
  Result<std::unique_ptr<Lane>> lane = gpus_.take_lane(gpu);
  if (!lane.ok()) return lane.status();
  lanes_.push_back(*std::move(lane));
  for (const RankBuffers* rank : ranks_.all()) {
    const StreamWords& words = rank->words;
    if (words.is_ready()) continue;  // Its stream has done what comes before: no need to wait.
    Status waits = this->gpu(*lanes_.back()).wait(*lanes_.back()->stream, words.ready, words.value);
    if (!waits.ok()) return waits;
  }
  return {};
}

// Lets the ranks' streams go on when the work of all lanes so far is done.
Status DeviceTensors::pass_streams() {
  Lane& first = *lanes_.front();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane.get() == &first) continue;
    Result<std::unique_ptr<Event>> event = gpu(*lane).record(*lane->stream);
    if (!event.ok()) return event.status();
    if (Status s = gpu(first).wait(*first.stream, **event); !s.ok()) return s;
  }
  std::vector<Gpu::Store> done;
  for (const RankBuffers* rank : ranks_.all())
    done.push_back({rank->words.done, rank->words.value});
  return gpu(first).store(*first.stream, done);
}

// Asks every lane to tell when what was launched so far is done.
Result<DeviceTensors::Pending> DeviceTensors::notify() {
  const auto pending = std::make_shared<std::atomic<int>>(static_cast<int>(lanes_.size()));
  const Status asked = notify(pending);
  if (!asked.ok()) return asked;
  return pending;
}

Status DeviceTensors::notify(const Pending& pending) {
  pending_.push_back(pending);
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    Status asked = gpu(*lane).call(*lane->stream, [pending, wake = wake_] {
      if (--*pending == 0) wake();
    });
    if (asked.ok()) continue;
    // Nobody would learn of the end of what was launched.
    gpu(*lane).give_up("work of a GPU cannot be waited for: " + asked.message());
    return asked;
  }
  return {};
}

Status DeviceTensors::launch_some() {
  return launches_.run([this] { return notify(); });
}

// The operation has ended already for the engine: its results cannot be taken back.
void DeviceTensors::on_launch_failed(const Status& cause) {
  gpu(*lanes_.front()).give_up("work of a GPU cannot be launched: " + cause.message());
}

void DeviceTensors::cancel() {
  is_cancelled_ = is_held_ = true;
  launches_.clear();
  for (const std::unique_ptr<Lane>& lane : lanes_) GpuSet::cancel(*lane);
  let_go_on();
}

// Lanes wait for words alone, so once these are stored their streams run to the end. After a fault
// they may wait for each other, for ever: then they are not let go on.
void DeviceTensors::let_go_on() {
  if (gpus_.fault().is_set() || !may_go_on()) return;
  is_held_ = false;
  release_streams();
  static_cast<void>(notify());
}

void DeviceTensors::release_streams() {
  for (const RankBuffers* rank : ranks_.all())
    StreamWords::release(*rank->words.ready, rank->words.value);
}

// After a fault the driver reports no end any more, and the process's own is near. A rank may have
// taken back the word that cancel() stored, since its memory holds it, before a lane has seen it.
bool DeviceTensors::settled() {
  if (gpus_.fault().is_set()) return true;
  if (const Status launched = launch_some(); !launched.ok()) {
    launches_.clear();
    on_launch_failed(launched);
    return false;
  }
  if (is_held_) let_go_on();
  if (is_held_) return false;
  const auto is_done = [](const Pending& pending) { return *pending <= 0; };
  if (launches_.is_empty() && std::ranges::all_of(pending_, is_done)) return true;
  if (is_cancelled_) release_streams();
  return false;
}

std::vector<int> DeviceTensors::blocking_ranks() const {
  std::vector<int> late;
  for (const RankBuffers* rank : ranks_.all())
    if (!rank->words.is_ready()) late.push_back(rank->rank);
  return late;
}

// ---- From the ranks ----

Result<bool> DeviceTensors::ready(uint64_t slice) {
  if (!begun_)
    if (Status begun = begin(); !begun.ok()) return begun;
  const uint64_t ahead = std::min(geometry_.slices(), slice + kSlicesAhead);
  for (; folded_ < ahead; ++folded_)
    if (Status folded = fold_slice(folded_); !folded.ok()) return folded;
  if (Status launched = launch_some(); !launched.ok()) return launched;
  return *folding_.at(slice) == 0;
}

Status DeviceTensors::fold_slice(uint64_t slice) {
  for (int chunk = 0; chunk < geometry_.chunks(); ++chunk) {
    const Range range = geometry_.slice(chunk, slice);
    if (range.count == 0) continue;
    if (ranks_.are_alone())
      fold_to_outputs(chunk, range);
    else if (Status folded = fold_to_host(slice, chunk, range); !folded.ok())
      return folded;
  }
  folding_[slice] = end_slice(ranks_.are_alone() && slice + 1 == geometry_.slices());
  return {};
}

// Behind all that is launched for the slice. After the last one, ranks' streams go on.
DeviceTensors::Pending DeviceTensors::end_slice(bool is_last) {
  const auto pending = std::make_shared<std::atomic<int>>(static_cast<int>(lanes_.size()));
  if (is_last) launches_.add([this] { return pass_streams(); }, ranks_.all().size());
  launches_.add([this, pending] { return notify(pending); });
  return pending;
}

std::vector<Range> DeviceTensors::pieces_to_fold(int chunk, const Range& range) const {
  const std::vector<Range> pieces = ranks_.pieces(chunk, range);
  if (ranks_.folds().size() == 1) return pieces;
  const uint64_t most = kInnerBlock * lanes_.size();
  std::vector<Range> cut;
  for (const Range& piece : pieces)
    for (uint64_t at = 0; at < piece.count; at += most)
      cut.push_back({piece.first + at, std::min(most, piece.count - at)});
  return cut;
}

void DeviceTensors::fold_to_outputs(int chunk, const Range& range) {
  for (const Range& piece : pieces_to_fold(chunk, range))
    launches_.add([this, chunk, piece] { return fold_piece_to_outputs(chunk, piece); },
                  ranks_.folds().size());
}

Status DeviceTensors::fold_piece_to_outputs(int chunk, const Range& range) {
  const Inputs from = inputs(chunk, range);
  const std::vector<std::byte*> outputs = ranks_.outputs(chunk, range);
  if (from.at.empty() || outputs.empty()) return {};
  const size_t element = size_of(operation_.dtype);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Range part = part_of(range.count, i, lanes_.size());
    const uint64_t at = part.first * element;
    if (part.count == 0) continue;
    if (!reduces(operation_.execution->plan.collective)) {
      Status copied =
          copy(*lanes_[i], from.at.front() + at, shifted(outputs, at), part.count * element);
      if (!copied.ok()) return copied;
      continue;
    }
    std::vector<Target> to;
    for (std::byte* output : outputs) to.push_back({output, operation_.dtype});
    if (Status s = fold(*lanes_[i], from, to, part, ranks_.divisor()); !s.ok()) return s;
  }
  return {};
}

Status DeviceTensors::fold_to_host(uint64_t slice, int chunk, const Range& range) {
  const std::vector<Range> pieces = pieces_to_fold(chunk, range);
  const size_t inputs = ranks_.inputs(chunk, pieces.front()).size();
  Staged& staged = staged_[{chunk, range.first}];
  const bool sums = inputs > 1 && reduces(operation_.execution->plan.collective);
  staged.dtype = sums ? accumulator_of(operation_.dtype) : operation_.dtype;
  Result<GpuSet::Pinned> place = stage(slice, range.count * size_of(staged.dtype));
  if (!place.ok()) return place.status();
  staged.contribution = *place;
  if (staged.dtype != operation_.dtype && !ranks_.outputs(chunk, pieces.front()).empty()) {
    Result<GpuSet::Pinned> result = stage(slice, range.count * size_of(operation_.dtype));
    if (!result.ok()) return result.status();
    staged.result = *result;
  }
  for (const Range& piece : pieces) {
    const Target to{place->data + (piece.first - range.first) * size_of(staged.dtype),
                    staged.dtype};
    launches_.add([this, chunk, piece, to] { return fold_piece_to_host(chunk, piece, to); },
                  ranks_.folds().size());
  }
  return {};
}

Status DeviceTensors::fold_piece_to_host(int chunk, const Range& range, const Target& to) {
  const Inputs from = inputs(chunk, range);
  const size_t element = size_of(operation_.dtype);
  const bool sums = from.at.size() > 1 && reduces(operation_.execution->plan.collective);
  for (size_t i = 0; i < lanes_.size() && !from.at.empty(); ++i) {
    const Range part = part_of(range.count, i, lanes_.size());
    if (part.count == 0) continue;
    const uint64_t at = part.first * element;
    Status done = sums || !from.factors.empty()
                      ? fold(*lanes_[i], from, {to}, part, 1)
                      : copy(*lanes_[i], from.at.front() + at,
                             {static_cast<std::byte*>(to.data) + at}, part.count * element);
    if (!done.ok()) return done;
  }
  return {};
}

// One pass over memory where the local strategy allows it.
Status DeviceTensors::fold(Lane& lane, const Inputs& from, const std::vector<Target>& to,
                           const Range& part, uint32_t divisor) {
  std::vector<Target> targets = to;
  for (Target& target : targets)
    target.data = static_cast<std::byte*>(target.data) + part.first * size_of(target.dtype);
  const Addresses parts = shifted(from.at, part.first * size_of(operation_.dtype));
  FoldWork work{.folds = ranks_.folds(),
                .contributions = parts,
                .targets = targets,
                .dtype = operation_.dtype,
                .op = operation_.op,
                .count = part.count,
                .divisor = divisor,
                .block = kInnerBlock,
                .factors = from.factors};
  if (ranks_.folds().size() > 1) {
    const size_t bytes =
        (ranks_.folds().size() - 1) * kInnerBlock * size_of(accumulator_of(operation_.dtype));
    const Result<std::byte*> scratch = gpus_.scratch(lane, bytes);  // For one fold after the other.
    if (!scratch.ok()) return scratch.status();
    work.scratch = {*scratch, bytes};
  }
  Status status;
  run_folds(work, [&](const FoldJob& job) {
    status = gpu(lane).reduce(*lane.stream, {job.targets, job.target_count},
                              {job.sources, job.source_count},
                              {job.count, job.op, job.divisor, false, factors_of(job)});
    return status.ok();
  });
  return status;
}

// As a reduction of one source, so that it can be cancelled; of bytes, which every value keeps.
Status DeviceTensors::copy(Lane& lane, const std::byte* from, const std::vector<std::byte*>& to,
                           uint64_t bytes) {
  std::vector<Target> targets;
  for (std::byte* output : to)
    if (output != from) targets.push_back({output, Dtype::u8});
  const Operand source{from, Dtype::u8};
  if (targets.empty()) return {};
  return gpu(lane).reduce(*lane.stream, targets, {&source, 1}, {.count = bytes});
}

Result<GpuSet::Pinned> DeviceTensors::stage(uint64_t slice, uint64_t bytes) {
  Result<GpuSet::Pinned> block = gpus_.take_pinned(bytes);
  if (block.ok()) pinned_[slice].push_back(*block);
  return block;
}

// ---- To and from other hosts ----

// The GPUs of a lone host write all results themselves.
HostTensor::Contributions DeviceTensors::contributions(int chunk, const Range& range) {
  if (ranks_.are_alone()) return {};
  const Staged& staged = staged_.at({chunk, range.first});
  contribution_ = staged.contribution.data;
  return {{&contribution_, 1}, nullptr, staged.dtype, staged.contribution.data};
}

std::span<std::byte* const> DeviceTensors::targets(int chunk, const Range& range) {
  target_ = ranks_.are_alone() ? nullptr : result_of(chunk, range);
  return {&target_, target_ == nullptr ? size_t{0} : 1};
}

// Where the result of the range comes to lie in host memory; null: no rank wants it.
std::byte* DeviceTensors::result_of(int chunk, const Range& range) const {
  if (ranks_.outputs(chunk, range).empty()) return nullptr;
  const Staged& staged = staged_.at({chunk, range.first});
  return staged.result.data != nullptr ? staged.result.data : staged.contribution.data;
}

Status DeviceTensors::finished(uint64_t slice) {
  if (ranks_.are_alone()) return {};
  for (int chunk = 0; chunk < geometry_.chunks(); ++chunk) {
    const Range range = geometry_.slice(chunk, slice);
    if (range.count == 0) continue;
    if (const std::byte* from = result_of(chunk, range); from != nullptr)
      copy_out(chunk, range, from);
  }
  copying_out_[slice] = end_slice(slice + 1 == geometry_.slices());
  return launch_some();
}

// Each GPU fetches what its ranks want, once.
void DeviceTensors::copy_out(int chunk, const Range& range, const std::byte* from) {
  for (const Range& piece : ranks_.pieces(chunk, range)) {
    const uint64_t at = (piece.first - range.first) * size_of(operation_.dtype);
    launches_.add(
        [this, chunk, piece, from, at] { return copy_piece_out(chunk, piece, from + at); });
  }
}

Status DeviceTensors::copy_piece_out(int chunk, const Range& range, const std::byte* from) {
  const uint64_t bytes = range.count * size_of(operation_.dtype);
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    std::vector<std::byte*> to;
    for (const RankBuffers* rank : ranks_.all())
      if (std::byte* out = ranks_.output(*rank, chunk, range); out && rank->gpu == lane->gpu)
        to.push_back(out);
    if (Status copied = copy(*lane, from, to, bytes); !copied.ok()) return copied;
  }
  return {};
}

// Links no longer read the slice's memory; GPUs may.
void DeviceTensors::released(uint64_t slice) {
  for (int chunk = 0; chunk < geometry_.chunks(); ++chunk)
    staged_.erase({chunk, geometry_.slice(chunk, slice).first});
  auto blocks = pinned_.extract(slice);
  const auto copying = copying_out_.extract(slice);
  if (!blocks.empty())
    copied_out_.emplace_back(copying.empty() ? pending_.back() : copying.mapped(),
                             std::move(blocks.mapped()));
  std::erase_if(copied_out_, [this](const auto& entry) {
    if (*entry.first != 0) return false;
    for (const GpuSet::Pinned& block : entry.second) gpus_.give_back(block);
    return true;
  });
}

}  // namespace tutti
