#include "daemon/engine/local_ranks.h"

#include <algorithm>

namespace tutti {
namespace {

// `offset`: in the rank's tensor; `index`: of the block among those of the side.
uint64_t within(const RankBuffers& rank, uint64_t offset, const Range& range, uint32_t index,
                uint64_t element) {
  const StagedRows& rows = rank.rows;
  if (rows.part != 0) return rows.offset(range.first / rows.part) + index * rows.part * element;
  return rank.window_bytes == 0 ? offset : offset % rank.window_bytes;
}

}  // namespace

LocalRanks::LocalRanks(const Operation& operation, const Geometry& geometry)
    : operation_(operation), geometry_(geometry) {
  const ExecutionPlan& execution = *operation.execution;
  const std::vector<int>& here = execution.plan.hosts[execution.self];
  ranks_.reserve(here.size());
  for (const int place : execution.order) {
    const auto found = std::ranges::find(operation.local, here[place], &RankBuffers::rank);
    require(found != operation.local.end(), "an operation has the tensors of all ranks here");
    ranks_.push_back(&*found);
  }
}

uint32_t LocalRanks::divisor() const {
  const bool divides = are_alone() && operation_.op == Op::mean;
  return divides ? static_cast<uint32_t>(world_size(operation_.execution->plan)) : 1;
}

// The tensor of the rank's list that holds this byte of the concatenation.
const ListedSides* LocalRanks::listed(const RankBuffers& rank, uint64_t offset) const {
  return &*std::prev(std::ranges::upper_bound(*rank.listed, offset, {}, &ListedSides::begin));
}

std::vector<Range> LocalRanks::pieces(int chunk, const Range& range) const {
  const auto is_list = [](const RankBuffers* rank) { return rank->listed != nullptr; };
  if (std::ranges::none_of(ranks_, is_list)) return {range};
  std::vector<Range> all;
  const uint64_t element = size_of(operation_.dtype);
  const uint64_t start = geometry_.input_offset(chunk, range) / element;
  for (uint64_t done = 0; done < range.count;) {
    uint64_t count = range.count - done;
    for (const RankBuffers* rank : ranks_) {
      if (!is_list(rank)) continue;
      const ListedSides* tensor = listed(*rank, (start + done) * element);
      count = std::min(count, (tensor->begin + tensor->bytes) / element - (start + done));
    }
    all.push_back({range.first + done, count});
    done += count;
  }
  return all;
}

const std::byte* LocalRanks::input(const RankBuffers& rank, int chunk, const Range& range) const {
  const uint64_t offset = geometry_.input_offset(chunk, range);
  if (rank.listed != nullptr) {
    const ListedSides* tensor = listed(rank, offset);
    return tensor->in + (offset - tensor->begin);
  }
  if (rank.in == nullptr || !contributes(operation_.execution->plan, rank.rank, chunk))
    return nullptr;
  return rank.in +
         within(rank, offset, range, geometry_.index_in_input(chunk), size_of(operation_.dtype));
}

void LocalRanks::inputs(int chunk, const Range& range, std::vector<const std::byte*>& all) const {
  all.clear();
  for (const RankBuffers* rank : ranks_)
    if (const std::byte* in = input(*rank, chunk, range)) all.push_back(in);
}

std::vector<double> LocalRanks::factors(int chunk, const Range& range) const {
  std::vector<double> all;
  if (operation_.op != Op::premul_sum) return all;
  for (const RankBuffers* rank : ranks_)
    if (input(*rank, chunk, range) != nullptr) all.push_back(rank->factor);
  return std::ranges::all_of(all, [](double factor) { return factor == 1; }) ? std::vector<double>()
                                                                             : all;
}

std::byte* LocalRanks::output(const RankBuffers& rank, int chunk, const Range& range) const {
  const uint64_t offset = geometry_.output_offset(chunk, range);
  if (rank.listed != nullptr) {
    const ListedSides* tensor = listed(rank, offset);
    return tensor->out + (offset - tensor->begin);
  }
  if (rank.out == nullptr || !wants(operation_.execution->plan, rank.rank, chunk)) return nullptr;
  return rank.out +
         within(rank, offset, range, geometry_.index_in_output(chunk), size_of(operation_.dtype));
}

void LocalRanks::outputs(int chunk, const Range& range, std::vector<std::byte*>& all) const {
  all.clear();
  for (const RankBuffers* rank : ranks_)
    if (std::byte* out = output(*rank, chunk, range)) all.push_back(out);
}

}  // namespace tutti
