#include "client/faces/distribute/replicas.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "client/faces/base/base.h"
#include "client/faces/distribute/arithmetic.h"
#include "daemon/kernel/kernel.h"

namespace tutti::distribute {
namespace {

constexpr int64_t kDivisorMax = std::numeric_limits<uint32_t>::max();

// OK if the values of all replicas in this process are alike; `axes` may differ in length.
Status validate_alike(const PerReplica& values, const std::vector<int>& ids,
                      const std::vector<size_t>& axes = {}) {
  const auto kind_of = [&](const Tensor& value) {
    Shape shape = value.shape();
    for (const size_t axis : axes)
      if (axis < shape.size()) shape[axis] = -1;
    return std::pair(value.dtype(), shape);
  };
  for (size_t i = 1; i < values.size(); ++i)
    if (kind_of(values[i]) != kind_of(values[0]))
      return invalid_argument("replica " + std::to_string(ids[0]) + " has a value of " +
                              describe(values[0]) + ", replica " + std::to_string(ids[i]) +
                              " one of " + describe(values[i]) +
                              "; give values of one dtype and shape");
  return {};
}

Status validate_leaf(const PerReplica& values, const std::vector<int>& ids) {
  if (values.size() == ids.size()) return {};
  return invalid_argument("a value has " + std::to_string(values.size()) +
                          " components, but this process has " + std::to_string(ids.size()) +
                          " replicas; give one for each");
}

// The call, and the kind of each leaf: "value 0: f32[2,*]"; the sides at `axes` are left open. An
// error of this rank in its place.
Result<Description> described(const Status& own, const std::string& call, const Leaves& leaves,
                              const std::vector<std::vector<size_t>>& axes = {}) {
  if (!own.ok()) return own;
  Description lines = {call};
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const Tensor& value = leaves[leaf][0];
    std::string sides;
    for (size_t axis = 0; axis < value.shape().size(); ++axis) {
      const bool open = leaf < axes.size() && std::ranges::count(axes[leaf], axis) > 0;
      sides += (axis == 0 ? "" : ",") + (open ? "*" : std::to_string(value.shape()[axis]));
    }
    lines.push_back("value " + std::to_string(leaf) + ": " + std::string(name_of(value.dtype())) +
                    "[" + sides + "]");
  }
  return lines;
}

// The axes of a value, from 0 on and ascending.
Result<std::vector<size_t>> read_axes(const std::vector<int64_t>& axes, const Shape& shape) {
  std::vector<size_t> found;
  for (const int64_t axis : axes) {
    const Result<size_t> at = axis_from_start(axis, shape);
    if (!at.ok()) return at.status();
    if (std::ranges::count(found, *at) > 0)
      return invalid_argument("axis=" + std::to_string(axis) + " is given twice; give it once");
    found.push_back(*at);
  }
  std::ranges::sort(found);
  return found;
}

int64_t elements_along(const Tensor& value, const std::vector<size_t>& axes) {
  int64_t elements = 1;
  for (const size_t axis : axes) elements *= value.shape()[axis];
  return elements;
}

}  // namespace

std::string describe_call(const std::string& verb, const std::string& structure, size_t leaves) {
  return verb + (structure.empty() ? " of " + std::to_string(leaves) + " values"
                                   : " of the structure " + structure);
}

Result<Replicas> Replicas::create(tutti_group* group, const Local& local,
                                  std::optional<bool> reproducible) {
  Replicas replicas;
  replicas.reproducible_ = reproducible;
  replicas.group_ = group != nullptr && tutti_world_size(group) > 1 ? group : nullptr;
  const Status status = replicas.exchange_ids(local);
  if (!status.ok()) return status;
  return replicas;
}

