#include "client/operations/device_sides.h"

#include <string>

namespace tutti::client {
namespace {

Status cannot_stage(const Status& why) {
  return Status(why.code(), "the worker can neither map the tensor's memory nor have it staged: " +
                                why.message());
}

}  // namespace

Status find_device_side(DeviceMemory& device, const char* side, const void* memory, uint64_t bytes,
                        TimePoint limit, DeviceSide& found) {
  if (bytes == 0) return {};
  if (device.is_device(memory)) return device.find(side, memory, bytes, limit, found);
  return invalid_argument(std::string(side) +
                          " is not in the memory of a GPU, as the call's other buffer or stream "
                          "says; pass both from one place");
}

Status check_device_sides(RequestBuilder& builder, const void* in, const void* out,
                          const SideBytes& bytes) {
  const Request& request = builder.request();
  const auto dtype = static_cast<Dtype>(request.dtype);
  const auto is_aligned = [&](const void* side) {
    return reinterpret_cast<uintptr_t>(side) % size_of(dtype) == 0;
  };
  const bool in_fits = bytes.in == 0 || is_aligned(in);
  if (in_fits && (bytes.out == 0 || is_aligned(out))) return {};
  return invalid_argument(std::string(in_fits ? "the output" : "the input") +
                          " is not aligned for " + std::string(name_of(dtype)));
}

Status stage_sides(RequestBuilder& builder, DeviceMemory& device, const CollectiveArgs& args,
                   const SideBytes& bytes, TimePoint limit, DeviceRequest& sides,
                   std::shared_ptr<StagedSides>& staged) {
  const StagedSides::Side in{args.in, sides.in.memory == 0 ? bytes.in : 0};
  const StagedSides::Side out{args.out, sides.out.memory == 0 ? bytes.out : 0};
  if (in.bytes == 0 && out.bytes == 0) return {};
  const void* memory = bytes.in != 0 ? args.in : args.out;
  const Status prepared = device.stage(builder.stream(), memory, in, out, limit, sides, staged);
  return prepared.ok() ? Status() : cannot_stage(prepared);
}

Status take_words(DeviceMemory& device, cuda::Stream stream, const void* memory, TimePoint limit,
                  Words& words) {
  if (!device.has_driver())
    return invalid_argument(
        "a stream is for GPU memory, but this program has not loaded the CUDA driver");
  if (device.is_captured(stream))
    return failed_precondition(
        "the stream is being captured into a CUDA graph, which cannot hold operations; call outside"
        " of the capture");
  return device.take_words(stream, memory, limit, words);
}

Status find_listed(RequestBuilder& builder, DeviceMemory& device, const TensorListArgs& args,
                   const TensorSides& tensor, TimePoint limit, ListedDeviceTensor& found) {
  const size_t bytes = tensor.bytes;
  found.count = bytes / tutti_dtype_size(args.dtype);
  Status status = find_device_side(device, "the input", tensor.in, bytes, limit, found.in);
  if (status.ok())
    status = find_device_side(device, "the output", tensor.out, bytes, limit, found.out);
  if (status.ok()) status = check_device_sides(builder, tensor.in, tensor.out, {bytes, bytes, 0});
  if (status.ok()) return {};
  return Status(status.code(), "tensor " + std::to_string(position_of(tensor, args)) +
                                   " of the list: " + status.message());
}

Status stage_listed(RequestBuilder& builder, DeviceMemory& device,
                    std::span<const TensorSides> tensors, TimePoint limit,
                    std::span<ListedDeviceTensor> records, std::shared_ptr<StagedSides>& staged) {
  std::vector<TensorSides> hidden;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (records[i].in.memory == 0 || records[i].out.memory == 0) hidden.push_back(tensors[i]);
  if (hidden.empty()) return {};
  std::vector<DeviceSide> places(hidden.size());
  Status prepared =
      device.stage(builder.stream(), tensors.front().in, hidden, limit, places, staged);
  if (!prepared.ok()) return cannot_stage(prepared);
  auto place = places.begin();
  for (ListedDeviceTensor& record : records)
    if (record.in.memory == 0 || record.out.memory == 0) record.in = record.out = *place++;
  return {};
}

}  // namespace tutti::client
