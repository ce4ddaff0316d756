#include "daemon/engine/rank_tensors.h"

#include <algorithm>

namespace tutti {
RankTensors::RankTensors(Device& device, Stream& stream, ScratchPool& scratch,
                         const Operation& operation, const Geometry& geometry)
    : device_(device),
      stream_(stream),
      scratch_(scratch),
      operation_(operation),
      geometry_(geometry),
      ranks_(operation, geometry) {}

// Whether every rank's window holds the slice's input.
Result<bool> RankTensors::is_filled(uint64_t slice) {
  blocking_rank_ = -1;
  for (const RankBuffers* rank : ranks_.all()) {
    if (rank->window_bytes == 0) continue;
    const bool holds_all = geometry_.end_of(geometry_.slices() - 1) <= rank->window_bytes;
    if (!holds_all && rank->window_bytes % geometry_.end_of(0) != 0)
      return invalid_argument("a window that does not hold whole slices");
    if (rank->filled() >= geometry_.end_of(slice)) continue;
    blocking_rank_ = rank->rank;
    return false;
  }
  return true;
}

Result<bool> RankTensors::ready(uint64_t slice) {
  if (Result<bool> filled = is_filled(slice); !filled.ok() || !*filled) return filled;
  for (int chunk = 0; chunk < geometry_.chunks(); ++chunk) {
    const Range range = geometry_.slice(chunk, slice);
    if (range.count == 0) continue;
    if (Status status = fold(slice, chunk, range); !status.ok()) return status;
  }
  return true;
}

Status RankTensors::fold(uint64_t slice, int chunk, const Range& range) {
  const std::vector<const std::byte*> from = ranks_.inputs(chunk, range);
  const Outputs to = ranks_.outputs(chunk, range);
  const Collective collective = operation_.execution->plan.collective;
  if (from.empty() || (ranks_.are_alone() && to.empty())) return {};
  if (ranks_.are_alone()) {
    if (!reduces(collective)) return copy_to(to, from.front(), range.count);
    std::vector<Target> targets;
    for (std::byte* output : to) targets.push_back({output, operation_.dtype});
    return combine(slice, from, std::move(targets), range.count);
  }
  Source& source = sources_[{chunk, range.first}];
  source = {from.front(), operation_.dtype, nullptr};
  if (from.size() == 1) return {};
  source.dtype = accumulator_of(operation_.dtype);
  std::byte* at = nullptr;
  if (source.dtype == operation_.dtype && !to.empty()) {
    at = to.front();
  } else {
    const Result<std::byte*> fresh = allocate(slice, range.count * size_of(source.dtype));
    if (!fresh.ok()) return fresh.status();
    at = source.scratch = *fresh;
  }
  source.at = at;
  return combine(slice, from, {{at, source.dtype}}, range.count);
}

// Takes one pass over memory where the local strategy allows it.
Status RankTensors::combine(uint64_t slice, const std::vector<const std::byte*>& from,
                            std::vector<Target> to, uint64_t count) {
  FoldWork work{.folds = ranks_.folds(),
                .contributions = from,
                .targets = to,
                .dtype = operation_.dtype,
                .op = operation_.op,
                .count = count,
                .divisor = ranks_.divisor(),
                .past_cache = ranks_.are_alone() && past_cache(from, to)};
  if (ranks_.folds().size() > 1) {
    const Result<std::byte*> inner =
        allocate(slice, scratch_bytes(ranks_.folds().size(), operation_.dtype));
    if (!inner.ok()) return inner.status();
    work.scratch = {*inner, scratch_bytes(ranks_.folds().size(), operation_.dtype)};
  }
  Status status;
  run_folds(work, [&](const FoldJob& job) {
    status =
        device_.reduce(stream_, {job.targets, job.target_count}, {job.sources, job.source_count},
                       {job.count, job.op, job.divisor, job.past_cache});
    return status.ok();
  });
  return status;
}

bool RankTensors::past_cache(const std::vector<const std::byte*>& from,
                             const std::vector<Target>& to) const {
  const uint64_t bytes = operation_.count * size_of(operation_.dtype) * ranks_.all().size();
  return bytes >= device_.cache_bytes() && std::ranges::none_of(to, [&](const Target& target) {
           return std::ranges::find(from, target.data) != from.end();
         });
}

Status RankTensors::copy_to(const Outputs& to, const std::byte* from, uint64_t count) {
  for (std::byte* output : to) {
    if (output == from) continue;
    Status status = device_.copy(stream_, output, from, count * size_of(operation_.dtype));
    if (!status.ok()) return status;
  }
  return {};
}

HostTensor::Source RankTensors::source(int chunk, const Range& range) {
  const auto found = sources_.find({chunk, range.first});
  require(found != sources_.end(), "source() is called for ready slices only");
  return found->second;
}

std::byte* RankTensors::target(int chunk, const Range& range) {
  const Outputs all = ranks_.outputs(chunk, range);
  return all.empty() ? nullptr : all.front();
}

Status RankTensors::finished(uint64_t slice) {
  for (int chunk = 0; chunk < geometry_.chunks() && !ranks_.are_alone(); ++chunk) {
    const Range range = geometry_.slice(chunk, slice);
    const Outputs all = ranks_.outputs(chunk, range);
    if (range.count == 0 || all.size() < 2) continue;
    if (Status status = copy_to(all, all.front(), range.count); !status.ok()) return status;
  }
  finished_ = slice + 1;
  return device_.wait(stream_);
}

void RankTensors::released(uint64_t slice) {
  for (int chunk = 0; chunk < geometry_.chunks(); ++chunk)
    sources_.erase({chunk, geometry_.slice(chunk, slice).first});
  if (operation_.release_window && slice < finished_)
    operation_.release_window(geometry_.end_of(slice));
  const auto blocks = scratch_blocks_.extract(slice);
  if (blocks.empty()) return;
  for (const ScratchPool::Block& block : blocks.mapped()) scratch_.give_back(block);
}

Result<std::byte*> RankTensors::allocate(uint64_t slice, size_t bytes) {
  const Result<ScratchPool::Block> block = scratch_.take(bytes);
  if (!block.ok()) return block.status();
  scratch_blocks_[slice].push_back(*block);
  return block->data;
}

}  // namespace tutti
