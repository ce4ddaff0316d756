#include "client/distribute/group_calls.h"

#include <map>

namespace tutti::distribute {
namespace {

// Refers to the text in `options`.
tutti_options options_of(const CallOptions& options) {
  tutti_options given = tutti_defaults();
  given.timeout_ms = options.timeout_ms;
  if (!options.strategy.empty()) given.strategy = options.strategy.c_str();
  return given;
}

template <class T>
Result<std::vector<T>> gather_as(tutti_group* group, std::span<const T> own, tutti_dtype dtype,
                                 const CallOptions& options) {
  std::vector<T> all(own.size() * static_cast<size_t>(tutti_world_size(group)));
  const tutti_options given = options_of(options);
  const Status status = status_of(
      tutti_all_gather(group, own.data(), all.data(), own.size(), dtype, &given, nullptr));
  if (!status.ok()) return status;
  return all;
}

// The arrays that tutti_all_reduce_many() takes.
struct TensorList {
  std::vector<void*> data;
  std::vector<size_t> counts;
};

}  // namespace

Status status_of(tutti_code code) {
  if (code == TUTTI_OK) return {};
  const tutti_error* error = tutti_last_error();
  return {code_of(error->code), error->message, {error->rank, error->host}};
}

Result<std::vector<int64_t>> all_gather(tutti_group* group, std::span<const int64_t> numbers,
                                        const CallOptions& options) {
  return gather_as(group, numbers, TUTTI_I64, options);
}

Result<std::vector<std::byte>> all_gather(tutti_group* group, std::span<const std::byte> bytes,
                                          const CallOptions& options) {
  return gather_as(group, bytes, TUTTI_U8, options);
}

Status all_gather(tutti_group* group, std::span<const std::byte> own, std::span<std::byte> all,
                  const CallOptions& options) {
  const tutti_options given = options_of(options);
  return status_of(
      tutti_all_gather(group, own.data(), all.data(), own.size(), TUTTI_U8, &given, nullptr));
}

Status all_reduce(tutti_group* group, std::span<Tensor* const> tensors, tutti_op op,
                  const CallOptions& options) {
  std::map<Dtype, TensorList> lists;
  for (Tensor* tensor : tensors) {
    TensorList& list = lists[tensor->dtype()];
    list.data.push_back(tensor->data());
    list.counts.push_back(static_cast<size_t>(tensor->count()));
  }
  const tutti_options given = options_of(options);
  for (const auto& [dtype, list] : lists) {
    const Status status = status_of(tutti_all_reduce_many(
        group, list.data.data(), list.data.data(), list.counts.data(), list.counts.size(),
        static_cast<tutti_dtype>(dtype), op, &given, nullptr));
    if (!status.ok()) return status;
  }
  return {};
}

Status reduce(tutti_group* group, Tensor& tensor, tutti_op op, int root,
              const CallOptions& options) {
  const tutti_options given = options_of(options);
  return status_of(
      tutti_reduce(group, tensor.data(), tensor.data(), static_cast<size_t>(tensor.count()),
                   static_cast<tutti_dtype>(tensor.dtype()), op, root, &given, nullptr));
}

Status broadcast(tutti_group* group, void* data, size_t bytes, int root,
                 const CallOptions& options) {
  const tutti_options given = options_of(options);
  return status_of(tutti_broadcast(group, data, bytes, TUTTI_U8, root, &given, nullptr));
}

}  // namespace tutti::distribute
