// The types and numbers of daemon/nccl/library.h are those of NCCL's own header.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "daemon/nccl/library.h"

namespace tutti::nccl {
namespace {

static_assert(sizeof(Return) == sizeof(ncclResult_t) && sizeof(Comm) == sizeof(ncclComm_t));
static_assert(sizeof(Id) == sizeof(ncclUniqueId) && kIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int));

static_assert(kSuccess == ncclSuccess && kUnhandledCudaError == ncclUnhandledCudaError &&
              kSystemError == ncclSystemError && kInternalError == ncclInternalError &&
              kInvalidArgument == ncclInvalidArgument && kRemoteError == ncclRemoteError &&
              kInProgress == ncclInProgress);
static_assert(kInt8 == ncclInt8 && kUint8 == ncclUint8 && kInt32 == ncclInt32 &&
              kUint32 == ncclUint32 && kInt64 == ncclInt64 && kUint64 == ncclUint64 &&
              kFloat16 == ncclFloat16 && kFloat32 == ncclFloat32 && kFloat64 == ncclFloat64 &&
              kBfloat16 == ncclBfloat16);
static_assert(kSum == ncclSum && kProd == ncclProd && kMax == ncclMax && kMin == ncclMin);

// Ours is the beginning of later ones.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t) && kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(Config, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));

// As the driver's streams are passed for the runtime's, and enumerations for numbers.
template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class... Ours, class... Theirs>
struct Same<Return (*)(Ours...), ncclResult_t(Theirs...)>
    : std::bool_constant<sizeof...(Ours) == sizeof...(Theirs) &&
                         ((sizeof(Ours) == sizeof(Theirs)) && ...)> {};

static_assert(Same<decltype(Library::get_version), decltype(ncclGetVersion)>());
static_assert(Same<decltype(Library::get_unique_id), decltype(ncclGetUniqueId)>());
static_assert(Same<decltype(Library::comm_init_rank_config), decltype(ncclCommInitRankConfig)>());
static_assert(Same<decltype(Library::comm_get_async_error), decltype(ncclCommGetAsyncError)>());
static_assert(Same<decltype(Library::comm_abort), decltype(ncclCommAbort)>());
static_assert(Same<decltype(Library::comm_finalize), decltype(ncclCommFinalize)>());
static_assert(Same<decltype(Library::comm_destroy), decltype(ncclCommDestroy)>());
static_assert(Same<decltype(Library::comm_abort), decltype(ncclCommAbort)>());
static_assert(Same<decltype(Library::all_reduce), decltype(ncclAllReduce)>());
static_assert(Same<decltype(Library::reduce), decltype(ncclReduce)>());
static_assert(Same<decltype(Library::broadcast), decltype(ncclBroadcast)>());

TEST(NcclAbi, TheHeadersConfigurationHasOurMagic) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(theirs.magic, Config().magic);
  EXPECT_GE(theirs.version, static_cast<unsigned>(kLeastVersion));
}

// The library of the header, where the machine has one; it needs no GPU for that.
TEST(NcclAbi, TheMachinesOwnLibraryLoads) {
  const auto library = load_library("libnccl.so.2");
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  EXPECT_GE((*library)->version, kLeastVersion);
  EXPECT_NE((*library)->get_error_string(kSystemError), nullptr);
}

}  // namespace
}  // namespace tutti::nccl
