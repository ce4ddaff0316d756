#include "client/faces/burn/operation.h"

#include <algorithm>
#include <cstring>

#include "client/faces/burn/collective_error.h"
#include "daemon/base/hash.h"
#include "daemon/board/board.h"

namespace tutti::burn {
namespace {

using Calls = std::span<Call* const>;
using Kind = Call::Kind;

std::string peer_text(const Call& call) { return "peer " + std::to_string(call.peer); }

std::string kind_of(const Call& call) {
  return call.tensor ? faces::describe(*call.tensor) : "nothing";
}

// "reduce(MEAN, root=2) of f32[4]".
std::string describe(const Call& call) {
  const std::string op(name_of(call.op));
  if (call.kind == Kind::broadcast) return "broadcast of " + kind_of(call);
  if (call.kind == Kind::all_reduce) return "all_reduce(" + op + ") of " + kind_of(call);
  return "reduce(" + op + ", root=" + std::to_string(call.root) + ") of " + kind_of(call);
}

std::vector<const Call*> providers_of(Calls calls) {
  std::vector<const Call*> providers;
  for (const Call* call : calls)
    if (call->tensor) providers.push_back(call);
  return providers;
}

// What a process reports of its calls, or a peer.
struct Record {
  int64_t failed = 0;  // The code of its own error.
  int64_t kind = 0;
  int64_t hash = 0;  // Of dtype and shape.
  int64_t op = 0;
  int64_t root = 0;
  int64_t peers = 0;
  int64_t has_root = 0;
  int64_t providers = 0;
};
static_assert(std::is_trivially_copyable_v<Record>);
constexpr size_t kNumbers = sizeof(Record) / sizeof(int64_t);

Record record_of(const Status& own, Calls calls) {
  const Call& first = *calls[0];
  const bool reduces = first.kind != Kind::broadcast;
  Record record;
  record.failed = static_cast<int64_t>(own.code());
  record.kind = static_cast<int64_t>(first.kind);
  record.hash = reduces ? static_cast<int64_t>(fnv1a(kind_of(first))) : 0;
  record.op = reduces ? static_cast<int64_t>(first.op) : 0;
  record.root = first.kind == Kind::reduce ? first.root : 0;
  record.peers = static_cast<int64_t>(calls.size());
  record.has_root =
      std::ranges::any_of(calls, [&](Call* call) { return call->peer == first.root; });
  record.providers = static_cast<int64_t>(providers_of(calls).size());
  return record;
}

// What all processes have told, or all peers of one.
struct Agreement {
  std::vector<Record> records;  // By rank, or by peer.

