#include <algorithm>
#include <array>
#include <vector>

#include "daemon/kernel/kernel.h"

namespace tutti {
namespace {

constexpr size_t kPiece = 1024;  // Values: so few that they stay in the first cache.

std::byte* behind(void* data, size_t bytes) { return static_cast<std::byte*>(data) + bytes; }
const std::byte* behind(const void* data, size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

// Piece by piece with an array of equal factors, by the kernel that folds products.
template <class T>
void scale_as(Dtype dtype, void* to, const void* from, size_t count, double factor) {
  const PlainArithmetic plain;
  const Kernel kernel = choose_kernel();
  std::array<T, kPiece> factors;  // NOLINT: filled as far as it is used.
  std::fill_n(factors.begin(), std::min(count, kPiece), static_cast<T>(factor));
  for (size_t done = 0; done < count; done += kPiece) {
    const size_t offset = done * size_of(dtype);
    const std::array<Operand, 2> sources = {
        {{behind(from, offset), dtype}, {factors.data(), accumulator_of(dtype)}}};
    const Target target{behind(to, offset), dtype};
    kernel({.targets = &target,
            .target_count = 1,
            .sources = sources.data(),
            .source_count = sources.size(),
            .count = std::min(count - done, kPiece),
            .op = Op::prod,
            .divisor = 1,
            .past_cache = false});
  }
}

}  // namespace

void scale(Dtype dtype, void* to, const void* from, size_t count, double factor) {
  if (dtype == Dtype::f64)
    scale_as<double>(dtype, to, from, count, factor);
  else
    scale_as<float>(dtype, to, from, count, factor);
}

void fold_scaled(Kernel kernel, const FoldJob& job) {
  constexpr size_t kPieceBytes = kPiece * sizeof(double);
  std::vector<std::byte> scaled(job.source_count * kPieceBytes);
  std::vector<Operand> sources(job.sources, job.sources + job.source_count);
  std::vector<Target> targets(job.targets, job.targets + job.target_count);
  FoldJob piece = job;
  piece.factors = nullptr;
  piece.sources = sources.data();
  piece.targets = targets.data();
  for (size_t done = 0; done < job.count; done += kPiece) {
    piece.count = std::min(job.count - done, kPiece);
    for (size_t s = 0; s < sources.size(); ++s) {
      const Dtype dtype = sources[s].dtype;
      const void* from = behind(job.sources[s].data, done * size_of(dtype));
      const double factor = job.factors[s];
      void* to = &scaled[s * kPieceBytes];
      if (factor != 1) scale(dtype, to, from, piece.count, factor);
      sources[s].data = factor != 1 ? to : from;
    }
    for (size_t t = 0; t < targets.size(); ++t)
      targets[t].data = behind(job.targets[t].data, done * size_of(targets[t].dtype));
    kernel(piece);
  }
}

}  // namespace tutti
