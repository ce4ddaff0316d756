// Operations of one call on a group: communicator.h.
#include "client/cross_device/communicator.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace tutti::cross_device {
namespace {

using Clock = std::chrono::steady_clock;

// The outcome of a function of tutti.h.
Status status_of(tutti_code code) {
  if (code == TUTTI_OK) return {};
  const tutti_error& error = *tutti_last_error();
  return {static_cast<Code>(error.code), error.message, {error.rank, error.host}};
}

tutti_dtype number_of(const Tensor& tensor) { return static_cast<tutti_dtype>(tensor.dtype()); }

void* at(const Tensor& tensor, size_t offset) {
  return tensor.data() + offset * size_of(tensor.dtype());
}

// The arrays that tutti_all_reduce_many() takes.
struct Lists {
  Lists(const std::vector<Tensor>& from, const std::vector<Tensor>& to, const Pack& pack) {
    for (const Piece& piece : pack) {
      ins.push_back(at(from[piece.tensor], piece.offset));
      outs.push_back(at(to[piece.tensor], piece.offset));
      counts.push_back(piece.count);
    }
  }
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<size_t> counts;
};

}  // namespace

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

Communicator::Communicator(tutti_group* group, std::optional<double> timeout_seconds,
                           std::string strategy)
    : group_(group), strategy_(std::move(strategy)) {
  if (timeout_seconds.value_or(0) <= 0) return;
  const double most = INT_MAX / 1000.0;
  const std::chrono::duration<double> timeout(std::min(*timeout_seconds, most));
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
}

tutti_options Communicator::options() const {
  tutti_options options = tutti_defaults();
  if (!deadline_) return options;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
  options.timeout_ms = static_cast<int32_t>(std::max<int64_t>(left.count(), 1));
  return options;
}

tutti_options Communicator::reduction_options() const {
  tutti_options reducing = options();
  if (!strategy_.empty()) reducing.strategy = strategy_.c_str();
  return reducing;
}

Status Communicator::all_gather(const void* in, void* out, size_t bytes) const {
  const tutti_options given = options();
  return status_of(tutti_all_gather(group_, in, out, bytes, TUTTI_U8, &given, nullptr));
}

Result<std::vector<std::vector<int64_t>>> Communicator::all_gather(
    const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> all(numbers.size() * size());
  const size_t bytes = numbers.size() * sizeof(int64_t);
  if (const Status gathered = all_gather(numbers.data(), all.data(), bytes); !gathered.ok())
    return gathered;
  std::vector<std::vector<int64_t>> by_rank;
  for (size_t rank = 0; rank < size(); ++rank) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(rank * numbers.size());
    by_rank.emplace_back(first, first + static_cast<ptrdiff_t>(numbers.size()));
  }
  return by_rank;
}

Status Communicator::all_reduce(const std::vector<Tensor>& ins, const std::vector<Tensor>& outs,
                                const std::vector<Pack>& packs, tutti_op op) const {
  PendingWorks works;
  Status started;
  const tutti_options given = reduction_options();
  for (const Pack& pack : packs) {
    const Lists lists(ins, outs, pack);
    tutti_work* work = nullptr;
    started = status_of(tutti_all_reduce_many(group_, lists.ins.data(), lists.outs.data(),
                                              lists.counts.data(), lists.counts.size(),
                                              number_of(ins[pack[0].tensor]), op, &given, &work));
    if (!started.ok()) break;
    works.add(work);
  }
  const Status ended = works.wait();
  return started.ok() ? ended : started;
}

Status Communicator::reduce(const Tensor& in, const Tensor& out, tutti_op op, int root) const {
  const tutti_options given = reduction_options();
  return status_of(tutti_reduce(group_, in.data(), out.data(), in.count(), number_of(in), op, root,
                                &given, nullptr));
}

Status Communicator::broadcast(const Tensor& tensor, int root) const {
  const tutti_options given = options();
  return status_of(tutti_broadcast(group_, tensor.data(), tensor.count(), number_of(tensor), root,
                                   &given, nullptr));
}

}  // namespace tutti::cross_device
