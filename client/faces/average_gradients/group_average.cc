// The mean over the towers of all ranks of a group: group_average.h.
#include "client/faces/average_gradients/group_average.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "client/faces/average_gradients/gradient_form.h"
#include "client/faces/average_gradients/mean.h"
#include "client/faces/base/base.h"
#include "client/faces/cross_device/sparse.h"

namespace tutti::average_gradients {
namespace {

using cross_device::RowGather;
using Values = std::vector<std::optional<Value>>;

std::string describe(const std::optional<double>& norm) { return norm ? text_of(*norm) : "no"; }

// What all ranks must give the same of the options.
std::string describe(const Options& options) {
  constexpr const char* kPolicies[] = {"error", "skip", "zeros"};
  return std::string("average_gradients with none '") +
         kPolicies[static_cast<size_t>(options.none)] + "', strict " +
         std::to_string(options.strict) + ", sum_duplicates " +
         std::to_string(options.sum_duplicates) + ", clip_norm " + describe(options.clip_norm) +
         ", clip_global_norm " + describe(options.clip_global_norm);
}

// What a rank without a gradient of this form adds to the sum: zeros in the accumulator's dtype, or
// no rows.
Value nothing_of(const Value& form) {
  const auto* slices = std::get_if<IndexedSlices>(&form);
  const Tensor& elements = elements_of(form);
  if (slices == nullptr) {
    Tensor zeros = Tensor::allocate(accumulator_of(elements.dtype()), elements.shape());
    std::memset(zeros.data(), 0, zeros.bytes());
    return zeros;
  }
  Shape shape = elements.shape();
  shape[0] = 0;
  return IndexedSlices{Tensor::allocate(elements.dtype(), shape),
                       Tensor::allocate(slices->indices.dtype(), {0}), slices->dense_shape};
}

// The sum of this rank's towers: slices, or a tensor in the accumulator's dtype, which may be the
// gradient itself.
Value sum_of(const cross_device::ReductionPlan& plan) {
  if (plan.sparse) return *plan.sparse;
  const Dtype dtype = accumulator_of(plan.dtype());
  if (plan.dense.size() == 1 && plan.dtype() == dtype) return plan.dense[0];
  return faces::sum_of(plan.dense, dtype);
}

// The sum of one variable's gradients under way.
struct Sum {
  explicit Sum(Value rank_sum) : own(std::move(rank_sum)) {
    if (!is_sparse(own)) all = Tensor::allocate(elements_of(own).dtype(), elements_of(own).shape());
  }
  Value own;   // Of this rank's towers.
  Tensor all;  // Of all ranks, unless sparse.
};

// What the ranks know of a variable together.
struct Variable {
  std::optional<Value> form;  // Of a gradient; nothing if no tower of any rank has one.
  int64_t present = 0;        // Towers of all ranks that have one.
  std::vector<int64_t> rows;  // Of slices, by rank.
};

// The forms of a variable on the ranks must say the same.
Result<Variable> join_forms(const LocalGradients& local, const std::vector<GradientForm>& forms) {
  Variable variable;
  size_t first = 0;
  for (size_t rank = 0; rank < forms.size(); ++rank) {
    const std::optional<Value>& form = forms[rank].form;
    variable.present += forms[rank].towers;
    variable.rows.push_back(form && is_sparse(*form) ? elements_of(*form).shape()[0] : 0);
    if (!form) continue;
    if (!variable.form) {
      variable.form = form;
      first = rank;
    }
    if (faces::describe(*form) != faces::describe(*variable.form))
      return invalid_argument("the gradients of " + local.label + " differ: rank " +
                              std::to_string(first) + " has " + faces::describe(*variable.form) +
                              ", rank " + std::to_string(rank) + " has " + faces::describe(*form));
  }
  return variable;
}

class GroupAverage {
 public:
  GroupAverage(tutti_group* group, const Options& options)
      : communicator_(group, {milliseconds_of(options.timeout_seconds), options.strategy,
                              options.reproducible}),
        options_(options) {}

  // Takes the memory for the gradients that this rank has, before the others rely on it.
  Status prepare(const std::vector<LocalGradients>& local);
  // The number of towers of all ranks. `local` is cut to the variables that all ranks have.
  Result<int64_t> agree_on_variables(Result<std::vector<LocalGradients>>& local, int64_t towers);
  Status agree_on_forms(const std::vector<LocalGradients>& local, int64_t towers);
  Result<Values> average(int64_t towers);

 private:
  // Whether the ranks may have gradients of different forms, or none, as far as all of them know.
  bool may_differ() const { return options_.none != NonePolicy::error; }
  void describe_variables(const std::vector<LocalGradients>& local, Description& lines) const;
  Status cut_to_shortest(Result<std::vector<LocalGradients>>& local) const;
  Status exchange(const std::vector<LocalGradients>& local, const std::vector<GradientForm>& own);
  Status prepare_for_forms();
  Status reduce_dense() const;
  Value mean_at(size_t index, int64_t towers) const;

