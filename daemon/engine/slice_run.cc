#include "daemon/engine/slice_run.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti {

namespace {

bool aligned(const void* data, Dtype dtype) {
  return reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0;
}

bool is_empty_message(const Step& step) {
  return step.kind == StepKind::notify || step.kind == StepKind::await;
}

// In the step's message, side by side.
uint64_t values_in(const Step& step) { return static_cast<uint64_t>(std::max(1, step.ranks)); }

// Only ranks' inputs are read-only, and allocate_value() never returns one.
template <class Value>
std::byte* writable(const Value& place) {
  return const_cast<std::byte*>(place.at);
}

// Others fold ranges of at least so many bytes, of which they read or write so many in all: for
// less, it takes longer to call them.
constexpr uint64_t kHelpedBytesMin = 64 * 1024;
constexpr uint64_t kHelpedSumMin = 1024 * 1024;

// Frames that wait to be folded at once, at most.
constexpr size_t kFramesMax = 64;

constexpr Operand kNothing{nullptr, Dtype::f32};
constexpr Strategy kInOrder{StrategyKind::centralized};

// The association of one value.
const Folds& one_fold() {
  static const Folds one = local_folds(kInOrder, 1);
  return one;
}

// Whether any step of the chunk, from that one on, is such.
template <class Is>
bool any_from(const ExecutionPlan& execution, size_t first, int chunk, Is is) {
  const std::vector<Step>& steps = execution.steps;
  const auto from = steps.begin() + static_cast<ptrdiff_t>(std::min(first, steps.size()));
  return std::any_of(from, steps.end(),
                     [&](const Step& step) { return step.chunk == chunk && is(step); });
}

// Whether the next step finishes the value that this step makes.
bool completes(const ExecutionPlan& execution, size_t step) {
  const std::vector<Step>& steps = execution.steps;
  return step + 1 < steps.size() && steps[step + 1].kind == StepKind::finish &&
         steps[step + 1].chunk == steps[step].chunk;
}

// Whether what the step receives is combined with more before it is needed.
bool is_term(const ExecutionPlan& execution, size_t step) {
  const Step& receives = execution.steps[step];
  if (!execution.plan.reproducible || receives.kind == StepKind::await) return false;
  return any_from(execution, step, receives.chunk, [](const Step& other) {
    return other.kind == StepKind::recv_reduce || other.kind == StepKind::add;
  });
}

// Whether that or a later step takes, adds or packs contributions to the chunk.
bool needs_ranks(const ExecutionPlan& execution, size_t step, int chunk) {
  return execution.plan.reproducible && any_from(execution, step, chunk, [](const Step& other) {
           return other.peer < 0 && other.ranks != 0;
         });
}

}  // namespace

SliceRun::SliceRun(const Operation& operation, const Geometry& geometry, HostTensor& tensor,
                   uint64_t slice)
    : operation_(operation),
      tensor_(tensor),
      slice_(slice),
      is_only_slice_(geometry.slices() == 1),
      sends_empty_(geometry.is_empty() || (slice == 0 && geometry.sends_empty_blocks())) {
  const ExecutionPlan& execution = *operation.execution;
  ranges_.reserve(static_cast<size_t>(geometry.chunks()));
  values_.reserve(static_cast<size_t>(geometry.chunks()));
  for (int chunk = 0; chunk < geometry.chunks(); ++chunk) {
    const Range range = geometry.slice(chunk, slice);
    ranges_.push_back(range);
    values_.push_back({nullptr, operation.dtype});
    if (range.count == 0 || !host_contributes(execution.plan, execution.self, chunk)) continue;
    if (execution.plan.reproducible && !execution.steps.empty()) continue;
    const HostTensor::Contributions own = tensor.contributions(chunk, range);
    if (own.at.size() == 1) values_.back() = {own.at[0], own.dtype, own.scratch};
  }
}

