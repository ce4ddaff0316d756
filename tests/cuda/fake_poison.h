// A fault of the GPU that leaves the process unable to use it: from then on, every call of the fake
// driver fails with CUDA_ERROR_ILLEGAL_ADDRESS, and its streams do nothing any more. And a GPU that
// hangs: its streams do nothing any more, and calls that wait for them do not return.
#pragma once

namespace tutti::fake {

// Whether this process has had such a fault: its id is a line of the file that FAKE_CUDA_POISON in
// the environment names. It never gets better. Any thread.
bool is_poisoned();
// Does not return once it has, or once its GPUs hang: FAKE_CUDA_HANG names the file of those.
void stop_if_lost();

}  // namespace tutti::fake
