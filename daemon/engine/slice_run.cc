#include "daemon/engine/slice_run.h"

#include <algorithm>

namespace tutti {

namespace {

FrameTag tag_of(uint64_t slice, const Move& move) {
  return {static_cast<uint32_t>(slice), static_cast<uint16_t>(move.peer),
          static_cast<uint16_t>(move.rank), static_cast<uint16_t>(move.ordinal)};
}

FrameTag tag_of(const FrameHeader& header) {
  return {header.slice, header.from, header.to, header.ordinal};
}

bool aligned(const void* data, Dtype dtype) {
  return reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0;
}

}  // namespace

SliceRun::SliceRun(const Operation& operation, const Geometry& geometry, uint64_t slice)
    : operation_(operation), geometry_(geometry), slice_(slice) {
  const int chunks = chunk_count(operation.recipe->plan);
  for (int chunk = 0; chunk < chunks; ++chunk) ranges_.push_back(geometry.slice(chunk, slice));
  for (const RankBuffers& buffers : operation.local) {
    local_index_.emplace(buffers.rank, local_index_.size());
    for (int chunk = 0; chunk < chunks; ++chunk)
      values_.push_back({geometry.input(buffers, chunk, ranges_[chunk]), operation.dtype});
  }
}

const Move* SliceRun::at() const {
  return next_ < operation_.recipe->moves.size() ? &operation_.recipe->moves[next_] : nullptr;
}

void SliceRun::recycle(Scratch& scratch) {
  for (const Scratch::Block& block : taken_) scratch.give_back(block);
  taken_.clear();
}

// Homes and scratch are ours to write; only inputs are not, and place() never answers with one.
std::byte* SliceRun::writable(const Value& place) { return const_cast<std::byte*>(place.at); }

SliceRun::Value& SliceRun::value(int rank, int chunk) {
  return values_[local_index_.at(rank) * ranges_.size() + static_cast<size_t>(chunk)];
}

Result<Progress> SliceRun::advance(EngineParts& parts, Mailbox& mailbox, const Releases& releases) {
  while (const Move* move = at()) {
    if (ranges_[move->chunk].count != 0) {
      Result<bool> moved = run(parts, mailbox, *move, releases);
      if (!moved.ok()) return moved.status();
      if (!*moved) return Progress::blocked;
    }
    ++next_;
  }
  if (!settled_) {
    if (Status status = settle(parts); !status.ok()) return status;
    settled_ = true;
  }
  return Progress::done;
}

// Whether the move could be made; false: it must wait for a frame or for room on a link.
Result<bool> SliceRun::run(EngineParts& parts, Mailbox& mailbox, const Move& move,
                           const Releases& releases) {
  const auto made = [](const Status& status) -> Result<bool> {
    return status.ok() ? Result<bool>(true) : Result<bool>(status);
  };
  switch (move.kind) {
    case MoveKind::fold:
      return made(fold(parts, move));
    case MoveKind::spread:
      return made(spread(parts, move));
    case MoveKind::finish:
      return made(finish(parts, move));
    case MoveKind::send:
      return send(parts, move, releases);
    case MoveKind::recv:
    case MoveKind::recv_reduce:
      return receive(parts, mailbox, move);
  }
  return internal_error("unknown move");
}

uint32_t SliceRun::divisor() const {
  return operation_.op == Op::mean ? static_cast<uint32_t>(world_size(operation_.recipe->plan)) : 1;
}

// The move `steps` behind the present one, where it is of that kind and of that chunk.
const Move* SliceRun::behind(size_t steps, MoveKind kind, int chunk) const {
  const std::vector<Move>& moves = operation_.recipe->moves;
  if (next_ + steps >= moves.size()) return nullptr;
  const Move& then = moves[next_ + steps];
  return then.kind == kind && then.chunk == chunk ? &then : nullptr;
}

// A value that is at once complete is stored divided and rounded, and one that is at once spread,
// into every place: passes over memory saved. Those moves are made with this one.
SliceRun::Outcome SliceRun::outcome(const Move& move) const {
  Outcome out{.holders = {move.rank}};
  const Move* finish = behind(1, MoveKind::finish, move.chunk);
  out.complete = finish != nullptr && finish->rank == move.rank;
  out.moves = out.complete ? 1 : 0;
  while (const Move* spread = behind(out.moves + 1, MoveKind::spread, move.chunk)) {
    if (std::ranges::find(out.holders, spread->rank) == out.holders.end()) break;
    out.holders.insert(out.holders.end(), spread->others.begin(), spread->others.end());
    ++out.moves;
  }
  return out;
}

Result<std::byte*> SliceRun::take(EngineParts& parts, size_t bytes) {
  const Result<Scratch::Block> block = parts.scratch.take(bytes);
  if (!block.ok()) return block.status();
  taken_.push_back(*block);
  return block->data;
}

// Memory for a new value of that type: the rank's own result where it fits, else scratch.
Result<SliceRun::Value> SliceRun::place(EngineParts& parts, int rank, int chunk, Dtype dtype) {
  const RankBuffers& buffers = operation_.local[local_index_.at(rank)];
  std::byte* home = geometry_.home(buffers, chunk, ranges_[chunk]);
  if (home != nullptr && dtype == operation_.dtype) return Value{home, dtype, nullptr};
  const Value& now = value(rank, chunk);
  if (now.scratch != nullptr && now.dtype == dtype) return now;
  Result<std::byte*> fresh = take(parts, ranges_[chunk].count * size_of(dtype));
  if (!fresh.ok()) return fresh.status();
  return Value{*fresh, dtype, *fresh};
}

// Where every holder's value of that type belongs; each then has it there.
Result<std::vector<Target>> SliceRun::place_all(EngineParts& parts, const std::vector<int>& holders,
                                                int chunk, Dtype dtype) {
  std::vector<Target> targets;
  for (const int rank : holders) {
    Result<Value> to = place(parts, rank, chunk, dtype);
    if (!to.ok()) return to.status();
    value(rank, chunk) = *to;
    const auto same = [&](const Target& target) { return target.data == to->at; };
    if (std::ranges::none_of(targets, same)) targets.push_back({writable(*to), dtype});
  }
  return targets;
}

// Whether nobody here reads the result again, and all there is does not fit the cache anyway.
bool SliceRun::past_cache(const EngineParts& parts, const Outcome& out,
                          std::span<const Target> targets, std::span<const Operand> sources) const {
  const Recipe& recipe = *operation_.recipe;
  const uint64_t bytes = operation_.count * size_of(operation_.dtype) * operation_.local.size();
  if (bytes < parts.device.cache_bytes() || !out.complete) return false;
  const int chunk = recipe.moves[next_].chunk;
  const auto again = [&](const Move& move) { return move.chunk == chunk; };
  const auto later = recipe.moves.begin() + static_cast<ptrdiff_t>(next_ + out.moves + 1);
  if (std::any_of(later, recipe.moves.end(), again)) return false;
  return std::ranges::none_of(targets, [&](const Target& target) {
    return std::ranges::find(sources, target.data, &Operand::data) != sources.end();
  });
}

Status SliceRun::combine(EngineParts& parts, const Move& move, std::span<const Operand> sources) {
  const Outcome out = outcome(move);
  const Dtype dtype = out.complete ? operation_.dtype : accumulator_of(operation_.dtype);
  const Result<std::vector<Target>> targets = place_all(parts, out.holders, move.chunk, dtype);
  if (!targets.ok()) return targets.status();
  const Reduction how = {.count = ranges_[move.chunk].count,
                         .op = operation_.op,
                         .divisor = out.complete ? divisor() : 1,
                         .past_cache = past_cache(parts, out, *targets, sources)};
  next_ += out.moves;
  return parts.device.reduce(parts.stream, *targets, sources, how);
}

Status SliceRun::fold(EngineParts& parts, const Move& move) {
  std::vector<Operand> sources;
  const Value own = value(move.rank, move.chunk);
  sources.push_back({own.at, own.dtype});
  for (const int other : move.others) {
    const Value& theirs = value(other, move.chunk);
    sources.push_back({theirs.at, theirs.dtype});
  }
  return combine(parts, move, sources);
}

Status SliceRun::finish(EngineParts& parts, const Move& move) {
  const Value from = value(move.rank, move.chunk);
  if (from.dtype == operation_.dtype && divisor() == 1) return {};
  Result<Value> to = place(parts, move.rank, move.chunk, operation_.dtype);
  if (!to.ok()) return to.status();
  value(move.rank, move.chunk) = *to;
  const Operand source{from.at, from.dtype};
  const Target target{writable(*to), operation_.dtype};
  return parts.device.reduce(
      parts.stream, {&target, 1}, {&source, 1},
      {.count = ranges_[move.chunk].count, .op = operation_.op, .divisor = divisor()});
}

Status SliceRun::store(EngineParts& parts, int rank, int chunk, Value from) {
  Result<Value> to = place(parts, rank, chunk, from.dtype);
  if (!to.ok()) return to.status();
  value(rank, chunk) = *to;
  if (to->at == from.at) return {};
  return parts.device.copy(parts.stream, writable(*to), from.at,
                           ranges_[chunk].count * size_of(from.dtype));
}

Status SliceRun::spread(EngineParts& parts, const Move& move) {
  const Value from = value(move.rank, move.chunk);
  for (const int other : move.others)
    if (Status status = store(parts, other, move.chunk, from); !status.ok()) return status;
  return {};
}

Result<bool> SliceRun::send(EngineParts& parts, const Move& move, const Releases& releases) {
  if (Status status = parts.device.wait(parts.stream); !status.ok()) return status;
  const Value& own = value(move.rank, move.chunk);
  Outgoing frame;
  frame.header.epoch = operation_.key.epoch;
  frame.header.group = operation_.key.group;
  frame.header.op_seq = operation_.key.seq;
  frame.header.slice = static_cast<uint32_t>(slice_);
  frame.header.chunk = static_cast<uint32_t>(move.chunk);
  frame.header.from = static_cast<uint16_t>(move.rank);
  frame.header.to = static_cast<uint16_t>(move.peer);
  frame.header.ordinal = static_cast<uint16_t>(move.ordinal);
  frame.header.dtype = static_cast<uint8_t>(own.dtype);
  frame.bytes = {own.at, ranges_[move.chunk].count * size_of(own.dtype)};
  frame.released = releases(*this);
  const Status status = parts.wire.send(operation_.key, move.peer, std::move(frame));
  if (status.code() == Code::resource_exhausted) return false;
  if (!status.ok()) return status;
  ++unreleased;
  return true;
}

Result<bool> SliceRun::receive(EngineParts& parts, Mailbox& mailbox, const Move& move) {
  auto arrived = mailbox.extract(tag_of(slice_, move));
  if (arrived.empty()) return false;
  const Status status = accept(parts, move, arrived.mapped());
  return status.ok() ? Result<bool>(true) : Result<bool>(status);
}

std::shared_ptr<Landing> SliceRun::land(const FrameHeader& header) {
  const Move* move = at();
  if (move == nullptr || move->kind != MoveKind::recv || landing_ != nullptr) return nullptr;
  const Range& range = ranges_[move->chunk];
  const bool fits = tag_of(slice_, *move) == tag_of(header) &&
                    header.chunk == static_cast<uint32_t>(move->chunk) &&
                    header.dtype == static_cast<uint8_t>(operation_.dtype) &&
                    header.payload_bytes == range.count * size_of(operation_.dtype);
  const RankBuffers& buffers = operation_.local[local_index_.at(move->rank)];
  std::byte* home = fits ? geometry_.home(buffers, move->chunk, range) : nullptr;
  if (home == nullptr) return nullptr;
  landing_ = std::make_shared<Landing>(Landing{home});
  return landing_;
}

void SliceRun::take_back_landing() {
  if (landing_ != nullptr) landing_->at = nullptr;
  landing_ = nullptr;
}

Status SliceRun::accept(EngineParts& parts, const Move& move, const Frame& frame) {
  const uint64_t count = ranges_[move.chunk].count;
  const auto dtype = static_cast<Dtype>(frame.header.dtype);
  const bool known = dtype == operation_.dtype || dtype == accumulator_of(operation_.dtype);
  if (!known || frame.header.chunk != static_cast<uint32_t>(move.chunk) ||
      frame.payload.bytes() != count * size_of(dtype))
    return data_loss("a frame from rank " + std::to_string(move.peer) +
                         " does not fit the plan (other versions or settings on its host?)",
                     {move.peer, ""});
  if (move.kind == MoveKind::recv) {
    Result<Value> to = place(parts, move.rank, move.chunk, dtype);
    if (!to.ok()) return to.status();
    value(move.rank, move.chunk) = *to;
    const bool landed = landing_ != nullptr && frame.payload.fragments[0].data() == to->at;
    if (!landed) frame.payload.copy_to(writable(*to));
    take_back_landing();
    return {};
  }
  const Value own = value(move.rank, move.chunk);
  const std::vector<std::span<const std::byte>>& fragments = frame.payload.fragments;
  const std::byte* received = fragments.size() == 1 ? fragments[0].data() : nullptr;
  if (received == nullptr || !aligned(received, dtype)) {
    Result<std::byte*> gathered = take(parts, frame.payload.bytes());
    if (!gathered.ok()) return gathered.status();
    frame.payload.copy_to(*gathered);
    received = *gathered;
  }
  const Operand sources[] = {{own.at, own.dtype}, {received, dtype}};
  Status status = combine(parts, move, sources);
  if (status.ok()) status = parts.device.wait(parts.stream);  // The frame's memory goes with it.
  return status;
}

// Results that no move put where they belong: a lone rank's, a root's, an own block.
Status SliceRun::settle(EngineParts& parts) {
  for (const RankBuffers& buffers : operation_.local) {
    for (int chunk = 0; chunk < static_cast<int>(ranges_.size()); ++chunk) {
      const Value& final_value = value(buffers.rank, chunk);
      const std::byte* home = geometry_.home(buffers, chunk, ranges_[chunk]);
      if (home == nullptr || ranges_[chunk].count == 0 || home == final_value.at) continue;
      if (final_value.dtype != operation_.dtype)
        return data_loss("a peer sent a partial sum where the plan has the result");
      if (Status status = store(parts, buffers.rank, chunk, final_value); !status.ok())
        return status;
    }
  }
  return parts.device.wait(parts.stream);
}

}  // namespace tutti
