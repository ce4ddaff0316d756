#include "daemon/engine/local_ranks.h"

#include <algorithm>

namespace tutti {
namespace {

uint64_t within(const RankBuffers& rank, uint64_t offset) {
  return rank.window_bytes == 0 ? offset : offset % rank.window_bytes;
}

}  // namespace

LocalRanks::LocalRanks(const Operation& operation, const Geometry& geometry)
    : operation_(operation), geometry_(geometry) {
  const ExecutionPlan& execution = *operation.execution;
  const std::vector<int>& here = execution.plan.hosts[execution.self];
  for (const int place : fold_order(execution.plan, execution.self)) {
    const auto found = std::ranges::find(operation.local, here[place], &RankBuffers::rank);
    if (found != operation.local.end()) ranks_.push_back(&*found);
  }
  folds_ = local_folds(execution.plan.strategies.local, static_cast<int>(ranks_.size()));
}

uint32_t LocalRanks::divisor() const {
  const bool divides = are_alone() && operation_.op == Op::mean;
  return divides ? static_cast<uint32_t>(world_size(operation_.execution->plan)) : 1;
}

const std::byte* LocalRanks::input(const RankBuffers& rank, int chunk, const Range& range) const {
  if (rank.in == nullptr || !contributes(operation_.execution->plan, rank.rank, chunk))
    return nullptr;
  return rank.in + within(rank, geometry_.input_offset(chunk, range));
}

std::vector<const std::byte*> LocalRanks::inputs(int chunk, const Range& range) const {
  std::vector<const std::byte*> all;
  for (const RankBuffers* rank : ranks_)
    if (const std::byte* in = input(*rank, chunk, range)) all.push_back(in);
  return all;
}

std::byte* LocalRanks::output(const RankBuffers& rank, int chunk, const Range& range) const {
  if (rank.out == nullptr || !wants(operation_.execution->plan, rank.rank, chunk)) return nullptr;
  return rank.out + within(rank, geometry_.output_offset(chunk, range));
}

std::vector<std::byte*> LocalRanks::outputs(int chunk, const Range& range) const {
  std::vector<std::byte*> all;
  for (const RankBuffers* rank : ranks_)
    if (std::byte* out = output(*rank, chunk, range)) all.push_back(out);
  return all;
}

}  // namespace tutti
