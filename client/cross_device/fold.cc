// Sums of several tensors: fold.h.
#include "client/cross_device/fold.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "daemon/kernel/kernel.h"

namespace tutti::cross_device {
namespace {

constexpr size_t kBlockElements = 8192;  // A block's partial sums stay in the cache.

// A range of every tensor, folded as one.
class BlockFold {
 public:
  BlockFold(const std::vector<Tensor>& sources, const Grouping& grouping, uint32_t divisor,
            const std::vector<Tensor>& targets)
      : sources_(sources), grouping_(grouping), targets_(targets), divisor_(divisor) {
    const Dtype partial = accumulator_of(sources[0].dtype());
    const auto block =
        static_cast<int64_t>(std::min(kBlockElements, std::max<size_t>(sources[0].count(), 1)));
    for (size_t group = 1; group < grouping.size(); ++group)
      partials_.push_back(Tensor::allocate(partial, {block}));
  }

  void run(size_t offset, size_t count) const {
    std::vector<Operand> operands = operands_of(grouping_[0], offset);
    for (size_t group = 1; group < grouping_.size(); ++group) {
      const Tensor& partial = partials_[group - 1];
      call({{partial.data(), partial.dtype()}}, operands_of(grouping_[group], offset), count, 1);
      operands.push_back({partial.data(), partial.dtype()});
    }
    std::vector<Target> targets;
    for (const Tensor& target : targets_) targets.push_back({at(target, offset), target.dtype()});
    call(targets, operands, count, divisor_);
  }

 private:
  static std::byte* at(const Tensor& tensor, size_t offset) {
    return tensor.data() + offset * size_of(tensor.dtype());
  }
  std::vector<Operand> operands_of(const std::vector<size_t>& group, size_t offset) const {
    std::vector<Operand> operands;
    for (const size_t index : group)
      operands.push_back({at(sources_[index], offset), sources_[index].dtype()});
    return operands;
  }
  void call(const std::vector<Target>& targets, const std::vector<Operand>& operands, size_t count,
            uint32_t divisor) const {
    kernel_({targets.data(), targets.size(), operands.data(), operands.size(), count, Op::sum,
             divisor, false});
  }

  const std::vector<Tensor>& sources_;
  const Grouping& grouping_;
  const std::vector<Tensor>& targets_;
  const uint32_t divisor_;
  std::vector<Tensor> partials_;  // Of the groups behind the first.
  Kernel kernel_ = choose_kernel();
};

Grouping halves(size_t count) {
  Grouping grouping = flat(count);
  const size_t half = (count + 1) / 2;
  std::vector<size_t>& first = grouping[0];
  if (half < count) {
    grouping.emplace_back(first.begin() + static_cast<ptrdiff_t>(half), first.end());
    grouping[0].resize(half);
  }
  return grouping;
}

}  // namespace

Grouping flat(size_t count) {
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return {all};
}

Grouping hierarchical(const std::vector<DeviceName>& devices) {
  std::map<std::pair<std::string, int>, size_t> groups;  // By job and task.
  Grouping grouping;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto [found, added] =
        groups.try_emplace({devices[i].job, devices[i].task}, grouping.size());
    if (added) grouping.emplace_back();
    grouping[found->second].push_back(i);
  }
  return grouping.size() > 1 ? grouping : halves(devices.size());
}

void fold(const std::vector<Tensor>& sources, const Grouping& grouping, uint32_t divisor,
          const std::vector<Tensor>& targets) {
  if (targets.empty() || sources[0].count() == 0) return;
  const PlainArithmetic plain;
  const BlockFold block(sources, grouping, divisor, targets);
  const size_t count = sources[0].count();
  for (size_t offset = 0; offset < count; offset += kBlockElements)
    block.run(offset, std::min(kBlockElements, count - offset));
}

}  // namespace tutti::cross_device
