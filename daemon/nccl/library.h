// NCCL as a table of functions that is loaded at run time, so that no binary links it. Types and
// numbers have the layout of nccl.h of NCCL 2.18, which later ones accept; tests/nccl/abi_test.cc
// compares them where that header is found. The functions are documented there: members are named
// after them.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "daemon/base/status.h"
#include "daemon/cuda/cuda.h"

namespace tutti::nccl {

using Return = int;  // ncclResult_t
using Comm = struct CommTag*;

inline constexpr Return kSuccess = 0;
inline constexpr Return kUnhandledCudaError = 1;
inline constexpr Return kSystemError = 2;
inline constexpr Return kInternalError = 3;
inline constexpr Return kInvalidArgument = 4;
inline constexpr Return kRemoteError = 6;
inline constexpr Return kInProgress = 7;

// ncclDataType_t
inline constexpr int kInt8 = 0;
inline constexpr int kUint8 = 1;
inline constexpr int kInt32 = 2;
inline constexpr int kUint32 = 3;
inline constexpr int kInt64 = 4;
inline constexpr int kUint64 = 5;
inline constexpr int kFloat16 = 6;
inline constexpr int kFloat32 = 7;
inline constexpr int kFloat64 = 8;
inline constexpr int kBfloat16 = 9;

// ncclRedOp_t
inline constexpr int kSum = 0;
inline constexpr int kProd = 1;
inline constexpr int kMax = 2;
inline constexpr int kMin = 3;

inline constexpr size_t kIdBytes = 128;
struct Id {  // ncclUniqueId
  char bytes[kIdBytes];
};

inline constexpr int kUndefined = INT_MIN;
inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kLeastVersion = 21'800;  // 2.18.0
struct Config {                               // ncclConfig_t of NCCL 2.18
  size_t size = sizeof(Config);
  unsigned magic = kConfigMagic;
  unsigned version = kLeastVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};
static_assert(sizeof(Config) == 48);

struct Library {
  Return (*get_version)(int*);
  const char* (*get_error_string)(Return);
  Return (*get_unique_id)(Id*);
  Return (*comm_init_rank_config)(Comm*, int ranks, Id, int rank, Config*);
  Return (*comm_get_async_error)(Comm, Return*);
  Return (*comm_finalize)(Comm);
  Return (*comm_destroy)(Comm);
  Return (*comm_abort)(Comm);
  Return (*all_reduce)(const void*, void*, size_t, int type, int op, Comm, cuda::Stream);
  Return (*reduce)(const void*, void*, size_t, int type, int op, int root, Comm, cuda::Stream);
  Return (*broadcast)(const void*, void*, size_t, int type, int root, Comm, cuda::Stream);
  int version = 0;
};

// Loads the library, which stays loaded; each is loaded once a process. Any thread. UNAVAILABLE:
// there is none, or it is older than 2.18.
tutti::Result<const Library*> load_library(const std::string& name);

// OK, or "WHAT: unhandled system error (NCCL)". ABORTED: another host has failed; else UNAVAILABLE.
Status status_of(const Library& library, Return returned, const std::string& what);

}  // namespace tutti::nccl
