#include "client/distribute/replicas.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "client/distribute/agreement.h"
#include "client/distribute/arithmetic.h"
#include "client/frameworks/no_throw.h"
#include "daemon/kernel/kernel.h"

namespace tutti::distribute {
namespace {

constexpr const char* kCreate = "Strategy()";
constexpr int64_t kDivisorMax = std::numeric_limits<uint32_t>::max();

// OK if the values of all replicas in this process are alike; `axes` may differ in length.
Status validate_alike(const PerReplica& values, const std::vector<int>& ids,
                      const std::vector<size_t>& axes = {}) {
  const auto kind_of = [&](const TensorView& value) {
    Shape shape = value.shape;
    for (const size_t axis : axes)
      if (axis < shape.size()) shape[axis] = -1;
    return std::pair(value.dtype, shape);
  };
  for (size_t i = 1; i < values.size(); ++i)
    if (kind_of(values[i]) != kind_of(values[0]))
      return invalid_argument("replica " + std::to_string(ids[0]) + " has a value of " +
                              to_string(values[0].dtype, values[0].shape) + ", replica " +
                              std::to_string(ids[i]) + " one of " +
                              to_string(values[i].dtype, values[i].shape) +
                              "; give values of one dtype and shape");
  return {};
}

Status validate_dtype(ReduceOp op, Dtype dtype) {
  if (dtype == Dtype::boolean)
    return invalid_argument(to_string(op) +
                            " of bools, whose sum would be an OR; convert the value to integers");
  if (op == ReduceOp::sum || is_floating(dtype)) return {};
  return invalid_argument("MEAN needs a floating dtype, but the value is of " +
                          std::string(name_of(dtype)) + "; convert it, or use SUM");
}

Status validate_leaf(const PerReplica& values, const std::vector<int>& ids) {
  if (values.size() == ids.size()) return {};
  return invalid_argument("a value has " + std::to_string(values.size()) +
                          " components, but this process has " + std::to_string(ids.size()) +
                          " replicas; give one for each");
}

// "f32[2,*] i32[]": the kinds of the leaves; the sides at `axes` are left open. Many are numbered,
// as "0:f32[2] 1:i32[]", because messages quote a part of them.
std::string kinds_of(const Leaves& leaves, const std::vector<std::vector<size_t>>& axes = {}) {
  const bool numbered = leaves.size() > 4;
  std::string text;
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const TensorView& value = leaves[leaf][0];
    std::string sides;
    for (size_t axis = 0; axis < value.shape.size(); ++axis) {
      const bool open = leaf < axes.size() && std::ranges::count(axes[leaf], axis) > 0;
      sides += (axis == 0 ? "" : ",") + (open ? "*" : std::to_string(value.shape[axis]));
    }
    text += (leaf == 0 ? "" : " ") + (numbered ? std::to_string(leaf) + ":" : "") +
            std::string(name_of(value.dtype)) + "[" + sides + "]";
  }
  return text;
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

std::vector<Tensor*> pointers_to(std::vector<Tensor>& tensors) {
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  return pointers;
}

int64_t elements_along(const TensorView& value, const std::vector<size_t>& axes) {
  int64_t elements = 1;
  for (const size_t axis : axes) elements *= value.shape[axis];
  return elements;
}

}  // namespace

Result<Replicas> Replicas::create(tutti_group* group, const Local& local) {
  Replicas replicas;
  replicas.group_ = group != nullptr && tutti_world_size(group) > 1 ? group : nullptr;
  const Status status = replicas.exchange_ids(local);
  if (!status.ok()) return status;
  return replicas;
}

Status Replicas::create_failed(tutti_group* group, const Status& own) {
  return distribute::agree(group, own, kCreate);
}

Status Replicas::exchange_ids(const Local& local) {
  const bool valid = local.count >= 1 && local.count <= kLocalReplicasMax &&
                     (!local.ids || local.ids->size() == size_t(local.count));
  const Status own = valid ? Status()
                           : invalid_argument("this process has " + std::to_string(local.count) +
                                              " replicas, as local_replicas or device_assignment "
                                              "says; give it 1 to " +
                                              std::to_string(kLocalReplicasMax));
  const std::string call = std::string(kCreate) + (local.ids ? " with replica ids" : "");
  if (Status agreed = distribute::agree(group_, own, call); !agreed.ok()) return agreed;
  std::vector<int64_t> counts = {local.count};
  if (group_ != nullptr) {
    Result<std::vector<int64_t>> all = all_gather(group_, counts);
    if (!all.ok()) return all.status();
    counts = *std::move(all);
  }
  most_local_ = static_cast<size_t>(*std::ranges::max_element(counts));
  int64_t next = std::accumulate(counts.begin(), counts.begin() + rank(), int64_t{0});
  std::vector<int64_t> ids(most_local_, -1);
  for (size_t i = 0; i < static_cast<size_t>(local.count); ++i)
    ids[i] = local.ids ? (*local.ids)[i] : next++;
  local_.assign(ids.begin(), ids.begin() + local.count);
  if (group_ != nullptr) {
    Result<std::vector<int64_t>> all = all_gather(group_, ids);
    if (!all.ok()) return all.status();
    ids = *std::move(all);
  }
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
  return distribute::agree(group_, own, call, options);
}

// Where the replica is among those of its rank.
size_t Replicas::slot_of(int replica) const {
  const int rank = rank_of_[static_cast<size_t>(replica)];
  return static_cast<size_t>(std::count(rank_of_.begin(), rank_of_.begin() + replica, rank));
}

Result<std::vector<int64_t>> Replicas::exchange(const std::vector<int64_t>& own, size_t per_replica,
                                                const CallOptions& options) const {
  if (group_ == nullptr) return own;
  std::vector<int64_t> padded = own;
  padded.resize(most_local_ * per_replica);
  const Result<std::vector<int64_t>> all = all_gather(group_, padded, options);
  if (!all.ok()) return all.status();
  std::vector<int64_t> by_id;
  for (int id = 0; id < count(); ++id) {
    const auto rank = static_cast<size_t>(rank_of_[static_cast<size_t>(id)]);
    const auto at = all->begin() +
                    static_cast<std::ptrdiff_t>((rank * most_local_ + slot_of(id)) * per_replica);
    by_id.insert(by_id.end(), at, at + static_cast<std::ptrdiff_t>(per_replica));
  }
  return by_id;
}

Result<std::vector<Tensor>> Replicas::all_reduce(const std::string& call, ReduceOp op,
                                                 const Leaves& leaves,
                                                 const CallOptions& options) const {
  const bool one_each = most_local_ == 1;  // Then the group's own operation does it all.
  const auto divisor = op == ReduceOp::mean ? static_cast<uint32_t>(count()) : 1U;
  std::vector<Tensor> sums;
  const Status own = frameworks::no_throw([&]() -> Status {
    for (const PerReplica& values : leaves) {
      if (Status status = validate_leaf(values, local_); !status.ok()) return status;
      if (Status status = validate_alike(values, local_); !status.ok()) return status;
      const Dtype dtype = values[0].dtype;
      if (Status status = validate_dtype(op, dtype); !status.ok()) return status;
      if (group_ == nullptr)
        sums.push_back(sum_of(values, dtype, divisor));
      else
        sums.push_back(one_each ? Tensor::copy_of(values[0])
                                : sum_of(values, accumulator_of(dtype)));
    }
    return {};
  });
  const std::string text = own.ok() ? call + " of " + kinds_of(leaves) : call;
  if (Status agreed = agree(own, text, options); !agreed.ok()) return agreed;
  if (group_ == nullptr) return sums;
  const tutti_op of_group = one_each && op == ReduceOp::mean ? TUTTI_MEAN : TUTTI_SUM;
  const Status status = distribute::all_reduce(group_, pointers_to(sums), of_group, options);
  if (!status.ok()) return status;
  for (size_t i = 0; !one_each && i < sums.size(); ++i)
    if (divisor != 1 || sums[i].dtype() != leaves[i][0].dtype)
      sums[i] = divide(sums[i].view(), divisor, leaves[i][0].dtype);
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
    Result<std::vector<size_t>> found = read_axes(axes, values[0].shape);
    if (!found.ok()) return found.status();
    if (Status status = validate_alike(values, ids, *found); !status.ok()) return status;
    all.push_back(*std::move(found));
  }
  return all;
}