void SliceRun::release_scratch() {
  for (const Scratch& scratch : scratch_) scratch.pool->give_back(scratch.block);
  scratch_.clear();
}

// Whether the step's message is neither sent nor awaited by any host.
bool SliceRun::is_skipped(const Step& step) const {
  return !is_empty_message(step) && ranges_[step.chunk].count == 0 && !sends_empty_;
}

Result<Progress> SliceRun::advance(EngineParts& parts, Mailbox& mailbox, const Releases& releases,
                                   size_t first) {
  while (const Step* step = current_step()) {
    if (is_folding()) return Progress::blocked;
    const bool with_first = slice_ != 0 && is_empty_message(*step);
    if (with_first && step->kind == StepKind::await && first <= next_) return Progress::blocked;
    if (!with_first && !is_skipped(*step)) {
      Result<bool> moved = execute(parts, mailbox, *step, releases);
      if (!moved.ok()) return moved.status();
      if (!*moved) return Progress::blocked;
    }
    ++next_;
  }
  if (is_folding()) return Progress::blocked;
  if (!copied_) {
    if (Status status = copy_results(parts); !status.ok()) return status;
    copied_ = true;
  }
  return is_folding() ? Progress::blocked : Progress::done;
}

// Whether the step was executed; false: it must wait for a frame or for room on a link.
Result<bool> SliceRun::execute(EngineParts& parts, Mailbox& mailbox, const Step& step,
                               const Releases& releases) {
  switch (step.kind) {
    case StepKind::finish: {
      const Status status = finish(parts, step);
      return status.ok() ? Result<bool>(true) : Result<bool>(status);
    }
    case StepKind::take:
    case StepKind::add:
    case StepKind::pack:
      return contribute(parts, step);
    case StepKind::send:
    case StepKind::notify:
      return send(parts, step, releases);
    case StepKind::recv:
    case StepKind::recv_reduce:
    case StepKind::await:
      return receive(parts, mailbox, step);
  }
  return internal_error("unknown step");
}

uint32_t SliceRun::divisor() const {
  return operation_.op == Op::mean ? static_cast<uint32_t>(world_size(operation_.execution->plan))
                                   : 1;
}

Result<std::byte*> SliceRun::allocate(ScratchPool& pool, size_t bytes) {
  const Result<ScratchPool::Block> block = pool.take(bytes);
  if (!block.ok()) return block.status();
  scratch_.push_back({&pool, *block});
  return block->data;
}

// For a value of that size: where others reach it, if they may fold it.
ScratchPool& SliceRun::pool_for(EngineParts& parts, size_t bytes) const {
  const bool helps = operation_.helpers != nullptr && bytes >= kHelpedBytesMin;
  return helps ? operation_.helpers->memory() : parts.scratch;
}

// Where the host's ranks want the chunk; empty: none does.
std::span<std::byte* const> SliceRun::targets(int chunk) const {
  const ExecutionPlan& execution = *operation_.execution;
  const bool wanted =
      ranges_[chunk].count != 0 && host_wants(execution.plan, execution.self, chunk);
  return wanted ? tensor_.targets(chunk, ranges_[chunk]) : std::span<std::byte* const>();
}

// Memory for a new value of that type: the first target if the type fits, else scratch. Targets may
// be inputs: not as long as the chunk needs those.
Result<SliceRun::Value> SliceRun::allocate_value(EngineParts& parts, int chunk, Dtype dtype) {
  if (dtype == operation_.dtype && !needs_ranks(*operation_.execution, next_, chunk))
    if (const auto all = targets(chunk); !all.empty()) return Value{all[0], dtype};
  const Value& now = values_[chunk];
  if (now.scratch != nullptr && now.dtype == dtype) return now;
  const size_t bytes = ranges_[chunk].count * size_of(dtype);
  Result<std::byte*> fresh = allocate(pool_for(parts, bytes), bytes);
  if (!fresh.ok()) fresh = allocate(parts.scratch, bytes);
  if (!fresh.ok()) return fresh.status();
  return Value{*fresh, dtype, *fresh};
}