  const Communicator communicator_;
  const Options& options_;
  std::vector<std::optional<Sum>> sums_;  // By variable, as the next; nothing if there is no form.
  std::vector<Variable> variables_;
  std::map<size_t, RowGather> gathers_;  // Of slices.
};

Status GroupAverage::prepare(const std::vector<LocalGradients>& local) {
  for (const LocalGradients& gradients : local) {
    std::optional<Sum>& sum = sums_.emplace_back();
    if (gradients.plan) sum.emplace(sum_of(*gradients.plan));
  }
  return {};
}

void GroupAverage::describe_variables(const std::vector<LocalGradients>& local,
                                      Description& lines) const {
  lines.push_back(std::to_string(local.size()) + " variables");
  for (size_t i = 0; i < local.size(); ++i) {
    std::string line = label_of(options_.compare_variables ? local[i].variable : "", i);
    if (!may_differ()) line += ": " + faces::describe(*local[i].form());
    lines.push_back(std::move(line));
  }
}

Status GroupAverage::cut_to_shortest(Result<std::vector<LocalGradients>>& local) const {
  const auto counts = agree(communicator_,
                            local.ok() ? Result<Description>(Description{describe(options_)})
                                       : Result<Description>(local.status()),
                            local.ok() ? static_cast<int64_t>(local->size()) : 0);
  if (!counts.ok()) return counts.status();
  local->resize(static_cast<size_t>(*std::ranges::min_element(*counts)));
  return {};
}

Result<int64_t> GroupAverage::agree_on_variables(Result<std::vector<LocalGradients>>& local,
                                                 int64_t towers) {
  if (!options_.strict)
    if (const Status cut = cut_to_shortest(local); !cut.ok()) return cut;
  Description lines = {describe(options_)};
  if (local.ok()) describe_variables(*local, lines);
  const auto all =
      agree(communicator_,
            local.ok() ? Result<Description>(lines) : Result<Description>(local.status()), towers);
  if (!all.ok()) return all.status();
  return std::accumulate(all->begin(), all->end(), int64_t{0});
}

Status GroupAverage::agree_on_forms(const std::vector<LocalGradients>& local, int64_t towers) {
  std::vector<GradientForm> own;
  for (const LocalGradients& gradients : local)
    own.push_back({gradients.present, gradients.form()});
  const bool has_slices = std::ranges::any_of(
      own, [](const GradientForm& form) { return form.form && is_sparse(*form.form); });
  if (may_differ() || has_slices) return exchange(local, own);
  for (const GradientForm& form : own) variables_.push_back({form.form, towers, {}});
  return {};  // All ranks have said so.
}

Status GroupAverage::exchange(const std::vector<LocalGradients>& local,
                              const std::vector<GradientForm>& own) {
  const auto forms = exchange_forms(communicator_, own);
  if (!forms.ok()) return forms.status();
  for (size_t i = 0; i < local.size(); ++i) {
    std::vector<GradientForm> by_rank;
    for (const std::vector<GradientForm>& of_rank : *forms) by_rank.push_back(of_rank[i]);
    Result<Variable> variable = join_forms(local[i], by_rank);
    if (!variable.ok()) return variable.status();
    variables_.push_back(*std::move(variable));
  }
  return confirm(communicator_, no_throw([&] { return prepare_for_forms(); }));
}

// Takes the memory for what only the forms of the other ranks tell.
Status GroupAverage::prepare_for_forms() {
  for (size_t i = 0; i < variables_.size(); ++i) {
    const Variable& variable = variables_[i];
    if (!variable.form) continue;
    if (!sums_[i]) sums_[i].emplace(nothing_of(*variable.form));
    if (is_sparse(*variable.form))
      gathers_.try_emplace(i, std::get<IndexedSlices>(sums_[i]->own), variable.rows);
  }
  return {};
}

// Sums the tensors of all ranks, those of a dtype as one operation.
Status GroupAverage::reduce_dense() const {
  std::vector<Tensor> ins;
  std::vector<Tensor> outs;
  for (size_t i = 0; i < variables_.size(); ++i) {  // There may be more sums.
    if (!sums_[i] || is_sparse(sums_[i]->own)) continue;
    ins.push_back(elements_of(sums_[i]->own));
    outs.push_back(sums_[i]->all);
  }
  return communicator_.all_reduce(ins, outs, pack_by_dtype(outs), TUTTI_SUM);
}

Value GroupAverage::mean_at(size_t index, int64_t towers) const {
  const Variable& variable = variables_[index];
  const auto gather = gathers_.find(index);
  const Value sum =
      gather == gathers_.end() ? Value(sums_[index]->all) : Value(gather->second.result());
  return mean_of({sum}, elements_of(*variable.form).dtype(),
                 divisor_of(options_, variable.present, towers), options_);
}

Result<Values> GroupAverage::average(int64_t towers) {
  if (const Status done = reduce_dense(); !done.ok()) return done;
  for (auto& [index, gather] : gathers_)
    if (const Status done = gather.run(communicator_); !done.ok()) return done;
  Values means(variables_.size());  // Nobody waits for this rank any longer.
  for (size_t i = 0; i < variables_.size(); ++i)
    if (variables_[i].form) means[i] = mean_at(i, towers);
  return means;
}

}  // namespace

Result<Values> average_in_group(tutti_group* group, Result<std::vector<LocalGradients>> local,
                                int64_t towers, const Options& options) {
  GroupAverage average(group, options);
  if (local.ok()) {
    const Status prepared = no_throw([&] { return average.prepare(*local); });
    if (!prepared.ok()) local = prepared;
  }
  const Result<int64_t> all_towers = average.agree_on_variables(local, towers);
  if (!all_towers.ok()) return all_towers.status();
  const Status agreed = average.agree_on_forms(*local, *all_towers);
  if (!agreed.ok()) return agreed;
  return average.average(*all_towers);
}

}  // namespace tutti::average_gradients
