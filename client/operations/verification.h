// Verification of results that every rank of a group must hold alike, by their checksums.
//
// Once a rank holds its result, the ranks gather their checksums and each compares all of them, so
// that every rank returns the same verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/operations/group.h"
#include "client/rank/tensor_sides.h"

namespace tutti::client {

// The checksum of these ranges, one after the other, as tutti_checksum() of memory that holds them.
uint64_t checksum_of(std::span<const std::span<const std::byte>> ranges);
// The same of results of this type: true may be any byte but 0, and is taken to be 1.
uint64_t checksum_of(std::span<const std::span<const std::byte>> ranges, Dtype dtype);

// The verdict on an operation after which the ranks of a group hold tensors with these checksums,
// by rank. DATA_LOSS: they differ; it names the ranks that differ from most of them, if there are
// such, else all, and blames the first of these.
Status compare_checksums(const Members& group, Collective collective,
                         std::span<const uint64_t> checksums);

}  // namespace tutti::client