// Whether the tensors exceed the cache, and the chunk's complete value is not read again here.
bool SliceRun::past_cache(const EngineParts& parts, int chunk) const {
  const ExecutionPlan& execution = *operation_.execution;
  const uint64_t ranks = execution.plan.hosts[execution.self].size();
  if (operation_.count * size_of(operation_.dtype) * ranks < parts.device.cache_bytes())
    return false;
  return !any_from(execution, next_ + 1, chunk,
                   [](const Step& later) { return later.kind == StepKind::send; });
}

// Makes a new value of the host's value, or of its contributions where there is none yet, and what
// a peer has sent, in one pass over memory. A complete one is written to all targets.
Status SliceRun::fold(EngineParts& parts, int chunk, const Operand& carry, bool complete) {
  const Value own = values_[chunk];
  Targets to;
  if (Status s = choose_targets(parts, chunk, complete, to); !s.ok()) return s;
  return reduce(parts, chunk, own, carry, {to.at.data(), to.count}, complete);
}

// Where the chunk's new value is written to. Says so in values_.
Status SliceRun::choose_targets(EngineParts& parts, int chunk, bool complete, Targets& to) {
  const Dtype dtype = complete ? operation_.dtype : accumulator_of(operation_.dtype);
  if (complete)
    for (std::byte* at : targets(chunk)) to.at[to.count++] = {at, dtype};
  if (to.count != 0) {
    values_[chunk] = {static_cast<std::byte*>(to.at[0].data), dtype, nullptr, true};
    return {};
  }
  const Result<Value> place = allocate_value(parts, chunk, dtype);
  if (!place.ok()) return place.status();
  values_[chunk] = *place;
  to.at[to.count++] = {writable(*place), dtype};
  return {};
}

Status SliceRun::reduce(EngineParts& parts, int chunk, const Value& own, const Operand& carry,
                        std::span<const Target> to, bool complete) {
  const bool is_folded = own.at != nullptr;
  const HostTensor::Contributions all =
      is_folded ? HostTensor::Contributions() : tensor_.contributions(chunk, ranges_[chunk]);
  const std::span<const std::byte* const> from =
      is_folded ? std::span<const std::byte* const>(&own.at, 1) : all.at;
  if (!is_folded && from.size() < 2) return internal_error("a chunk without contributions");
  const auto is_source = [&](const Target& target) {
    return std::ranges::find(from, target.data) != from.end();
  };
  FoldWork work{
      .folds = is_folded ? one_fold() : *all.folds,
      .contributions = from,
      .targets = to,
      .dtype = own.dtype,
      .op = operation_.op,
      .count = ranges_[chunk].count,
      .divisor = complete ? divisor() : 1,
      .past_cache = complete && past_cache(parts, chunk) && std::ranges::none_of(to, is_source),
      .carry = carry};
  return run(parts, work, is_folded ? kInOrder : operation_.execution->plan.strategies.local);
}

// ---- Terms: reproducible plans ----

// To which more can be added; a value that there is already is the first.
SliceRun::Terms& SliceRun::begin_terms(int chunk, bool afresh) {
  if (terms_.empty()) terms_.resize(ranges_.size());
  Terms& terms = terms_[chunk];
  if (afresh) terms = {};
  if (!afresh && terms.empty()) terms.first = {values_[chunk].at, values_[chunk].dtype};
  return terms;
}

