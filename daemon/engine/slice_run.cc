#include "daemon/engine/slice_run.h"

#include <algorithm>

namespace tutti {

namespace {

bool aligned(const void* data, Dtype dtype) {
  return reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0;
}

bool is_empty_message(const Step& step) {
  return step.kind == StepKind::notify || step.kind == StepKind::await;
}

// Only ranks' inputs are read-only, and allocate_value() never returns one.
std::byte* writable(const HostTensor::Source& place) { return const_cast<std::byte*>(place.at); }

}  // namespace

SliceRun::SliceRun(const Operation& operation, const Geometry& geometry, HostTensor& tensor,
                   uint64_t slice)
    : operation_(operation),
      tensor_(tensor),
      slice_(slice),
      sends_empty_(geometry.is_empty() || (slice == 0 && geometry.sends_empty_blocks())) {
  const ExecutionPlan& execution = *operation.execution;
  for (int chunk = 0; chunk < geometry.chunks(); ++chunk) {
    const Range range = geometry.slice(chunk, slice);
    const bool has_source = range.count != 0 && !execution.steps.empty() &&
                            host_contributes(execution.plan, execution.self, chunk);
    ranges_.push_back(range);
    values_.push_back(has_source ? tensor.source(chunk, range) : Value{nullptr, operation.dtype});
  }
}

void SliceRun::release_scratch(ScratchPool& scratch) {
  for (const ScratchPool::Block& block : scratch_blocks_) scratch.give_back(block);
  scratch_blocks_.clear();
}

// Whether the step's message is neither sent nor awaited by any host.
bool SliceRun::is_skipped(const Step& step) const {
  return !is_empty_message(step) && ranges_[step.chunk].count == 0 && !sends_empty_;
}

Result<Progress> SliceRun::advance(EngineParts& parts, Mailbox& mailbox, const Releases& releases,
                                   size_t first) {
  while (const Step* step = current_step()) {
    const bool with_first = slice_ != 0 && is_empty_message(*step);
    if (with_first && step->kind == StepKind::await && first <= next_) return Progress::blocked;
    if (!with_first && !is_skipped(*step)) {
      Result<bool> moved = execute(parts, mailbox, *step, releases);
      if (!moved.ok()) return moved.status();
      if (!*moved) return Progress::blocked;
    }
    ++next_;
  }
  if (!copied_) {
    if (Status status = copy_results(parts); !status.ok()) return status;
    copied_ = true;
  }
  return Progress::done;
}

// Whether the step was executed; false: it must wait for a frame or for room on a link.
Result<bool> SliceRun::execute(EngineParts& parts, Mailbox& mailbox, const Step& step,
                               const Releases& releases) {
  switch (step.kind) {
    case StepKind::finish: {
      const Status status = finish(parts, step);
      return status.ok() ? Result<bool>(true) : Result<bool>(status);
    }
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

Result<std::byte*> SliceRun::allocate(EngineParts& parts, size_t bytes) {
  const Result<ScratchPool::Block> block = parts.scratch.take(bytes);
  if (!block.ok()) return block.status();
  scratch_blocks_.push_back(*block);
  return block->data;
}

std::byte* SliceRun::target(int chunk) const {
  const ExecutionPlan& execution = *operation_.execution;
  const bool wanted =
      ranges_[chunk].count != 0 && host_wants(execution.plan, execution.self, chunk);
  return wanted ? tensor_.target(chunk, ranges_[chunk]) : nullptr;
}

// Memory for a new value of that type: the target if the type fits, else scratch.
Result<SliceRun::Value> SliceRun::allocate_value(EngineParts& parts, int chunk, Dtype dtype) {
  if (dtype == operation_.dtype)
    if (std::byte* at = target(chunk)) return Value{at, dtype, nullptr};
  const Value& now = values_[chunk];
  if (now.scratch != nullptr && now.dtype == dtype) return now;
  Result<std::byte*> fresh = allocate(parts, ranges_[chunk].count * size_of(dtype));
  if (!fresh.ok()) return fresh.status();
  return Value{*fresh, dtype, *fresh};
}

// Whether the next step finishes the value that this step makes.
bool SliceRun::completes(size_t step) const {
  return step + 1 < steps().size() && steps()[step + 1].kind == StepKind::finish &&
         steps()[step + 1].chunk == steps()[step].chunk;
}

// Whether the result is not read again on this host and the tensors exceed the cache.
bool SliceRun::past_cache(const EngineParts& parts, const Step& step, const std::byte* to) const {
  const ExecutionPlan& execution = *operation_.execution;
  const uint64_t ranks = execution.plan.hosts[execution.self].size();
  const uint64_t bytes = operation_.count * size_of(operation_.dtype) * ranks;
  if (bytes < parts.device.cache_bytes() || !completes(next_) || ranks > 1) return false;
  const auto later = steps().begin() + static_cast<ptrdiff_t>(next_ + 2);
  const auto again = [&](const Step& other) { return other.chunk == step.chunk; };
  return values_[step.chunk].at != to && std::none_of(later, steps().end(), again);
}

// Folds the received chunk into the host's value, and finishes it in the same pass if this is the
// last fold.
Status SliceRun::combine(EngineParts& parts, const Step& step, const Operand& received) {
  const bool complete = completes(next_);
  const Dtype dtype = complete ? operation_.dtype : accumulator_of(operation_.dtype);
  const Value own = values_[step.chunk];
  const Result<Value> to = allocate_value(parts, step.chunk, dtype);
  if (!to.ok()) return to.status();
  const Reduction how = {.count = ranges_[step.chunk].count,
                         .op = operation_.op,
                         .divisor = complete ? divisor() : 1,
                         .past_cache = past_cache(parts, step, to->at)};
  values_[step.chunk] = *to;
  next_ += complete ? 1 : 0;
  const Operand sources[] = {{own.at, own.dtype}, received};
  const Target target{writable(*to), dtype};
  return parts.device.reduce(parts.stream, {&target, 1}, sources, how);
}

Status SliceRun::finish(EngineParts& parts, const Step& step) {
  const Value from = values_[step.chunk];
  const bool is_empty = ranges_[step.chunk].count == 0;
  if (is_empty || (from.dtype == operation_.dtype && divisor() == 1)) return {};
  Result<Value> to = allocate_value(parts, step.chunk, operation_.dtype);
  if (!to.ok()) return to.status();
  values_[step.chunk] = *to;
  const Operand source{from.at, from.dtype};
  const Target target{writable(*to), operation_.dtype};
  return parts.device.reduce(
      parts.stream, {&target, 1}, {&source, 1},
      {.count = ranges_[step.chunk].count, .op = operation_.op, .divisor = divisor()});
}

Result<bool> SliceRun::send(EngineParts& parts, const Step& step, const Releases& releases) {
  if (Status status = parts.device.wait(parts.stream); !status.ok()) return status;
  const Value& own = values_[step.chunk];
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
    frame.bytes = {own.at, ranges_[step.chunk].count * size_of(own.dtype)};
  frame.released = releases(*this);
  const Status status = operation_.sender->send(operation_.id, step.peer, std::move(frame));
  if (status.code() == Code::resource_exhausted) return false;
  if (!status.ok()) return status;
  ++unreleased;
  return true;
}

// The tag of the frame that the current step waits for.
FrameTag SliceRun::expected_tag() const {
  const ExecutionPlan& execution = *operation_.execution;
  return {static_cast<uint32_t>(slice_), static_cast<uint16_t>(steps()[next_].peer),
          static_cast<uint16_t>(execution.self), static_cast<uint16_t>(execution.ordinals[next_])};
}

Result<bool> SliceRun::receive(EngineParts& parts, Mailbox& mailbox, const Step& step) {
  auto arrived = mailbox.extract(expected_tag());
  if (arrived.empty()) return false;
  const Status status = accept(parts, step, arrived.mapped());
  return status.ok() ? Result<bool>(true) : Result<bool>(status);
}

std::shared_ptr<RecvBuffer> SliceRun::recv_buffer_for(const FrameHeader& header) {
  const Step* step = current_step();
  if (step == nullptr || step->kind != StepKind::recv || recv_buffer_ != nullptr) return nullptr;
  const uint64_t bytes = ranges_[step->chunk].count * size_of(operation_.dtype);
  const bool fits = expected_tag() == tag_of(header) &&
                    header.chunk == static_cast<uint32_t>(step->chunk) &&
                    header.dtype == static_cast<uint8_t>(operation_.dtype) &&
                    header.payload_bytes == bytes && bytes != 0;
  std::byte* home = fits ? target(step->chunk) : nullptr;
  if (home == nullptr) return nullptr;
  recv_buffer_ = std::make_shared<RecvBuffer>(RecvBuffer{home});
  return recv_buffer_;
}

void SliceRun::withdraw_recv_buffer() {
  if (recv_buffer_ != nullptr) recv_buffer_->at = nullptr;
  recv_buffer_ = nullptr;
}

Status SliceRun::misfit(const Step& step) const {
  const int rank = operation_.execution->plan.hosts[step.peer].front();
  return data_loss("a frame from the host of rank " + std::to_string(rank) +
                       " does not fit the plan (other versions or settings there?)",
                   {rank, ""});
}

Status SliceRun::accept(EngineParts& parts, const Step& step, const Frame& frame) {
  const uint64_t count = step.kind == StepKind::await ? 0 : ranges_[step.chunk].count;
  const auto dtype = static_cast<Dtype>(frame.header.dtype);
  const bool known = dtype == operation_.dtype || dtype == accumulator_of(operation_.dtype);
  if (!known || frame.header.chunk != static_cast<uint32_t>(step.chunk) ||
      frame.payload.bytes() != count * size_of(dtype))
    return misfit(step);
  if (count == 0) return {};
  if (step.kind == StepKind::recv) {
    Result<Value> to = allocate_value(parts, step.chunk, dtype);
    if (!to.ok()) return to.status();
    values_[step.chunk] = *to;
    const bool landed = recv_buffer_ != nullptr && frame.payload.fragments[0].data() == to->at;
    if (!landed) frame.payload.copy_to(writable(*to));
    withdraw_recv_buffer();
    return {};
  }
  const std::vector<std::span<const std::byte>>& fragments = frame.payload.fragments;
  const std::byte* received = fragments.size() == 1 ? fragments[0].data() : nullptr;
  if (received == nullptr || !aligned(received, dtype)) {
    Result<std::byte*> gathered = allocate(parts, frame.payload.bytes());
    if (!gathered.ok()) return gathered.status();
    frame.payload.copy_to(*gathered);
    received = *gathered;
  }
  Status status = combine(parts, step, {received, dtype});
  if (status.ok()) status = parts.device.wait(parts.stream);  // The frame's memory is freed next.
  return status;
}

// Copies results that no step wrote to their targets: a root's own, the host's own blocks.
Status SliceRun::copy_results(EngineParts& parts) {
  for (int chunk = 0; chunk < static_cast<int>(ranges_.size()) && !steps().empty(); ++chunk) {
    const Value& final_value = values_[chunk];
    std::byte* home = target(chunk);
    if (home == nullptr || home == final_value.at) continue;
    if (final_value.dtype != operation_.dtype)
      return data_loss("a peer sent a partial sum where the plan has the result");
    Status status = parts.device.copy(parts.stream, home, final_value.at,
                                      ranges_[chunk].count * size_of(operation_.dtype));
    if (!status.ok()) return status;
  }
  return parts.device.wait(parts.stream);
}

}  // namespace tutti
