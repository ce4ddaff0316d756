// The host's kernels beside memcpy, memory's limit on one core. Bytes per second count one tensor,
// whatever the number read and written.
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "daemon/kernel/kernel.h"

namespace tutti {
namespace {

constexpr size_t kPage = 4096;
constexpr std::array<int64_t, 2> kMebibytes = {1, 64};

enum class Into { one, one_past_cache, all };
constexpr std::array<const char*, 3> kIntoNames = {"into_one", "into_one_past_cache", "into_all"};

// Touched memory that starts with a page, as shared segments do. Zero bytes are the value zero.
class Tensor {
 public:
  explicit Tensor(size_t bytes) : bytes_(bytes + kPage) {}
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (kPage - at % kPage) % kPage;
  }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<std::unique_ptr<Tensor>> make_tensors(size_t tensors, size_t bytes) {
  std::vector<std::unique_ptr<Tensor>> made;
  for (size_t i = 0; i < tensors; ++i) made.push_back(std::make_unique<Tensor>(bytes));
  return made;
}

void fold(benchmark::State& state, Dtype dtype, Op op, Into into) {
  const auto sources = static_cast<size_t>(state.range(0));
  const auto bytes = static_cast<size_t>(state.range(1)) << 20;
  auto tensors = make_tensors(sources + 1, bytes);
  std::vector<Operand> from;
  std::vector<Target> to;
  for (size_t s = 0; s < sources; ++s) from.push_back({tensors[s]->data(), dtype});
  if (into == Into::all)
    for (const Operand& source : from) to.push_back({const_cast<void*>(source.data), dtype});
  else
    to.push_back({tensors[sources]->data(), dtype});
  const FoldJob job = {.targets = to.data(),
                       .target_count = to.size(),
                       .sources = from.data(),
                       .source_count = from.size(),
                       .count = bytes / size_of(dtype),
                       .op = op,
                       .divisor = 1,
                       .past_cache = into == Into::one_past_cache};
  const Kernel kernel = choose_kernel();
  for (auto _ : state) {
    kernel(job);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0)) << 20;
  auto tensors = make_tensors(2, bytes);
  for (auto _ : state) {
    std::memcpy(tensors[0]->data(), tensors[1]->data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

void add_folds(Dtype dtype, Op op, Into into) {
  const std::string name = "fold/" + std::string(name_of(dtype)) + "/" + std::string(name_of(op)) +
                           "/" + kIntoNames[static_cast<size_t>(into)];
  auto* added = benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { fold(state, dtype, op, into); });
  added->ArgNames({"sources", "MiB"});
  for (const int64_t sources : {2, 4, 8})
    for (const int64_t mebibytes : kMebibytes) added->Args({sources, mebibytes});
}

const bool kAdded = [] {
  auto* memcpy_limit = benchmark::RegisterBenchmark("memcpy", copy);
  memcpy_limit->ArgName("MiB");
  for (const int64_t mebibytes : kMebibytes) memcpy_limit->Arg(mebibytes);
  for (int dtype = 0; dtype < kDtypes; ++dtype)
    for (const Op op : {Op::sum, Op::min, Op::max, Op::prod})
      for (const Into into : {Into::one, Into::one_past_cache, Into::all})
        add_folds(static_cast<Dtype>(dtype), op, into);
  return true;
}();

}  // namespace
}  // namespace tutti
