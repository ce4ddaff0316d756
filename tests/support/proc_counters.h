// Resources of a process, read from /proc, to find leaks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/support/descriptors.h"
#include "tests/support/test_mesh.h"

namespace tutti::testing {

inline int mappings_of(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// Private memory in MiB, without the shared pages of segments, which vary with the tensors.
inline int64_t private_mib_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) / 1024;
  return -1;
}

// The report of the job's worker on a host; empty where there is none.
inline v1::WorkerReport worker_report(const TestMesh& mesh, int host, const std::string& job) {
  const auto status = admin_status(mesh.host(host).address, true, 10'000);
  if (status.ok())
    for (const v1::WorkerReport& worker : status->agents(0).workers())
      if (worker.job() == job) return worker;
  return {};
}
// 0: there is none.
inline pid_t worker_of(const TestMesh& mesh, int host, const std::string& job = "job") {
  return static_cast<pid_t>(worker_report(mesh, host, job).pid());
}

}  // namespace tutti::testing
