// Reductions in one process, and in a group: reduction.h.
#include "client/faces/cross_device/reduction.h"

#include <algorithm>
#include <map>
#include <optional>

#include "client/faces/base/base.h"
#include "client/faces/cross_device/sparse.h"

namespace tutti::cross_device {
namespace {

uint32_t divisor_of(ReduceOp op, int64_t replicas) {
  return op == ReduceOp::mean ? static_cast<uint32_t>(replicas) : 1;
}

bool is_mean(const ReductionPlan& plan) { return plan.op == ReduceOp::mean; }

// New tensors, one for each device of this process, for the result of a dense value.
std::vector<Tensor> outputs_of(const ReductionPlan& plan) {
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < plan.targets.devices.size(); ++i)
    outputs.push_back(Tensor::allocate(plan.dtype(), plan.dense[0].shape()));
  return outputs;
}

Mirrored mirrored(const ReductionPlan& plan, const std::vector<Tensor>& outputs) {
  Mirrored result;
  for (size_t i = 0; i < outputs.size(); ++i)
    result.components.push_back({outputs[i], plan.targets.devices[i]});
  return result;
}

// The slices on each device of this process.
Mirrored mirrored(const ReductionPlan& plan, const IndexedSlices& sum, int64_t replicas) {
  const IndexedSlices value = is_mean(plan) ? divide(sum, divisor_of(plan.op, replicas)) : sum;
  Mirrored result;
  for (const DeviceName& device : plan.targets.devices)
    result.components.push_back({clone(value), device});
  return result;
}

Grouping grouping_of(const Method& method, const ReductionPlan& plan) {
  const bool by_groups = method.all_reduce && plan.in_place();
  return by_groups ? hierarchical(plan.devices) : flat(plan.devices.size());
}

// What each rank contributes to one value.
struct Shares {
  std::vector<int64_t> replicas;  // By rank.
  std::vector<int64_t> rows;

  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t count : replicas) sum += count;
    return sum;
  }
  // Whether every rank has one component, which can be reduced as it is.
  bool one_each() const {
    return std::ranges::all_of(replicas, [](int64_t count) { return count == 1; });
  }
};

// A dense value under way. Has all memory that it needs once constructed, before the other ranks
// rely on this one.
class DenseSum {
 public:
  DenseSum(const ReductionPlan& plan, const Grouping& grouping)
      : plan_(&plan), outputs_(outputs_of(plan)) {
    const Dtype wide = accumulator_of(plan.dtype());
    const Shape& shape = plan.dense[0].shape();
    result_ = outputs_.empty() ? Tensor::allocate(plan.dtype(), shape) : outputs_[0];
    sum_ = wide == plan.dtype() ? result_ : Tensor::allocate(wide, shape);
    if (plan.replicas() != 1) fold(plan.dense, grouping, 1, {sum_});
  }

  // To be called before all that follow: `shares` decide whether sums are made of the components
  // themselves, and are the result, or in the accumulator's dtype.
  void set_shares(const Shares& shares) {
    divisor_ = divisor_of(plan_->op, shares.total());
    is_result_ = shares.one_each();
    if (!is_result_ && plan_->replicas() == 1) fold(plan_->dense, flat(1), 1, {sum_});
  }

  // What this rank contributes, and where the sum of all ranks goes.
  const Tensor& in() const { return is_result_ ? plan_->dense[0] : sum_; }
  const Tensor& out() const { return is_result_ ? result_ : sum_; }
  tutti_op op() const {
    return is_result_ && is_mean(*plan_) && divisor_ != 1 ? TUTTI_MEAN : TUTTI_SUM;
  }
  // Sums that have the same are reduced as one operation.
  std::pair<Dtype, bool> kind() const { return {out().dtype(), is_result_}; }

  const Tensor& result() const { return result_; }
  // Makes the result of the sum of all ranks.
  const Tensor& finish() const {
    if (!is_result_) fold({sum_}, flat(1), divisor_, {result_});
    return result_;
  }
  // Copies of the result for the devices of this process.
  Mirrored copies() const {
    if (!outputs_.empty()) fold({result_}, flat(1), 1, {outputs_.begin() + 1, outputs_.end()});
    return mirrored(*plan_, outputs_);
  }

 private:
  const ReductionPlan* plan_;
  std::vector<Tensor> outputs_;  // Of the devices of this process.
  Tensor result_;                // The first of these, where there is one.
  Tensor sum_;  // In the accumulator's dtype; the result's memory where that is it.
  uint32_t divisor_ = 1;
  bool is_result_ = false;
};

