// How many instructions one small operation between two hosts takes in the worker: in its loops,
// its engine, its group and its transport, without sockets' system calls. Under callgrind, which
// counts between the two requests; tests/bench/instructions runs it and prints the table.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>

#include "tests/worker/tensors.h"

namespace tutti::testing {
namespace {

constexpr int kWarmUp = 400;  // Past the operations that measure strategies.

Status run(Cluster& cluster, Tensors& tensors, int operations) {
  for (int i = 0; i < operations; ++i)
    for (const Status& s : cluster.all([&](int rank) { return tensors.call(rank); }))
      if (!s.ok()) return s;
  return {};
}

int count(int operations, uint64_t elements) {
  ClusterOptions options;
  options.transport = "tcp";
  Cluster cluster({1, 1}, options);
  Tensors tensors(cluster, {Collective::all_reduce, Dtype::f32, Op::sum, elements, 0, {}});
  Status status = run(cluster, tensors, kWarmUp);
  CALLGRIND_START_INSTRUMENTATION;
  if (status.ok()) status = run(cluster, tensors, operations);
  CALLGRIND_STOP_INSTRUMENTATION;
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  const int operations = argc > 1 ? std::atoi(argv[1]) : 1000;
  return tutti::testing::count(operations, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
