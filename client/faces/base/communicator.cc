// Operations of one call on a group: communicator.h.
#include "client/faces/base/communicator.h"

#include <algorithm>

#include "daemon/kernel/kernel.h"

namespace tutti::faces {
namespace {

using Clock = std::chrono::steady_clock;

tutti_dtype number_of(const Tensor& tensor) { return static_cast<tutti_dtype>(tensor.dtype()); }

// The arrays that tutti_all_reduce_many() takes.
struct Lists {
  Lists(const std::vector<Tensor>& from, const std::vector<Tensor>& to, const Pack& pack) {
    for (const Piece& piece : pack) {
      ins.push_back(element_at(from[piece.tensor], piece.offset));
      outs.push_back(element_at(to[piece.tensor], piece.offset));
      counts.push_back(piece.count);
    }
  }
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<size_t> counts;
};

}  // namespace

Status status_of(tutti_code code) {
  if (code == TUTTI_OK) return {};
  const tutti_error& error = *tutti_last_error();
  return {code_of(error.code), error.message, {error.rank, error.host}};
}

Status PendingWorks::wait() {
  Status first;
  for (tutti_work* work : works_) {
    const Status ended = status_of(tutti_work_wait(work, -1));
    if (first.ok()) first = ended;
    tutti_work_free(work);
  }
  works_.clear();
  return first;
}

Communicator::Communicator(tutti_group* group, const CallOptions& options)
    : group_(group), strategy_(options.strategy), reproducible_(options.reproducible) {
  if (options.timeout_ms > 0)
    deadline_ = Clock::now() + std::chrono::milliseconds(options.timeout_ms);
}

tutti_options Communicator::options(const std::string& strategy) const {
  tutti_options options = tutti_defaults();
  if (!strategy.empty()) options.strategy = strategy.c_str();
  if (reproducible_) options.reproducible = *reproducible_ ? 1 : -1;
  if (!deadline_) return options;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
  options.timeout_ms = static_cast<int32_t>(std::max<int64_t>(left.count(), 1));
  return options;
}

Status Communicator::all_gather(const void* in, void* out, size_t bytes) const {
  if (group_ == nullptr) {
    copy_bytes(static_cast<std::byte*>(out), in, bytes);
    return {};
  }
  const tutti_options given = options();
  return status_of(tutti_all_gather(group_, in, out, bytes, TUTTI_U8, &given, nullptr));
}

Result<NumbersByRank> Communicator::all_gather(const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> all(numbers.size() * size());
  const size_t bytes = numbers.size() * sizeof(int64_t);
  if (const Status gathered = all_gather(numbers.data(), all.data(), bytes); !gathered.ok())
    return gathered;
  NumbersByRank by_rank;
  for (size_t rank = 0; rank < size(); ++rank) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(rank * numbers.size());
    by_rank.emplace_back(first, first + static_cast<ptrdiff_t>(numbers.size()));
  }
  return by_rank;
}

Result<NumbersByRank> Communicator::gather_lists(std::vector<int64_t> numbers) const {
  const auto lengths = all_gather(std::vector{static_cast<int64_t>(numbers.size())});
  if (!lengths.ok()) return lengths.status();
  numbers.resize(static_cast<size_t>(std::ranges::max(*lengths)[0]));
  Result<NumbersByRank> all = all_gather(numbers);
  for (size_t rank = 0; all.ok() && rank < size(); ++rank)
    (*all)[rank].resize(static_cast<size_t>((*lengths)[rank][0]));
  return all;
}

Status Communicator::all_reduce(const std::vector<Tensor>& ins, const std::vector<Tensor>& outs,
                                const std::vector<Pack>& packs, tutti_op op) const {
  PendingWorks works;
  Status started;
  for (const Pack& pack : packs) {
    const tutti_options given = options(strategy_);  // A call may wait.
    const Lists lists(ins, outs, pack);
    tutti_work* work = nullptr;
    // Also after one that failed here alone: the other ranks call all.
    const Status status = status_of(tutti_all_reduce_many(
        group_, lists.ins.data(), lists.outs.data(), lists.counts.data(), lists.counts.size(),
        number_of(ins[pack[0].tensor]), op, &given, &work));
    if (status.ok()) works.add(work);
    if (started.ok()) started = status;
  }
  const Status ended = works.wait();
  return started.ok() ? ended : started;
}

Status Communicator::all_reduce(const std::vector<Tensor>& tensors, tutti_op op) const {
  if (group_ == nullptr) return {};
  return all_reduce(tensors, tensors, pack_by_dtype(tensors), op);
}

Status Communicator::reduce(const Tensor& in, const Tensor& out, tutti_op op, int root) const {
  const tutti_options given = options(strategy_);
  return status_of(tutti_reduce(group_, in.data(), out.data(), in.count(), number_of(in), op, root,
                                &given, nullptr));
}

Status Communicator::broadcast(const Tensor& tensor, int root, const std::string& strategy) const {
  if (group_ == nullptr) return {};
  const tutti_options given = options(strategy);
  return status_of(tutti_broadcast(group_, tensor.data(), tensor.count(), number_of(tensor), root,
                                   &given, nullptr));
}

BytesGather::BytesGather(const std::vector<size_t>& bytes)
    : own_(std::ranges::max(bytes)), all_(own_.size() * bytes.size()) {}

Status BytesGather::run(const Communicator& communicator) {
  return own_.empty() ? Status() : communicator.all_gather(own_.data(), all_.data(), own_.size());
}

}  // namespace tutti::faces
