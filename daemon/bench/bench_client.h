// The client library's C ABI as a bench uses it: failures as exceptions, handles that free
// themselves.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "client/tutti.h"
#include "daemon/base/status.h"
#include "daemon/bench/bench_case.h"

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

// Memory of a tensor: the daemon's shared memory, or ordinary memory. Throws where there is none.
class Tensor {
 public:
  Tensor(tutti_group* group, size_t bytes, bool shared);
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  void* data() const { return memory_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  tutti_group* group_;  // Null for ordinary memory.
  size_t bytes_;
  void* memory_;
};

// A rank's tensors for one case.
struct Tensors {
  Tensors(tutti_group* group, const BenchCase& bench, bool shared);
  Tensor in;
  Tensor out;
};

// Runs the collective once; blocks until it is done.
void run_once(tutti_group* group, const BenchCase& bench, const std::string& strategy,
              Tensors& tensors);

}  // namespace tutti
