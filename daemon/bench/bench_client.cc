#include "daemon/bench/bench_client.h"

#include <cstdlib>

namespace tutti {
namespace {

constexpr size_t kAlignment = 64;

void* allocate(const Place& place, size_t bytes) {
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  if (place.gpu != nullptr) return place.gpu->allocate(rounded);
  void* memory =
      place.shared ? tutti_alloc(place.group, rounded) : std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr)
    throw BenchError{resource_exhausted("no memory for tensors of " + std::to_string(bytes) +
                                        " bytes: lower --max")};
  return memory;
}

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

Tensor::Tensor(const Place& place, size_t bytes)
    : place_(place), bytes_(bytes), memory_(allocate(place, bytes)) {}

Tensor::~Tensor() {
  if (place_.gpu != nullptr) {
    place_.gpu->free(memory_);
  } else if (place_.shared) {
    tutti_free(place_.group, memory_);
  } else {
    std::free(memory_);
  }
}

std::span<std::byte> Tensor::bytes() {
  if (place_.gpu == nullptr) return {static_cast<std::byte*>(memory_), bytes_};
  copy_.resize(bytes_);
  return copy_;
}

void Tensor::upload() {
  if (place_.gpu == nullptr || bytes_ == 0) return;
  place_.gpu->copy(memory_, bytes().data(), bytes_);
  place_.gpu->synchronize();
}

void Tensor::download() {
  if (place_.gpu == nullptr || bytes_ == 0) return;
  place_.gpu->copy(bytes().data(), memory_, bytes_);
  place_.gpu->synchronize();
}

Tensors::Tensors(const Place& where, const BenchCase& bench)
    : place(where),
      in(where, input_elements(bench) * size_of(bench.dtype)),
      out(where, output_elements(bench) * size_of(bench.dtype)) {}

void run_once(const BenchCase& bench, const std::string& strategy, Tensors& tensors) {
  const Place& place = tensors.place;
  tutti_options options = tutti_defaults();
  options.strategy = strategy.c_str();
  options.factor = factor_of(bench, static_cast<uint32_t>(tutti_rank(place.group)));
  if (place.gpu != nullptr) {
    options.on_stream = 1;
    options.stream = place.gpu->stream();
  }
  check(call(place.group, bench, options, tensors.in.data(), tensors.out.data()));
  if (place.gpu != nullptr) place.gpu->synchronize();
}

}  // namespace tutti