// The reductions of one call of all ranks.
class GroupReduction {
 public:
  GroupReduction(tutti_group* group, const Method& method, const CommunicationOptions& options)
      : method_(method),
        options_(options),
        communicator_(group,
                      {milliseconds_of(options.timeout_seconds),
                       options.implementation == Implementation::ring ? "ring" : "centralized",
                       options.reproducible}) {}

  Result<std::vector<Mirrored>> run(std::string_view verb,
                                    const Result<std::vector<ReductionPlan>>& plans);

 private:
  // For one value: one of the two, by its plan.
  struct Reduction {
    std::optional<DenseSum> dense;
    std::optional<RowGather> sparse;
  };

  Result<Description> prepare(std::string_view verb, const std::vector<ReductionPlan>& plans);
  Description describe(std::string_view verb, const std::vector<ReductionPlan>& plans) const;
  Status share(const std::vector<ReductionPlan>& plans, const std::vector<int64_t>& replicas);
  Status prepare_sparse(const std::vector<ReductionPlan>& plans);
  bool is_all_reduced(const ReductionPlan& plan) const {
    return !plan.sparse && method_.all_reduce && plan.targets.ranks.size() == communicator_.size();
  }
  Status run_all_reduces(const std::vector<ReductionPlan>& plans);
  Status run_batch(const std::vector<const DenseSum*>& sums);
  std::vector<Pack> packs_of(const std::vector<const DenseSum*>& sums) const;
  Status run_to_one(const ReductionPlan& plan, const DenseSum& sum);
  Mirrored result_of(const ReductionPlan& plan, size_t index) const;

  const Method& method_;
  const CommunicationOptions& options_;
  const Communicator communicator_;
  std::vector<Shares> shares_;  // By plan, as the next.
  std::vector<Reduction> reductions_;
};

// The components of this rank, if all values have as many and none has rows to tell; else -1.
int64_t replicas_of_all(const std::vector<ReductionPlan>& plans) {
  for (const ReductionPlan& plan : plans)
    if (plan.sparse || plan.replicas() != plans[0].replicas()) return -1;
  return plans.empty() ? 1 : plans[0].replicas();
}

Result<std::vector<Mirrored>> GroupReduction::run(std::string_view verb,
                                                  const Result<std::vector<ReductionPlan>>& plans) {
  const Result<Description> own = plans.ok() ? no_throw([&] { return prepare(verb, *plans); })
                                             : Result<Description>(plans.status());
  const auto replicas = agree(communicator_, own, own.ok() ? replicas_of_all(*plans) : 0);
  if (!replicas.ok()) return replicas.status();
  if (const Status shared = share(*plans, *replicas); !shared.ok()) return shared;
  if (const Status prepared = prepare_sparse(*plans); !prepared.ok()) return prepared;
  if (const Status done = run_all_reduces(*plans); !done.ok()) return done;
  for (size_t i = 0; i < plans->size(); ++i) {
    if (is_all_reduced((*plans)[i])) continue;
    const Status done = reductions_[i].sparse ? reductions_[i].sparse->run(communicator_)
                                              : run_to_one((*plans)[i], *reductions_[i].dense);
    if (!done.ok()) return done;
  }
  std::vector<Mirrored> results;  // Nobody waits for this rank any longer.
  for (size_t i = 0; i < plans->size(); ++i) results.push_back(result_of((*plans)[i], i));
  return results;
}

// Takes the memory for the dense values, and sums their components.
Result<Description> GroupReduction::prepare(std::string_view verb,
                                            const std::vector<ReductionPlan>& plans) {
  reductions_.resize(plans.size());
  for (size_t i = 0; i < plans.size(); ++i)
    if (!plans[i].sparse) reductions_[i].dense.emplace(plans[i], grouping_of(method_, plans[i]));
  return describe(verb, plans);
}

Description GroupReduction::describe(std::string_view verb,
                                     const std::vector<ReductionPlan>& plans) const {
  Description lines = {std::string(verb) + " by " + std::string(method_.name)};
  lines.push_back(method_.num_packs ? "num_packs " + std::to_string(*method_.num_packs)
                                    : "no packing");
  lines.push_back(method_.reduce_to ? "reduce_to_device " + to_string(*method_.reduce_to)
                                    : "reduce to the first destination");
  lines.push_back("bytes_per_pack " + std::to_string(options_.bytes_per_pack) +
                  ", implementation " + std::string(name_of(options_.implementation)));
  lines.push_back(std::to_string(plans.size()) + " values");
  for (size_t i = 0; i < plans.size(); ++i)
    lines.push_back("value " + std::to_string(i) + ": " + plans[i].describe());
  return lines;
}

