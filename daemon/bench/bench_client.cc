#include "daemon/bench/bench_client.h"

#include <cstdlib>

namespace tutti {
namespace {

constexpr size_t kAlignment = 64;

tutti_code call(tutti_group* group, const BenchCase& bench, const tutti_options& options,
                const void* in, void* out) {
  const auto dtype = static_cast<tutti_dtype>(bench.dtype);
  const auto op = static_cast<tutti_op>(bench.op);
  const auto root = static_cast<int32_t>(bench.root);
  const size_t count = bench.count;
  switch (bench.collective) {
    case Collective::all_reduce:
      return tutti_all_reduce(group, in, out, count, dtype, op, &options, nullptr);
    case Collective::reduce:
      return tutti_reduce(group, in, out, count, dtype, op, root, &options, nullptr);
    case Collective::broadcast:
      return tutti_broadcast(group, out, count, dtype, root, &options, nullptr);
    case Collective::all_gather:
      return tutti_all_gather(group, in, out, count, dtype, &options, nullptr);
    case Collective::reduce_scatter:
      return tutti_reduce_scatter(group, in, out, count, dtype, op, &options, nullptr);
    case Collective::gather:
      return tutti_gather(group, in, out, count, dtype, root, &options, nullptr);
    case Collective::scatter:
      return tutti_scatter(group, in, out, count, dtype, root, &options, nullptr);
    case Collective::all_to_all:
      return tutti_all_to_all(group, in, out, count, dtype, &options, nullptr);
    case Collective::barrier:
      return tutti_barrier(group, &options, nullptr);
  }
  fail_requirement("a case has a collective");
}

}  // namespace

void check(tutti_code code) {
  if (code == TUTTI_OK) return;
  const tutti_error* error = tutti_last_error();
  throw BenchError{
      Status(code_of(code), error->message, {.rank = error->rank, .host = error->host})};
}

Tensor::Tensor(tutti_group* group, size_t bytes, bool shared)
    : group_(shared ? group : nullptr), bytes_(bytes) {
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  memory_ = shared ? tutti_alloc(group, rounded) : std::aligned_alloc(kAlignment, rounded);
  if (memory_ == nullptr)
    throw BenchError{resource_exhausted("no memory for tensors of " + std::to_string(bytes) +
                                        " bytes: lower --max")};
}

Tensor::~Tensor() {
  if (group_ != nullptr) {
    tutti_free(group_, memory_);
  } else {
    std::free(memory_);
  }
}

Tensors::Tensors(tutti_group* group, const BenchCase& bench, bool shared)
    : in(group, input_elements(bench) * size_of(bench.dtype), shared),
      out(group, output_elements(bench) * size_of(bench.dtype), shared) {}

void run_once(tutti_group* group, const BenchCase& bench, const std::string& strategy,
              Tensors& tensors) {
  tutti_options options = tutti_defaults();
  options.strategy = strategy.c_str();
  options.factor = factor_of(bench, static_cast<uint32_t>(tutti_rank(group)));
  check(call(group, bench, options, tensors.in.data(), tensors.out.data()));
}

}  // namespace tutti