// The sum of the values of this process over the axes.
Tensor partial_sum(const PerReplica& values, const std::vector<size_t>& axes) {
  std::vector<Tensor> sums;
  for (const TensorView& value : values) sums.push_back(sum_over(value, axes));
  std::vector<TensorView> views;
  for (const Tensor& sum : sums) views.push_back(sum.view());
  return sum_of(views, sums[0].dtype());
}

}  // namespace

Result<std::vector<Tensor>> Replicas::reduce_over(const std::string& call, ReduceOp op,
                                                  const std::vector<int64_t>& axes,
                                                  const Leaves& leaves,
                                                  const CallOptions& options) const {
  const Result<AllAxes> read = read_all_axes(axes, leaves, local_);
  std::vector<Tensor> sums;
  std::vector<int64_t> elements(local_.size() * leaves.size());  // Along the axes.
  const Status own = frameworks::no_throw([&]() -> Status {
    if (!read.ok()) return read.status();
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      const PerReplica& values = leaves[leaf];
      if (Status status = validate_dtype(op, values[0].dtype); !status.ok()) return status;
      sums.push_back(partial_sum(values, (*read)[leaf]));
      for (size_t i = 0; i < local_.size(); ++i)
        elements[i * leaves.size() + leaf] = elements_along(values[i], (*read)[leaf]);
    }
    return {};
  });
  const std::string text = own.ok() ? call + " of " + kinds_of(leaves, *read) : call;
  if (Status agreed = agree(own, text, options); !agreed.ok()) return agreed;
  const Result<std::vector<int64_t>> all = exchange(elements, leaves.size(), options);
  if (!all.ok()) return all.status();
  if (group_ != nullptr) {
    const Status status = distribute::all_reduce(group_, pointers_to(sums), TUTTI_SUM, options);
    if (!status.ok()) return status;
  }
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    int64_t divisor = op == ReduceOp::mean ? 0 : 1;
    if (op == ReduceOp::mean)
      for (size_t at = leaf; at < all->size(); at += leaves.size()) divisor += (*all)[at];
    if (divisor > kDivisorMax)
      return invalid_argument("MEAN of " + std::to_string(divisor) +
                              " elements along axis; at most 2^32-1 are counted");
    sums[leaf] = divide(sums[leaf].view(), static_cast<uint32_t>(divisor), leaves[leaf][0].dtype);
  }
  return sums;
}