// Takes, adds or packs contributions of the host's ranks, in their order. False: what there is must
// be folded first, and others do that. What is packed is copied, as results may be written over
// inputs before others have taken those.
Result<bool> SliceRun::contribute(EngineParts& parts, const Step& step) {
  if (ranges_[step.chunk].count == 0) return true;
  const bool packs = step.kind == StepKind::pack;
  Terms* terms = packs ? nullptr : &begin_terms(step.chunk, step.kind == StepKind::take);
  if (!packs && terms->rest.size() + static_cast<size_t>(step.ranks) > kLocalRanksMax) {
    if (Status folded = fold_terms(parts, step.chunk, false); !folded.ok()) return folded;
    if (is_folding()) return false;
    terms = &begin_terms(step.chunk, false);
  }
  const HostTensor::Contributions all = tensor_.contributions(step.chunk, ranges_[step.chunk]);
  if (all.dtype != operation_.dtype) return internal_error("contributions that were combined");
  const auto some = all.at.subspan(static_cast<size_t>(step.first), step.ranks);
  if (packs) {
    const size_t bytes = ranges_[step.chunk].count * size_of(operation_.dtype);
    const Result<std::byte*> copies = allocate(parts.scratch, bytes * some.size());
    if (!copies.ok()) return copies.status();
    for (size_t i = 0; i < some.size(); ++i)
      if (Status s = parts.device.copy(parts.stream, *copies + i * bytes, some[i], bytes); !s.ok())
        return s;
    values_[step.chunk] = {*copies, operation_.dtype};
    parts.folded_bytes += bytes * some.size();
    return true;
  }
  terms->rest.insert(terms->rest.end(), some.begin(), some.end());
  return true;
}

// Adds what a peer sent, where it lies. `received`: in `frame`, or in scratch.
Status SliceRun::keep_frame(EngineParts& parts, const Step& step, const Operand& received,
                            Frame&& frame) {
  Terms& terms = begin_terms(step.chunk, step.kind == StepKind::recv);
  terms.frames.push_back(std::move(frame));
  if (received.dtype == operation_.dtype) {
    const auto* const at = static_cast<const std::byte*>(received.data);
    for (uint64_t i = 0; i < values_in(step); ++i)
      terms.rest.push_back(at + i * ranges_[step.chunk].count * size_of(received.dtype));
    require(terms.rest.size() <= kLocalRanksMax, "a fold of more terms than fit");
    return terms.rest.size() < kFramesMax ? Status() : fold_terms(parts, step.chunk, false);
  }
  if (!terms.empty() || step.ranks != 0) return misfit(step);
  terms.first = received;
  return {};
}

// The terms become the chunk's value.
Status SliceRun::fold_terms(EngineParts& parts, int chunk, bool complete) {
  if (terms_.empty() || terms_[chunk].empty()) return {};
  Terms terms = std::exchange(terms_[chunk], {});
  const bool is_one = terms.first.data == nullptr && terms.rest.size() == 1;
  if (is_one && terms.frames.empty() && !complete) {
    values_[chunk] = {terms.rest[0], operation_.dtype};
    return {};
  }
  Targets to;
  if (Status s = choose_targets(parts, chunk, complete, to); !s.ok()) return s;
  Dtype dtype = operation_.dtype;
  if (terms.rest.empty()) {
    terms.rest = {static_cast<const std::byte*>(terms.first.data)};
    dtype = std::exchange(terms.first, {nullptr, Dtype::f32}).dtype;
  }
  const auto is_source = [&](const Target& target) {
    return target.data == terms.first.data ||
           std::ranges::find(terms.rest, target.data) != terms.rest.end();
  };
  const std::span<const Target> all(to.at.data(), to.count);
  const Folds folds = local_folds(kInOrder, static_cast<int>(terms.rest.size()));
  FoldWork work{
      .folds = folds,
      .contributions = terms.rest,
      .targets = all,
      .dtype = dtype,
      .op = operation_.op,
      .count = ranges_[chunk].count,
      .divisor = complete ? divisor() : 1,
      .past_cache = complete && past_cache(parts, chunk) && std::ranges::none_of(all, is_source),
      .carry = terms.first,
      .carry_first = true};
  if (Status status = run(parts, work, kInOrder); !status.ok()) return status;
  return parts.device.wait(parts.stream);  // Frames are freed next: see Terms.
}