Status Replicas::exchange_ids(const Local& local) {
  const bool valid = local.count >= 1 && local.count <= kLocalReplicasMax &&
                     (!local.ids || local.ids->size() == size_t(local.count));
  const Status own = valid ? Status()
                           : invalid_argument("this process has " + std::to_string(local.count) +
                                              " replicas, as local_replicas or device_assignment "
                                              "says; give it 1 to " +
                                              std::to_string(kLocalReplicasMax));
  const Communicator communicator(group_);
  const std::string call = local.ids ? "Strategy() with replica ids" : "Strategy()";
  const auto counts =
      faces::agree(communicator, own.ok() ? Result<Description>({call}) : own, local.count);
  if (!counts.ok()) return counts.status();
  most_local_ = static_cast<size_t>(std::ranges::max(*counts));
  int64_t next = std::accumulate(counts->begin(), counts->begin() + rank(), int64_t{0});
  std::vector<int64_t> ids(most_local_, -1);
  for (size_t i = 0; i < static_cast<size_t>(local.count); ++i)
    ids[i] = local.ids ? (*local.ids)[i] : next++;
  local_.assign(ids.begin(), ids.begin() + local.count);
  const auto all = communicator.all_gather(ids);
  if (!all.ok()) return all.status();
  ids.clear();
  for (const std::vector<int64_t>& of_rank : *all)
    ids.insert(ids.end(), of_rank.begin(), of_rank.end());
  return validate_ids(ids);
}

Status Replicas::validate_ids(const std::vector<int64_t>& ids) {
  const auto count = ids.size() - static_cast<size_t>(std::ranges::count(ids, -1));
  rank_of_.assign(count, -1);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == -1) continue;
    const bool in_range = ids[i] >= 0 && ids[i] < static_cast<int64_t>(count);
    if (!in_range || rank_of_[static_cast<size_t>(ids[i])] >= 0)
      return invalid_argument("replica id " + std::to_string(ids[i]) + " of rank " +
                              std::to_string(i / most_local_) + " is out of range or taken; " +
                              "number all " + std::to_string(count) +
                              " replicas from 0, each once");
    rank_of_[static_cast<size_t>(ids[i])] = static_cast<int>(i / most_local_);
  }
  if (std::ranges::is_sorted(local_)) return {};
  return invalid_argument("the replica ids of a process must ascend");
}

Status Replicas::agree(const Status& own, const std::string& call,
                       const CallOptions& options) const {
  return faces::agree(Communicator(group_, options), described(own, call, {})).status();
}

// Where the replica is among those of its rank.
size_t Replicas::slot_of(int replica) const {
  const int rank = rank_of_[static_cast<size_t>(replica)];
  return static_cast<size_t>(std::count(rank_of_.begin(), rank_of_.begin() + replica, rank));
}

Result<std::vector<int64_t>> Replicas::exchange(const Communicator& communicator,
                                                const std::vector<int64_t>& own,
                                                size_t per_replica) const {
  std::vector<int64_t> padded = own;
  padded.resize(most_local_ * per_replica);
  const auto all = communicator.all_gather(padded);
  if (!all.ok()) return all.status();
  std::vector<int64_t> by_id;
  for (int id = 0; id < count(); ++id) {
    const auto at = (*all)[static_cast<size_t>(rank_of(id))].begin() +
                    static_cast<ptrdiff_t>(slot_of(id) * per_replica);
    by_id.insert(by_id.end(), at, at + static_cast<ptrdiff_t>(per_replica));
  }
  return by_id;
}

Communicator Replicas::communicator_of(CallOptions options) const {
  if (!options.reproducible) options.reproducible = reproducible_;
  return Communicator(group_, options);
}

Result<std::vector<Tensor>> Replicas::all_reduce(const std::string& call, ReduceOp op,
                                                 const Leaves& leaves,
                                                 const CallOptions& options) const {
  const Communicator communicator = communicator_of(options);
  const bool one_each = most_local_ == 1;  // Then the group's own operation does it all.
  const auto divisor = op == ReduceOp::mean ? static_cast<uint32_t>(count()) : 1U;
  std::vector<Tensor> sums;
  const Status own = no_throw([&]() -> Status {
    for (const PerReplica& values : leaves) {
      if (Status status = validate_leaf(values, local_); !status.ok()) return status;
      if (Status status = validate_alike(values, local_); !status.ok()) return status;
      const Dtype dtype = values[0].dtype();
      if (Status status = check_reducible(op, dtype); !status.ok()) return status;
      if (group_ == nullptr)
        sums.push_back(sum_of(values, dtype, divisor));
      else
        sums.push_back(one_each ? values[0].clone() : sum_of(values, accumulator_of(dtype)));
    }
    return {};
  });
  const auto agreed = faces::agree(communicator, described(own, call, leaves));
  if (!agreed.ok()) return agreed.status();
  if (group_ == nullptr) return sums;
  const tutti_op of_group = one_each && op == ReduceOp::mean ? TUTTI_MEAN : TUTTI_SUM;
  if (Status status = communicator.all_reduce(sums, of_group); !status.ok()) return status;
  for (size_t i = 0; !one_each && i < sums.size(); ++i)
    if (divisor != 1 || sums[i].dtype() != leaves[i][0].dtype())
      sums[i] = sum_of({sums[i]}, leaves[i][0].dtype(), divisor);
  return sums;
}

