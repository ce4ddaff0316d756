// Tensors in the memory of GPUs, as the worker knows them: found among what is offered to it, or
// staged.
#pragma once

#include <memory>
#include <span>

#include "client/gpu/device_memory.h"
#include "client/operations/request_builder.h"
#include "client/operations/submission.h"

namespace tutti::client {

// Takes the words by which an operation goes with a stream. Not OK: the call is refused.
Status take_words(DeviceMemory& device, cuda::Stream stream, const void* memory, TimePoint limit,
                  Words& words);

// Where a tensor in the memory of a GPU is; see DeviceMemory::find().
Status find_device_side(DeviceMemory& device, const char* side, const void* memory, uint64_t bytes,
                        TimePoint limit, DeviceSide& found);
// The same for both sides of a tensor of a list.
Status find_listed(RequestBuilder& builder, DeviceMemory& device, const TensorListArgs& args,
                   const TensorSides& tensor, TimePoint limit, ListedDeviceTensor& found);
// A tensor that is not aligned would end the worker by a fault.
Status check_device_sides(RequestBuilder& builder, const void* in, const void* out,
                          const SideBytes& bytes);

// Stages the sides that the worker does not have.
Status stage_sides(RequestBuilder& builder, DeviceMemory& device, const CollectiveArgs& args,
                   const SideBytes& bytes, TimePoint limit, DeviceRequest& sides,
                   std::shared_ptr<StagedSides>& staged);
// Stages the tensors of a list of which the worker does not have both sides.
Status stage_listed(RequestBuilder& builder, DeviceMemory& device,
                    std::span<const TensorSides> tensors, TimePoint limit,
                    std::span<ListedDeviceTensor> records, std::shared_ptr<StagedSides>& staged);

}  // namespace tutti::client