// Does the fold, unless others do, which the slice waits for then. `local`: as `folds` associates.
Status SliceRun::run(EngineParts& parts, FoldWork& work, const Strategy& local) {
  if (others_fold(work, local)) return {};
  parts.folded_bytes += read_bytes(work);
  if (work.folds.size() > 1) {
    const size_t bytes = scratch_bytes(work.folds.size(), work.dtype);
    const Result<std::byte*> inner = allocate(parts.scratch, bytes);
    if (!inner.ok()) return inner.status();
    work.scratch = {*inner, bytes};
  }
  Status status;
  run_folds(work, [&](const FoldJob& job) {
    status = parts.device.reduce(parts.stream, {job.targets, job.target_count},
                                 {job.sources, job.source_count},
                                 {job.count, job.op, job.divisor, job.past_cache});
    return status.ok();
  });
  return status;
}

bool SliceRun::others_fold(const FoldWork& work, const Strategy& local) {
  if (operation_.helpers == nullptr) return false;
  const size_t bytes = work.count * size_of(work.dtype);
  const size_t all = bytes * std::max(work.contributions.size(), work.targets.size());
  if (bytes < kHelpedBytesMin || all < kHelpedSumMin) return false;
  std::shared_ptr<const int> parts = operation_.helpers->start(work, local);
  if (parts == nullptr) return false;
  if (!is_folding()) folds_.clear();
  folds_.push_back(std::move(parts));
  return true;
}

Status SliceRun::finish(EngineParts& parts, const Step& step) {
  if (!terms_.empty() && !terms_[step.chunk].empty()) return fold_terms(parts, step.chunk, true);
  const Value& value = values_[step.chunk];
  const bool is_done = value.at != nullptr && value.dtype == operation_.dtype && divisor() == 1;
  if (is_done || ranges_[step.chunk].count == 0) return {};
  return fold(parts, step.chunk, kNothing, true);
}

Result<bool> SliceRun::send(EngineParts& parts, const Step& step, const Releases& releases) {
  const Value& own = values_[step.chunk];
  if (step.kind == StepKind::send)
    if (Status folded = fold_terms(parts, step.chunk, false); !folded.ok()) return folded;
  if (step.kind == StepKind::send && own.at == nullptr && ranges_[step.chunk].count != 0)
    if (Status folded = fold(parts, step.chunk, kNothing, false); !folded.ok()) return folded;
  if (is_folding()) return false;
  if (Status status = parts.device.wait(parts.stream); !status.ok()) return status;
  Outgoing frame;
  frame.header.epoch = operation_.id.epoch;
  frame.header.group = operation_.id.group;
  frame.header.op_seq = operation_.id.number;
  frame.header.agreement = operation_.agreement;
  frame.header.slice = static_cast<uint32_t>(slice_);
  frame.header.chunk = static_cast<uint32_t>(step.chunk);
  frame.header.from = static_cast<uint16_t>(operation_.execution->self);
  frame.header.to = static_cast<uint16_t>(step.peer);
  frame.header.ordinal = static_cast<uint16_t>(operation_.execution->ordinals[next_]);
  frame.header.dtype = static_cast<uint8_t>(own.dtype);
  if (step.kind == StepKind::send)
    frame.bytes = {own.at, ranges_[step.chunk].count * values_in(step) * size_of(own.dtype)};
  frame.released = releases(*this);
  const Status status = operation_.sender->send(operation_.id, step.peer, std::move(frame));
  if (status.code() == Code::resource_exhausted) return false;
  if (!status.ok()) return status;
  ++unreleased;
  return true;
}

// The tag of the frame that the step waits for.
FrameTag SliceRun::tag_of_step(size_t step) const {
  const ExecutionPlan& execution = *operation_.execution;
  return {static_cast<uint32_t>(slice_), static_cast<uint16_t>(steps()[step].peer),
          static_cast<uint16_t>(execution.self), static_cast<uint16_t>(execution.ordinals[step])};
}

