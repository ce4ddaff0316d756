#include "daemon/nccl/library.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "daemon/base/function_table.h"
#include "daemon/nccl/nccl.h"

namespace tutti::nccl {
namespace {

std::string fill_table(void* handle, Library& table) {
  FunctionLoader load([handle](const char* name) { return dlsym(handle, name); });
  load(table.get_version, "ncclGetVersion");
  load(table.get_error_string, "ncclGetErrorString");
  load(table.get_unique_id, "ncclGetUniqueId");
  load(table.comm_init_rank_config, "ncclCommInitRankConfig");
  load(table.comm_get_async_error, "ncclCommGetAsyncError");
  load(table.comm_finalize, "ncclCommFinalize");
  load(table.comm_destroy, "ncclCommDestroy");
  load(table.comm_abort, "ncclCommAbort");
  load(table.all_reduce, "ncclAllReduce");
  load(table.reduce, "ncclReduce");
  load(table.broadcast, "ncclBroadcast");
  return load.missing();
}

Status load_table(const std::string& name, Library& table) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unavailable("there is no NCCL: " + std::string(dlerror()));
  const std::string missing = fill_table(handle, table);
  if (!missing.empty())
    return unavailable(name + " lacks " + missing + "; install NCCL 2.18 or later");
  if (table.get_version(&table.version) != kSuccess || table.version < kLeastVersion)
    return unavailable(name + " is NCCL " + version_text(table.version) +
                       "; install NCCL 2.18 or later");
  return {};
}

}  // namespace

tutti::Result<const Library*> load_library(const std::string& name) {
  static std::mutex mutex;
  static auto& tables = *new std::map<std::string, Library>();
  const std::lock_guard lock(mutex);
  if (const auto found = tables.find(name); found != tables.end()) return &found->second;
  Library table{};
  if (Status loaded = load_table(name, table); !loaded.ok()) return loaded;
  return &tables.emplace(name, table).first->second;
}

std::string version_text(int version) {
  const bool is_old = version < 10'000;  // Before 2.9: MAJOR * 1000 + MINOR * 100 + PATCH.
  const int major = version / (is_old ? 1000 : 10'000);
  const int minor = version / 100 % (is_old ? 10 : 100);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

Status status_of(const Library& library, Return returned, const std::string& what) {
  if (returned == kSuccess) return {};
  const char* text = library.get_error_string(returned);
  const std::string message =
      what + ": " + (text != nullptr ? text : std::to_string(returned)) + " (NCCL)";
  return returned == kRemoteError ? aborted(message) : unavailable(message);
}

}  // namespace tutti::nccl