// Finds out what each rank has of each value.
Status GroupReduction::share(const std::vector<ReductionPlan>& plans,
                             const std::vector<int64_t>& replicas) {
  shares_.assign(plans.size(), {replicas, std::vector<int64_t>(replicas.size())});
  if (std::ranges::all_of(replicas, [](int64_t count) { return count > 0; })) return {};
  std::vector<int64_t> own;
  for (const ReductionPlan& plan : plans) {
    own.push_back(plan.replicas());
    own.push_back(plan.rows());
  }
  const auto all = communicator_.all_gather(own);
  if (!all.ok()) return all.status();
  for (size_t i = 0; i < plans.size(); ++i)
    for (size_t rank = 0; rank < replicas.size(); ++rank) {
      shares_[i].replicas[rank] = (*all)[rank][2 * i];
      shares_[i].rows[rank] = (*all)[rank][2 * i + 1];
    }
  return {};
}

// Takes the memory for the rows of all ranks, which are known by now.
Status GroupReduction::prepare_sparse(const std::vector<ReductionPlan>& plans) {
  const auto is_sparse = [](const ReductionPlan& plan) { return plan.sparse.has_value(); };
  if (std::ranges::none_of(plans, is_sparse)) return {};
  return confirm(communicator_, no_throw([&]() -> Status {
                   for (size_t i = 0; i < plans.size(); ++i)
                     if (plans[i].sparse)
                       reductions_[i].sparse.emplace(*plans[i].sparse, shares_[i].rows);
                   return {};
                 }));
}

// Reduces the dense values that all ranks get, those of one dtype together.
Status GroupReduction::run_all_reduces(const std::vector<ReductionPlan>& plans) {
  std::map<std::pair<Dtype, bool>, std::vector<const DenseSum*>> batches;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!reductions_[i].dense) continue;
    reductions_[i].dense->set_shares(shares_[i]);
    if (is_all_reduced(plans[i]))
      batches[reductions_[i].dense->kind()].push_back(&*reductions_[i].dense);
  }
  for (const auto& [_, sums] : batches) {
    if (const Status done = run_batch(sums); !done.ok()) return done;
    for (const DenseSum* sum : sums) sum->finish();
  }
  return {};
}

Status GroupReduction::run_batch(const std::vector<const DenseSum*>& sums) {
  std::vector<Tensor> ins;
  std::vector<Tensor> outs;
  for (const DenseSum* sum : sums) {
    ins.push_back(sum->in());
    outs.push_back(sum->out());
  }
  return communicator_.all_reduce(ins, outs, packs_of(sums), sums[0]->op());
}

std::vector<Pack> GroupReduction::packs_of(const std::vector<const DenseSum*>& sums) const {
  std::vector<size_t> counts;
  for (const DenseSum* sum : sums) counts.push_back(sum->out().count());
  const size_t size = size_of(sums[0]->out().dtype());
  if (options_.bytes_per_pack != 0)
    return pack_by_bytes(counts, size, static_cast<size_t>(options_.bytes_per_pack));
  if (!method_.num_packs) return pack_each(counts);
  return pack_by_count(counts, static_cast<size_t>(*method_.num_packs));
}

// Reduces to one rank, which sends the result to the others unless it is the only destination.
Status GroupReduction::run_to_one(const ReductionPlan& plan, const DenseSum& sum) {
  const bool given = method_.reduce_to && method_.reduce_to->task >= 0;
  const int root = given ? method_.reduce_to->task : plan.targets.ranks[0];
  const Status reduced = communicator_.reduce(sum.in(), sum.out(), sum.op(), root);
  if (!reduced.ok()) return reduced;
  const Tensor& result = communicator_.rank() == root ? sum.finish() : sum.result();
  if (plan.targets.ranks == std::vector<int>{root}) return {};
  return communicator_.broadcast(result, root);
}

Mirrored GroupReduction::result_of(const ReductionPlan& plan, size_t index) const {
  if (reductions_[index].dense) return reductions_[index].dense->copies();
  return mirrored(plan, reductions_[index].sparse->result(), shares_[index].total());
}

}  // namespace

Mirrored reduce_here(const Method& method, const ReductionPlan& plan) {
  if (plan.sparse) return mirrored(plan, *plan.sparse, plan.replicas());
  const std::vector<Tensor> outputs = outputs_of(plan);
  const bool is_copy = plan.replicas() == 1;  // Of any dtype.
  fold(plan.dense, grouping_of(method, plan), is_copy ? 1 : divisor_of(plan.op, plan.replicas()),
       outputs);
  return mirrored(plan, outputs);
}

Result<std::vector<Mirrored>> reduce_in_group(tutti_group* group, const Method& method,
                                              std::string_view verb,
                                              const Result<std::vector<ReductionPlan>>& plans,
                                              const CommunicationOptions& options) {
  return GroupReduction(group, method, options).run(verb, plans);
}

}  // namespace tutti::cross_device