Result<bool> SliceRun::receive(EngineParts& parts, Mailbox& mailbox, const Step& step) {
  auto arrived = mailbox.extract(expected_tag());
  if (arrived.empty()) {
    // Folds while the frame is on its way. Several slices fold faster in one pass with it.
    const bool folds = is_only_slice_ && step.kind == StepKind::recv_reduce &&
                       !is_term(*operation_.execution, next_) &&
                       values_[step.chunk].at == nullptr && ranges_[step.chunk].count != 0;
    const Status folded = folds ? fold(parts, step.chunk, kNothing, false) : Status();
    return folded.ok() ? Result<bool>(false) : Result<bool>(folded);
  }
  const Status status = accept(parts, step, std::move(arrived.mapped()));
  return status.ok() ? Result<bool>(true) : Result<bool>(status);
}

std::shared_ptr<RecvBuffer> SliceRun::recv_buffer_for(const FrameHeader& header) {
  const Step* step = current_step();
  if (step == nullptr || step->kind != StepKind::recv || expected_tag() != tag_of(header) ||
      is_term(*operation_.execution, next_))
    return carry_buffer_for(header);
  if (recv_buffer_ != nullptr || is_folding() ||
      needs_ranks(*operation_.execution, next_, step->chunk))
    return nullptr;
  const uint64_t bytes = ranges_[step->chunk].count * size_of(operation_.dtype);
  const bool fits = header.chunk == static_cast<uint32_t>(step->chunk) &&
                    header.dtype == static_cast<uint8_t>(operation_.dtype) &&
                    header.payload_bytes == bytes && bytes != 0;
  const auto all = fits ? targets(step->chunk) : std::span<std::byte* const>();
  if (all.empty()) return nullptr;
  recv_buffer_ = std::make_shared<RecvBuffer>(all[0]);
  return recv_buffer_;
}

// For a frame that this or a later step folds: memory that others reach.
std::shared_ptr<RecvBuffer> SliceRun::carry_buffer_for(const FrameHeader& header) {
  if (operation_.helpers == nullptr || header.payload_bytes < kHelpedBytesMin) return nullptr;
  for (size_t step = next_; step < steps().size(); ++step) {
    const bool receives = steps()[step].kind == StepKind::recv;
    const bool is_carry = steps()[step].kind == StepKind::recv_reduce ||
                          (receives && is_term(*operation_.execution, step));
    if (!is_carry || tag_of_step(step) != tag_of(header)) continue;
    const bool fits = header.dtype < kDtypes && !carry_buffers_.contains(step) &&
                      header.payload_bytes == ranges_[steps()[step].chunk].count *
                                                  size_of(static_cast<Dtype>(header.dtype));
    if (!fits) return nullptr;
    const Result<std::byte*> at = allocate(operation_.helpers->memory(), header.payload_bytes);
    if (!at.ok()) return nullptr;
    return carry_buffers_[step] = std::make_shared<RecvBuffer>(*at);
  }
  return nullptr;
}

void SliceRun::withdraw_recv_buffers() {
  if (recv_buffer_ != nullptr) recv_buffer_->withdraw();
  recv_buffer_ = nullptr;
  for (const auto& [step, buffer] : carry_buffers_) buffer->withdraw();
  carry_buffers_.clear();
}

Status SliceRun::misfit(const Step& step) const {
  const int rank = operation_.execution->plan.hosts[step.peer].front();
  return data_loss("a frame from the host of rank " + std::to_string(rank) +
                       " does not fit the plan (other versions or settings there?)",
                   {rank, ""});
}

