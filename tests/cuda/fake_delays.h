// Slowness of the fake driver, by variables of the environment, in milliseconds.
//   FAKE_CUDA_SLOW_KERNELS   from a kernel's begin, when it looks whether it is cancelled, to its
//   end FAKE_CUDA_SLOW_CALLS     from the end of a stream's work to a call that reports it
//   FAKE_CUDA_SLOW_WAITS     between two looks of a stream at a word that it waits for
//   FAKE_CUDA_SLOW_WRITES    before a copy to memory of a GPU
//   FAKE_CUDA_SLOW_CONTEXTS  of cuDevicePrimaryCtxRetain
//   FAKE_CUDA_SLOW_IMPORTS   of cuIpcOpenMemHandle_v2, for more than 32 MiB
// FAKE_CUDA_KERNELS names a file to which a kernel adds '+' when it begins and '-' when it has
// ended.
#pragma once

#include <chrono>
#include <cstddef>

namespace tutti::fake {

// 0: the variable is not set.
std::chrono::milliseconds delay_of(const char* variable);
void wait_for_call();
void wait_for_write();
void wait_for_context();
void wait_for_import(size_t bytes);
void begin_kernel();
void end_kernel();

}  // namespace tutti::fake