namespace {

using AllAxes = std::vector<std::vector<size_t>>;

// The axes of each leaf; an error if the leaves are not alike but for these.
Result<AllAxes> read_all_axes(const std::vector<int64_t>& axes, const Leaves& leaves,
                              const std::vector<int>& ids) {
  AllAxes all;
  for (const PerReplica& values : leaves) {
    if (Status status = validate_leaf(values, ids); !status.ok()) return status;
    Result<std::vector<size_t>> found = read_axes(axes, values[0].shape());
    if (!found.ok()) return found.status();
    if (Status status = validate_alike(values, ids, *found); !status.ok()) return status;
    all.push_back(*std::move(found));
  }
  return all;
}

// The sum of the values of this process over the axes.
Tensor partial_sum(const PerReplica& values, const std::vector<size_t>& axes) {
  std::vector<Tensor> sums;
  for (const Tensor& value : values) sums.push_back(sum_over(value, axes));
  return sum_of(sums, sums[0].dtype());
}

}  // namespace

Result<std::vector<Tensor>> Replicas::reduce_over(const std::string& call, ReduceOp op,
                                                  const std::vector<int64_t>& axes,
                                                  const Leaves& leaves,
                                                  const CallOptions& options) const {
  const Communicator communicator = communicator_of(options);
  const Result<AllAxes> read = read_all_axes(axes, leaves, local_);
  std::vector<Tensor> sums;
  std::vector<int64_t> elements(local_.size() * leaves.size());  // Along the axes.
  const Status own = no_throw([&]() -> Status {
    if (!read.ok()) return read.status();
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      const PerReplica& values = leaves[leaf];
      if (Status status = check_reducible(op, values[0].dtype()); !status.ok()) return status;
      sums.push_back(partial_sum(values, (*read)[leaf]));
      for (size_t i = 0; i < local_.size(); ++i)
        elements[i * leaves.size() + leaf] = elements_along(values[i], (*read)[leaf]);
    }
    return {};
  });
  const auto agreed = faces::agree(
      communicator, own.ok() ? described(own, call, leaves, *read) : Result<Description>(own));
  if (!agreed.ok()) return agreed.status();
  const auto all = exchange(communicator, elements, leaves.size());
  if (!all.ok()) return all.status();
  if (Status status = communicator.all_reduce(sums, TUTTI_SUM); !status.ok()) return status;
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    int64_t divisor = op == ReduceOp::mean ? 0 : 1;
    if (op == ReduceOp::mean)
      for (size_t at = leaf; at < all->size(); at += leaves.size()) divisor += (*all)[at];
    if (divisor > kDivisorMax)
      return invalid_argument("MEAN of " + std::to_string(divisor) +
                              " elements along axis; at most 2^32-1 are counted");
    sums[leaf] = sum_of({sums[leaf]}, leaves[leaf][0].dtype(), static_cast<uint32_t>(divisor));
  }
  return sums;
}

// A leaf's part in a gather.
struct Replicas::LeafGather {
  Tensor like;  // A value of this process.
  size_t axis;
  std::vector<int64_t> lengths;  // Along the axis, by replica.
  BytesGather bytes;             // The values of a rank are one behind the other.
};