namespace {

// A leaf's part in a gather: each rank gives its values in slots as large as the largest value.
struct Slots {
  std::vector<int64_t> lengths;  // Along the axis, by replica.
  TensorView largest;
  std::vector<std::byte> own, all;  // Without a group none.
};

std::vector<std::byte> in_slots(const PerReplica& values, size_t slot, size_t slots) {
  std::vector<std::byte> bytes(slot * slots);
  for (size_t i = 0; i < values.size(); ++i)
    copy_bytes(bytes.data() + i * slot, values[i].data, values[i].bytes());
  return bytes;
}

}  // namespace

Result<std::vector<Tensor>> Replicas::gather(const std::string& call, int64_t axis,
                                             const Leaves& leaves,
                                             const CallOptions& options) const {
  const Result<AllAxes> read = read_all_axes({axis}, leaves, local_);
  const std::string text = read.ok() ? call + " of " + kinds_of(leaves, *read) : call;
  if (Status agreed = agree(read.status(), text, options); !agreed.ok()) return agreed;
  std::vector<int64_t> own(local_.size() * leaves.size());
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf)
    for (size_t i = 0; i < local_.size(); ++i)
      own[i * leaves.size() + leaf] = leaves[leaf][i].shape[(*read)[leaf][0]];
  const Result<std::vector<int64_t>> all = exchange(own, leaves.size(), options);
  if (!all.ok()) return all.status();
  std::vector<Slots> slots(leaves.size());
  const auto axis_of = [&](size_t leaf) { return (*read)[leaf][0]; };
  const Status room = frameworks::no_throw([&] {
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      Slots& made = slots[leaf];
      for (size_t at = leaf; at < all->size(); at += leaves.size())
        made.lengths.push_back((*all)[at]);
      made.largest = leaves[leaf][0];
      made.largest.shape[axis_of(leaf)] = *std::ranges::max_element(made.lengths);
      if (group_ == nullptr) continue;
      made.own = in_slots(leaves[leaf], made.largest.bytes(), most_local_);
      made.all.resize(made.own.size() * static_cast<size_t>(world_size()));
    }
    return Status();
  });
  if (Status agreed = agree(room, text, options); !agreed.ok()) return agreed;
  for (Slots& leaf : slots) {
    if (group_ == nullptr) continue;
    const Status status = all_gather(group_, leaf.own, leaf.all, options);
    if (!status.ok()) return status;
  }
  std::vector<Tensor> gathered;
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const Slots& from = slots[leaf];
    gathered.push_back(group_ == nullptr
                           ? concatenate(leaves[leaf], axis_of(leaf))
                           : concatenate(by_id(from.all, from.lengths, from.largest, axis_of(leaf)),
                                         axis_of(leaf)));
  }
  return gathered;
}

// The values of all replicas in the slots of all ranks.
PerReplica Replicas::by_id(std::span<const std::byte> slots, const std::vector<int64_t>& lengths,
                           const TensorView& largest, size_t axis) const {
  PerReplica values;
  for (int id = 0; id < count(); ++id) {
    const auto rank = static_cast<size_t>(rank_of_[static_cast<size_t>(id)]);
    TensorView value = largest;
    value.data = slots.data() + (rank * most_local_ + slot_of(id)) * largest.bytes();
    value.shape[axis] = lengths[static_cast<size_t>(id)];
    values.push_back(std::move(value));
  }
  return values;
}

Result<std::vector<Tensor>> Replicas::broadcast(const std::string& call, int root,
                                                const Leaves& leaves,
                                                const CallOptions& options) const {
  std::vector<Tensor> results;
  const Status own = frameworks::no_throw([&]() -> Status {
    if (root < 0 || root >= count())
      return invalid_argument("root=" + std::to_string(root) + " is no replica; there are " +
                              std::to_string(count()) + ", from 0");
    const size_t from = rank_of(root) == rank() ? slot_of(root) : 0;
    for (const PerReplica& values : leaves) {
      if (Status status = validate_leaf(values, local_); !status.ok()) return status;
      if (Status status = validate_alike(values, local_); !status.ok()) return status;
      results.push_back(Tensor::copy_of(values[from]));
    }
    return {};
  });
  const std::string text = own.ok() ? call + " of " + kinds_of(leaves) : call;
  if (Status agreed = agree(own, text, options); !agreed.ok()) return agreed;
  for (Tensor& result : results) {
    if (group_ == nullptr) continue;
    const Status status =
        distribute::broadcast(group_, result.data(), result.bytes(), rank_of(root), options);
    if (!status.ok()) return status;
  }
  return results;
}

}  // namespace tutti::distribute