Status SliceRun::accept(EngineParts& parts, const Step& step, Frame&& frame) {
  const uint64_t count =
      step.kind == StepKind::await ? 0 : ranges_[step.chunk].count * values_in(step);
  const auto dtype = static_cast<Dtype>(frame.header.dtype);
  const bool known = dtype == operation_.dtype || dtype == accumulator_of(operation_.dtype);
  if (!known || frame.header.chunk != static_cast<uint32_t>(step.chunk) ||
      frame.payload.bytes() != count * size_of(dtype))
    return misfit(step);
  if (count == 0) return {};
  if (step.kind == StepKind::recv && !is_term(*operation_.execution, next_)) {
    Result<Value> to = allocate_value(parts, step.chunk, dtype);
    if (!to.ok()) return to.status();
    values_[step.chunk] = *to;
    const bool landed = recv_buffer_ != nullptr && frame.payload.fragments[0].data() == to->at;
    if (!landed) frame.payload.copy_to(writable(*to));
    if (recv_buffer_ != nullptr) recv_buffer_->withdraw();
    recv_buffer_ = nullptr;
    return {};
  }
  const std::vector<std::span<const std::byte>>& fragments = frame.payload.fragments;
  const std::byte* received = fragments.size() == 1 ? fragments[0].data() : nullptr;
  if (received == nullptr || !aligned(received, dtype)) {
    Result<std::byte*> gathered = allocate(parts.scratch, frame.payload.bytes());
    if (!gathered.ok()) return gathered.status();
    frame.payload.copy_to(*gathered);
    received = *gathered;
  }
  if (operation_.execution->plan.reproducible)
    return keep_frame(parts, step, {received, dtype}, std::move(frame));
  const bool complete = completes(*operation_.execution, next_);
  Status status = fold(parts, step.chunk, {received, dtype}, complete);
  next_ += complete ? 1 : 0;                                  // The value is finished, too.
  if (status.ok()) status = parts.device.wait(parts.stream);  // The frame's memory is freed next.
  return status;
}

// Writes results that are not at their targets yet: those that came from a peer, a root's own, the
// host's own blocks. A host alone, which has no steps, folds here.
Status SliceRun::copy_results(EngineParts& parts) {
  const bool folds = steps().empty() && reduces(operation_.execution->plan.collective);
  for (int chunk = 0; chunk < static_cast<int>(ranges_.size()); ++chunk) {
    const auto all = targets(chunk);
    if (all.empty() || values_[chunk].is_at_targets) continue;
    Status status = folds ? fold(parts, chunk, kNothing, true) : copy_result(parts, chunk, all);
    if (!status.ok()) return status;
  }
  return parts.device.wait(parts.stream);
}

// Whether others copy the value to where it is wanted: as bytes, so that they stay as they are.
bool SliceRun::others_copy(int chunk, std::span<std::byte* const> to) {
  const Value& value = values_[chunk];
  std::array<Target, kLocalRanksMax> targets;  // NOLINT: filled as far as it is used.
  size_t count = 0;
  for (std::byte* home : to)
    if (home != value.at) targets[count++] = {home, Dtype::u8};
  return count != 0 && others_fold({.folds = one_fold(),
                                    .contributions = {&value.at, 1},
                                    .targets = {targets.data(), count},
                                    .dtype = Dtype::u8,
                                    .count = ranges_[chunk].count * size_of(operation_.dtype)},
                                   kInOrder);
}

Status SliceRun::copy_result(EngineParts& parts, int chunk, std::span<std::byte* const> to) {
  const Value& value = values_[chunk];
  if (value.at == nullptr) return internal_error("a chunk without a value");
  if (value.dtype != operation_.dtype)
    return data_loss("a peer sent a partial sum where the plan has the result");
  if (others_copy(chunk, to)) return {};
  const size_t bytes = ranges_[chunk].count * size_of(operation_.dtype);
  for (std::byte* home : to) {
    if (home == value.at) continue;
    if (Status s = parts.device.copy(parts.stream, home, value.at, bytes); !s.ok()) return s;
    parts.folded_bytes += bytes;
  }
  return {};
}

}  // namespace tutti