  int64_t sum(int64_t Record::*field) const {
    int64_t sum = 0;
    for (const Record& record : records) sum += record.*field;
    return sum;
  }
  // The first rank of which the field is not 0; the number of ranks: none.
  size_t find(int64_t Record::*field) const {
    return static_cast<size_t>(
        std::ranges::find_if(records, [&](const Record& r) { return r.*field != 0; }) -
        records.begin());
  }
};

Result<Agreement> exchange(const Communicator& communicator, const Record& own) {
  const auto* numbers = reinterpret_cast<const int64_t*>(&own);
  const auto all = communicator.all_gather(std::vector(numbers, numbers + kNumbers));
  if (!all.ok()) return global_error(all.status());
  Agreement agreement;
  for (const std::vector<int64_t>& of_rank : *all)
    std::memcpy(static_cast<void*>(&agreement.records.emplace_back()), of_rank.data(),
                sizeof(Record));
  return agreement;
}

// The first record that differs from the first one, and in what; nothing if none does.
struct Difference {
  size_t index;
  CollectiveError error;
};
std::optional<Difference> find_difference(const Agreement& agreement) {
  const Record& first = agreement.records[0];
  const bool all = first.kind == static_cast<int64_t>(Kind::all_reduce);
  using E = CollectiveError;
  const struct {
    int64_t Record::*field;
    CollectiveError error;
  } fields[] = {
      {&Record::kind, E::other},
      {&Record::hash, all ? E::all_reduce_shape_mismatch : E::reduce_shape_mismatch},
      {&Record::op, all ? E::all_reduce_operation_mismatch : E::reduce_operation_mismatch},
      {&Record::root, E::reduce_root_mismatch}};
  for (const auto& [field, error] : fields)
    for (size_t rank = 1; rank < agreement.records.size(); ++rank)
      if (agreement.records[rank].*field != first.*field) return Difference{rank, error};
  return std::nullopt;
}

// OK if the calls of this process belong together.
Status validate_local(Calls calls) {
  const Call& first = *calls[0];
  for (const Call* call : calls)
    if (!call->refused.ok())
      return named({call->refused.code(), peer_text(*call) + ": " + call->refused.message()});
  Agreement peers;
  for (Call* const& call : calls) peers.records.push_back(record_of({}, {&call, 1}));
  if (const auto difference = find_difference(peers)) {
    const Call& other = *calls[difference->index];
    return wrong_call(difference->error, disagreement("peer", first.peer, {describe(first)},
                                                      other.peer, {describe(other)}));
  }
  if (first.kind == Kind::broadcast) {
    const std::vector<const Call*> providers = providers_of(calls);
    if (providers.size() < 2) return {};
    return error_of(CollectiveError::broadcast_multiple_tensors,
                    peer_text(*providers[0]) + " and " + peer_text(*providers[1]) +
                        " provide a tensor; only one may");
  }
  const Status summed = check_reducible(first.op, first.tensor->dtype());
  return summed.ok() ? summed : wrong_call(CollectiveError::other, summed.message());
}

// What no process can know of its own calls.
Status validate_sums(const Agreement& agreement, const Call& call) {
  const int64_t providers = agreement.sum(&Record::providers);
  const int64_t roots = agreement.sum(&Record::has_root);
  if (call.kind == Kind::broadcast && providers == 0)
    return error_of(CollectiveError::broadcast_no_tensor,
                    "no peer provides a tensor; exactly one must");
  if (call.kind == Kind::broadcast && providers > 1)
    return error_of(CollectiveError::broadcast_multiple_tensors,
                    std::to_string(providers) + " peers provide a tensor; only one may");
  if (call.kind != Kind::reduce || roots == 1) return {};
  const std::string root = "root peer " + std::to_string(call.root);
  if (roots == 0)
    return error_of(CollectiveError::register_not_first_operation, root + " is not registered");
  return error_of(CollectiveError::reduce_root_mismatch,
                  root + " is registered on " + std::to_string(roots) +
                      " nodes; give the peers of all nodes different ids");
}

// OK, or the same error in all processes.
Status validate(const OperationSetting& setting, const Communicator& communicator, Calls calls,
                const Status& own, const Agreement& agreement) {
  const size_t failed = agreement.find(&Record::failed);
  const std::optional<Difference> difference = find_difference(agreement);
  if (failed == agreement.records.size() && !difference) return validate_sums(agreement, *calls[0]);
  if (setting.group == nullptr) return own;
  const auto texts = gather_texts(communicator, own.ok() ? describe(*calls[0]) : own.message());
  if (!texts.ok()) return global_error(texts.status());
  if (failed < agreement.records.size())
    return {code_of(static_cast<int>(agreement.records[failed].failed)),
            (*texts)[failed] + " (on node " + std::to_string(failed) + ")"};
  const auto rank = static_cast<int64_t>(difference->index);
  return wrong_call(difference->error,
                    disagreement("node", 0, {(*texts)[0]}, rank, {(*texts)[difference->index]}));
}

// The sum of the peers' tensors in the strategy's order of association, divided, as `dtype`.
Tensor fold(const Strategy& strategy, Calls calls, Dtype dtype, uint32_t divisor) {
  const Tensor& first = *calls[0]->tensor;
  Tensor sum = Tensor::allocate(dtype, first.shape());
  if (sum.count() == 0) return sum;
  std::vector<const std::byte*> inputs;
  for (const Call* call : calls) inputs.push_back(call->tensor->data());
  const Folds folds = local_folds(strategy, static_cast<int>(calls.size()));
  std::vector<std::byte> scratch(scratch_bytes(folds.size(), first.dtype()));
  const Target target = {sum.data(), dtype};
  const Kernel kernel = choose_kernel();
  const PlainArithmetic plain;
  run_folds({.folds = folds,
             .contributions = inputs,
             .targets = {&target, 1},
             .dtype = first.dtype(),
             .op = Op::sum,
             .count = sum.count(),
             .divisor = divisor,
             .scratch = scratch},
            [&](const FoldJob& job) {
              kernel(job);
              return true;
            });
  return sum;
}

// The result of this process's peers alone: without a group all of it, else their sum.
Tensor fold_here(const OperationSetting& setting, Calls calls) {
  const Call& first = *calls[0];
  const CollectiveConfig& config = setting.config;
  const Strategy& local = first.kind == Kind::all_reduce ? config.local_all_reduce_strategy
                                                         : config.local_reduce_strategy;
  const Dtype dtype = first.tensor->dtype();
  const bool mean = first.op == ReduceOperation::mean;
  if (setting.group != nullptr) return fold(local, calls, accumulator_of(dtype), 1);
  return fold(local, calls, dtype, mean ? static_cast<uint32_t>(calls.size()) : 1);
}

// The reduction of the sums of all processes; of a reduce it is complete only where the root is.
Result<Tensor> reduce_all(const OperationSetting& setting, Calls calls, const Agreement& agreement,
                          Tensor sum) {
  if (setting.group == nullptr) return sum;
  const Call& first = *calls[0];
  const bool all = first.kind == Kind::all_reduce;
  const CollectiveConfig& config = setting.config;
  const Dtype dtype = first.tensor->dtype();
  const auto peers = static_cast<uint32_t>(agreement.sum(&Record::peers));
  const uint32_t divisor = first.op == ReduceOperation::mean ? peers : 1;
  const Strategy& global = all ? config.global_all_reduce_strategy : config.global_reduce_strategy;
  const Communicator communicator(setting.group,
                                  {setting.timeout_ms, to_string(global), setting.reproducible});
  const int root = static_cast<int>(agreement.find(&Record::has_root));
  const Status status = all ? communicator.all_reduce({sum}, TUTTI_SUM)
                            : communicator.reduce(sum, sum, TUTTI_SUM, root);
  if (!status.ok()) return global_error(status);
  return divisor == 1 && sum.dtype() == dtype ? sum : sum_of({sum}, dtype, divisor);
}

// The provider's tensor in all processes, which learn its dtype and shape first.
Result<Tensor> broadcast_all(const OperationSetting& setting, const Communicator& communicator,
                             Calls calls, const Agreement& agreement) {
  const std::vector<const Call*> providers = providers_of(calls);
  if (setting.group == nullptr) return providers[0]->tensor->clone();
  const int root = static_cast<int>(agreement.find(&Record::providers));
  std::vector<int64_t> kind;  // Shape and dtype.
  if (!providers.empty()) {
    kind = providers[0]->tensor->shape();
    kind.push_back(static_cast<int64_t>(providers[0]->tensor->dtype()));
  }
  auto kinds = communicator.gather_lists(kind);
  if (!kinds.ok()) return global_error(kinds.status());
  Tensor tensor;
  const Status room = no_throw([&] {
    Shape& shape = (*kinds)[static_cast<size_t>(root)];
    const auto dtype = static_cast<Dtype>(shape.back());
    shape.pop_back();
    tensor = providers.empty() ? Tensor::allocate(dtype, std::move(shape))
                               : providers[0]->tensor->clone();
    return Status();
  });
  Status status = confirm(communicator, room);
  if (!status.ok()) return global_error(status);
  status =
      communicator.broadcast(tensor, root, to_string(setting.config.global_broadcast_strategy));
  if (!status.ok()) return global_error(status);
  return tensor;
}

}  // namespace

Status run_operation(const OperationSetting& setting, Calls calls, const Status& given) {
  const Kind kind = calls[0]->kind;
  const Communicator communicator(setting.group, {setting.timeout_ms, ""});
  Tensor sum;
  const Status own = named(no_throw([&]() -> Status {
    if (!given.ok()) return given;
    if (Status status = validate_local(calls); !status.ok()) return status;
    if (kind != Kind::broadcast) sum = fold_here(setting, calls);
    return {};
  }));
  const Result<Agreement> agreement = exchange(communicator, record_of(own, calls));
  if (!agreement.ok()) return agreement.status();
  if (Status status = validate(setting, communicator, calls, own, *agreement); !status.ok())
    return status;
  Result<Tensor> result = kind == Kind::broadcast
                              ? broadcast_all(setting, communicator, calls, *agreement)
                              : reduce_all(setting, calls, *agreement, std::move(sum));
  if (!result.ok()) return result.status();
  Call* last = nullptr;  // Gets the result itself, those before it copies.
  for (Call* call : calls) {
    if (kind == Kind::reduce && call->peer != call->root) continue;
    if (last != nullptr) last->result = result->clone();
    last = call;
  }
  if (last != nullptr) last->result = *std::move(result);
  return {};
}

}  // namespace tutti::burn
