#include "client/operations/tensor_list.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "daemon/base/signature.h"
#include "proto/types.h"

namespace tutti::client {
namespace {

MemoryRange range_of(const std::byte* memory, size_t bytes, size_t tensor, bool is_written) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {begin, begin + bytes, static_cast<uint32_t>(tensor), is_written};
}

// A tensor in place is one range.
std::vector<MemoryRange> ranges_of(std::span<const TensorSides> tensors) {
  std::vector<MemoryRange> ranges;
  ranges.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [in, out, bytes] = tensors[i];
    if (in != out) ranges.push_back(range_of(in, bytes, i, false));
    ranges.push_back(range_of(out, bytes, i, true));
  }
  sort_ranges(ranges);
  return ranges;
}

// For tensors with the same input and output, leaves the first.
void leave_out_repeated(std::vector<TensorSides>& tensors) {
  std::set<std::tuple<const std::byte*, std::byte*, size_t>> seen;
  std::erase_if(tensors, [&](const TensorSides& tensor) {
    return !seen.emplace(tensor.in, tensor.out, tensor.bytes).second;
  });
}

Status overlap_error(const TensorListArgs& args, const TensorSides& a, const TensorSides& b) {
  const auto [first, second] = std::minmax({position_of(a, args), position_of(b, args)});
  if (first == second)
    return invalid_argument("tensor " + std::to_string(first) +
                            " of the list: " + sides_overlap(Collective::all_reduce));
  return invalid_argument(
      "tensors " + std::to_string(first) + " and " + std::to_string(second) +
      " of the list overlap, and the operation writes there; use separate buffers");
}

Status check_tensor(Connection& connection, const TensorListArgs& args, size_t i, size_t bytes) {
  const auto named = [i](const Status& why) {
    return Status(why.code(), "tensor " + std::to_string(i) + " of the list: " + why.message());
  };
  if (args.ins[i] == nullptr || args.outs[i] == nullptr)
    return named(
        invalid_argument("a buffer is NULL though count is " + std::to_string(args.counts[i])));
  Status fits = connection.own_memory().check_block("the input", args.ins[i], bytes);
  if (fits.ok()) fits = connection.own_memory().check_block("the output", args.outs[i], bytes);
  return fits.ok() ? fits : named(fits);
}

}  // namespace

Status read_list(Connection& connection, const TensorListArgs& args, TensorList& list) {
  if (args.size > kListedTensorsMax)
    return invalid_argument("a list of " + std::to_string(args.size) +
                            " tensors; it may have at most " + std::to_string(kListedTensorsMax));
  if (args.size != 0 && (args.ins == nullptr || args.outs == nullptr || args.counts == nullptr))
    return invalid_argument("a list of tensors is NULL");
  const size_t element = tutti_dtype_size(args.dtype);
  uint64_t total = 0;
  for (size_t i = 0; i < args.size; ++i) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(args.counts[i], element, &bytes) ||
        __builtin_add_overflow(total, bytes, &total))
      return invalid_argument("tensor " + std::to_string(i) + " of the list: count " +
                              std::to_string(args.counts[i]) + " is more than any memory holds");
    if (bytes == 0) continue;
    if (Status s = check_tensor(connection, args, i, bytes); !s.ok()) return s;
    list.tensors.push_back(
        {static_cast<const std::byte*>(args.ins[i]), static_cast<std::byte*>(args.outs[i]), bytes});
  }
  list.count = element == 0 ? 0 : total / element;
  list.layout = layout_of({args.counts, args.size});
  return {};
}

// Repeated tensors overlap, too: they are looked for only where something does.
Status check_apart(const TensorListArgs& args, TensorList& list) {
  list.ranges = ranges_of(list.tensors);
  if (!find_overlap(list.ranges)) return {};
  leave_out_repeated(list.tensors);
  std::vector<uint64_t> counts;
  for (const TensorSides& tensor : list.tensors)
    counts.push_back(tensor.bytes / tutti_dtype_size(args.dtype));
  list.layout = layout_of(counts);
  list.count = 0;
  for (const uint64_t count : counts) list.count += count;
  list.ranges = ranges_of(list.tensors);
  const auto overlap = find_overlap(list.ranges);
  if (!overlap) return {};
  return overlap_error(args, list.tensors[overlap->first.tensor],
                       list.tensors[overlap->second.tensor]);
}

size_t position_of(const TensorSides& tensor, const TensorListArgs& args) {
  const size_t count = tensor.bytes / tutti_dtype_size(args.dtype);
  size_t i = 0;
  while (args.ins[i] != tensor.in || args.outs[i] != tensor.out || args.counts[i] != count) ++i;
  return i;
}

}  // namespace tutti::client
