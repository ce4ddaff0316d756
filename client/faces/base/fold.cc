// Sums of several tensors: fold.h.
#include "client/faces/base/fold.h"

#include <algorithm>
#include <numeric>

namespace tutti::faces {
namespace {

constexpr size_t kBlockElements = 8192;  // A block's partial sums stay in the cache.

std::vector<Operand> operands_of(const std::vector<Tensor>& sources,
                                 const std::vector<size_t>& group, size_t offset) {
  std::vector<Operand> operands;
  for (const size_t index : group)
    operands.push_back({element_at(sources[index], offset), sources[index].dtype()});
  return operands;
}

// The number of runs of elements that are contiguous in tensors cut along `axis`.
size_t runs_before(const Shape& shape, size_t axis) {
  size_t runs = 1;
  for (size_t i = 0; i < axis; ++i) runs *= static_cast<size_t>(shape[i]);
  return runs;
}

}  // namespace

Grouping flat(size_t count) {
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return {all};
}

void fold_elements(std::span<const Operand> sources, std::span<const Target> targets, size_t count,
                   uint32_t divisor) {
  static const Kernel kernel = choose_kernel();
  if (count == 0) return;
  const PlainArithmetic plain;
  kernel({targets.data(), targets.size(), sources.data(), sources.size(), count, Op::sum, divisor,
          false});
}

void fold(const std::vector<Tensor>& sources, const Grouping& grouping, uint32_t divisor,
          const std::vector<Tensor>& targets) {
  if (targets.empty()) return;
  const size_t whole = sources[0].count();
  const size_t block = grouping.size() == 1 ? whole : std::min(kBlockElements, whole);
  std::vector<Tensor> partials;  // Of the groups behind the first.
  for (size_t group = 1; group < grouping.size(); ++group)
    partials.push_back(
        Tensor::allocate(accumulator_of(sources[0].dtype()), {static_cast<int64_t>(block)}));
  for (size_t offset = 0; offset < whole; offset += block) {
    const size_t count = std::min(block, whole - offset);
    std::vector<Operand> operands = operands_of(sources, grouping[0], offset);
    for (size_t i = 0; i < partials.size(); ++i) {
      const Target partial = {partials[i].data(), partials[i].dtype()};
      fold_elements(operands_of(sources, grouping[i + 1], offset), {&partial, 1}, count, 1);
      operands.push_back({partial.data, partial.dtype});
    }
    std::vector<Target> to;
    for (const Tensor& target : targets) to.push_back({element_at(target, offset), target.dtype()});
    fold_elements(operands, to, count, divisor);
  }
}

Tensor sum_of(const std::vector<Tensor>& sources, Dtype dtype, uint32_t divisor) {
  Tensor sum = Tensor::allocate(dtype, sources[0].shape());
  fold(sources, flat(sources.size()), divisor, {sum});
  return sum;
}

Tensor concatenate(const std::vector<Tensor>& values, size_t axis) {
  Shape shape = values[0].shape();
  shape[axis] = 0;
  for (const Tensor& value : values) shape[axis] += value.shape()[axis];
  Tensor joined = Tensor::allocate(values[0].dtype(), std::move(shape));
  std::byte* to = joined.data();
  const size_t runs = runs_before(joined.shape(), axis);
  for (size_t i = 0; i < runs; ++i)
    for (const Tensor& value : values) {
      const size_t run = value.bytes() / runs;
      copy_bytes(to, value.data() + i * run, run);
      to += run;
    }
  return joined;
}

}  // namespace tutti::faces
