// The client library's C ABI as a bench uses it: failures as exceptions, handles that free
// themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/tutti.h"
#include "daemon/base/status.h"
#include "daemon/bench/bench_case.h"
#include "daemon/bench/bench_gpu.h"

namespace tutti {

struct BenchError {
  Status status;
};

// Throws the library's last error as a BenchError unless `code` is OK.
void check(tutti_code code);

struct FreeGroup {
  void operator()(tutti_group* group) const { tutti_group_free(group); }
};
using Group = std::unique_ptr<tutti_group, FreeGroup>;

// Where a rank's tensors lie: on its GPU, else in the daemon's shared memory or in ordinary memory.
struct Place {
  tutti_group* group = nullptr;
  bool shared = true;
  BenchGpu* gpu = nullptr;
};

// Memory of a tensor. Throws where there is none.
class Tensor {
 public:
  Tensor(const Place& place, size_t bytes);
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  void* data() const { return memory_; }
  // What the processor reads and writes: the memory itself, or a copy of what is on the GPU.
  std::span<std::byte> bytes();
  void upload();    // Brings that copy to the GPU,
  void download();  // and back. Nothing to do on the host.

 private:
  const Place place_;
  const size_t bytes_;
  void* memory_;
  std::vector<std::byte> copy_;
};

// A rank's tensors for one case.
struct Tensors {
  Tensors(const Place& place, const BenchCase& bench);
  const Place place;
  Tensor in;
  Tensor out;
};

// Runs the collective once; blocks until it is done. With tensors on a GPU, on its stream: if that
// operation fails, the next call on the group does, too.
void run_once(const BenchCase& bench, const std::string& strategy, Tensors& tensors);

}  // namespace tutti
