// Faults of the fake NCCL: lines of the file that FAKE_NCCL_FAULTS in the environment names. Each
// is the name of a fault, and optionally the only rank of a communicator that has it:
//
//   no_id            ncclGetUniqueId fails
//   init_fails       the communicator is never made, which NCCL says
//   init_hangs       it is never made, and NCCL says nothing
//   init_blocks      ncclCommInitRankConfig does not return
//   launch_fails     collectives are refused
//   remote_error     ncclCommGetAsyncError says that a peer has failed
//   finalize_hangs   a communicator does not end by itself
//   abort_is_slow    ncclCommAbort takes three seconds
//   abort_hangs      ncclCommAbort does not return
#pragma once

#include <string_view>

namespace tutti::fake {

// `rank` -1: of none.
bool has_fault(std::string_view name, int rank = -1);

}  // namespace tutti::fake
