// What a bench sends, what must come back, and how fast that was. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/types.h"

namespace tutti {

// One measured case: a collective over `world_size` ranks on about `bytes` of data.
struct BenchCase {
  Collective collective = Collective::all_reduce;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t count = 0;  // Elements, as the library counts them: of one rank's block.
  uint32_t root = 0;
  uint32_t world_size = 1;
};

// nccl-tests counts `bytes` as the whole tensor: for all_gather and reduce_scatter the block of a
// rank is a world_size-th of it (at least one element).
BenchCase bench_case(Collective collective, Dtype dtype, Op op, uint64_t bytes,
                     uint32_t world_size);
uint64_t bench_bytes(const BenchCase& bench);  // After rounding: what is reported.

// Elements a rank hands in and gets back.
uint64_t input_elements(const BenchCase& bench);
uint64_t output_elements(const BenchCase& bench);
// Whether `rank` gets a result at all (reduce: the root alone).
bool has_output(const BenchCase& bench, uint32_t rank);

// Times this is algorithm bandwidth's share of the bus, as nccl-tests defines it.
double bus_factor(Collective collective, uint32_t world_size);

// The value at `percent` (0..100) of unsorted samples, by nearest rank; 0 where there are none.
double percentile(std::vector<double> samples, double percent);

// Fills a rank's input: small whole numbers of period 1021, different on every rank, whose result
// is exact in every dtype up to 64 ranks.
void fill_input(const BenchCase& bench, uint32_t rank, std::span<std::byte> input);

// How many elements of a rank's output are not what the inputs of all ranks make. MEAN may differ
// by a rounding; everything else is exact.
uint64_t count_wrong(const BenchCase& bench, uint32_t rank, std::span<const std::byte> output);

}  // namespace tutti
