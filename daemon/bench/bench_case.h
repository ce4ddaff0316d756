// The cases of a bench: their inputs, the check of their results, and the figures computed from
// their times. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/types.h"

namespace tutti {

// A collective over `world_size` ranks.
struct BenchCase {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;  // Elements as the library counts them; of one rank's block where it has any.
  uint32_t root = 0;
  uint32_t world_size = 1;
};

// As in nccl-tests, `bytes` is the size of the whole tensor: where there are blocks, one is
// 1/world_size of it, at least one element.
BenchCase bench_case(Collective collective, Dtype dtype, Op op, uint64_t bytes,
                     uint32_t world_size);
uint64_t bench_bytes(const BenchCase& bench);  // The size reported, after rounding to elements.

// Elements of a rank's input and output.
uint64_t input_elements(const BenchCase& bench);
uint64_t output_elements(const BenchCase& bench);
// Whether `rank` gets a result; in a reduce or gather only the root does.
bool has_output(const BenchCase& bench, uint32_t rank);

// Bus bandwidth divided by algorithm bandwidth, as nccl-tests defines it.
double bus_factor(Collective collective, uint32_t world_size);

// The nearest-rank percentile (0..100) of unsorted samples; 0 without samples.
double percentile(std::vector<double> samples, double percent);

// The factor of premul_sum with which a rank calls: 1 or 2.
double factor_of(const BenchCase& bench, uint32_t rank);

// Fills a rank's input with small whole numbers of period 1021 that differ by rank. Results are
// exact in every dtype up to 64 ranks.
void fill_input(const BenchCase& bench, uint32_t rank, std::span<std::byte> input);

// Counts the elements of a rank's output that differ from the result of all ranks' inputs. A mean
// may differ by a rounding error.
uint64_t count_wrong(const BenchCase& bench, uint32_t rank, std::span<const std::byte> output);

}  // namespace tutti