// Takes the memory for the values of all replicas.
Replicas::LeafGather Replicas::prepare_gather(const PerReplica& values, size_t axis,
                                              std::vector<int64_t> lengths) const {
  const Shape& shape = values[0].shape();
  size_t step = size_of(values[0].dtype());  // Bytes for each unit of length.
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != axis) step *= static_cast<size_t>(shape[i]);
  std::vector<size_t> bytes(static_cast<size_t>(world_size()));
  for (int id = 0; id < count(); ++id)
    bytes[static_cast<size_t>(rank_of(id))] +=
        step * static_cast<size_t>(lengths[static_cast<size_t>(id)]);
  LeafGather gather = {values[0], axis, std::move(lengths), BytesGather(bytes)};
  std::byte* at = gather.bytes.own();
  for (const Tensor& value : values) {
    copy_bytes(at, value.data(), value.bytes());
    at += value.bytes();
  }
  return gather;
}

// The values of all replicas.
PerReplica Replicas::by_id(const LeafGather& gathered) const {
  std::vector<size_t> read(static_cast<size_t>(world_size()));  // Bytes of each rank.
  PerReplica values;
  for (int id = 0; id < count(); ++id) {
    const auto rank = static_cast<size_t>(rank_of(id));
    Shape shape = gathered.like.shape();
    shape[gathered.axis] = gathered.lengths[static_cast<size_t>(id)];
    values.push_back(Tensor::view(gathered.like.dtype(), std::move(shape),
                                  gathered.bytes.of(rank) + read[rank]));
    read[rank] += values.back().bytes();
  }
  return values;
}

Result<std::vector<Tensor>> Replicas::gather(const std::string& call, int64_t axis,
                                             const Leaves& leaves,
                                             const CallOptions& options) const {
  const Communicator communicator(group_, options);
  const Result<AllAxes> read = read_all_axes({axis}, leaves, local_);
  const auto agreed = faces::agree(communicator, read.ok() ? described({}, call, leaves, *read)
                                                           : Result<Description>(read.status()));
  if (!agreed.ok()) return agreed.status();
  std::vector<int64_t> own;  // Lengths along the axis.
  for (size_t i = 0; i < local_.size(); ++i)
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf)
      own.push_back(leaves[leaf][i].shape()[(*read)[leaf][0]]);
  const auto lengths = exchange(communicator, own, leaves.size());
  if (!lengths.ok()) return lengths.status();
  std::vector<LeafGather> gathers;
  const Status room = no_throw([&] {
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      std::vector<int64_t> by_replica;
      for (size_t at = leaf; at < lengths->size(); at += leaves.size())
        by_replica.push_back((*lengths)[at]);
      gathers.push_back(prepare_gather(leaves[leaf], (*read)[leaf][0], std::move(by_replica)));
    }
    return Status();
  });
  if (Status status = confirm(communicator, room); !status.ok()) return status;
  std::vector<Tensor> gathered;
  for (LeafGather& gather : gathers) {
    if (Status status = gather.bytes.run(communicator); !status.ok()) return status;
    gathered.push_back(concatenate(by_id(gather), gather.axis));
  }
  return gathered;
}

Result<std::vector<Tensor>> Replicas::broadcast(const std::string& call, int root,
                                                const Leaves& leaves,
                                                const CallOptions& options) const {
  const Communicator communicator(group_, options);
  std::vector<Tensor> results;
  const Status own = no_throw([&]() -> Status {
    if (root < 0 || root >= count())
      return invalid_argument("root=" + std::to_string(root) + " is no replica; there are " +
                              std::to_string(count()) + ", from 0");
    const size_t from = rank_of(root) == rank() ? slot_of(root) : 0;
    for (const PerReplica& values : leaves) {
      if (Status status = validate_leaf(values, local_); !status.ok()) return status;
      if (Status status = validate_alike(values, local_); !status.ok()) return status;
      results.push_back(values[from].clone());
    }
    return {};
  });
  const auto agreed = faces::agree(communicator, described(own, call, leaves));
  if (!agreed.ok()) return agreed.status();
  for (const Tensor& result : results)
    if (Status status = communicator.broadcast(result, rank_of(root)); !status.ok()) return status;
  return results;
}

}  // namespace tutti::distribute
