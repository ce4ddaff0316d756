// How tensors with blocks of one size (base/blocks.h) pass through a rank's window: in rows. Pure
// arithmetic; the client, ranks that fold and the worker share it.
//
// Row r has part r of every block: `part` elements of it, in the last row what is left. It takes
// one place of the window, as a block of the board does where tensors have no blocks. There, a
// side's part of its block i begins `part` * i elements behind the side's first one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/base/blocks.h"

namespace tutti {

struct StagedRows {
  uint64_t count = 0;  // Elements of a block of the tensors.
  uint64_t part = 0;   // 0: the tensors do not pass in rows.
  uint64_t in = 0;     // The first element of the rank's input in a row's place, and of its output.
  uint64_t out = 0;
  uint64_t place_bytes = 0;
  uint64_t places = 0;  // In the window.

  constexpr uint64_t rows() const { return (count + part - 1) / part; }
  uint64_t first(uint64_t row) const { return row * part; }
  uint64_t elements(uint64_t row) const { return std::min(part, count - first(row)); }
  // Where the row's place begins in the window, and how much of the window the tensors need.
  uint64_t offset(uint64_t row) const { return row % places * place_bytes; }
  constexpr uint64_t window_bytes() const { return std::min(rows(), places) * place_bytes; }
};

// `count`: elements of a block. For a group on one host, whose rows are folded as blocks of the
// board are.
StagedRows staged_rows(const Blocks& blocks, uint32_t rank, Dtype dtype, uint64_t count);

// For a group over several hosts, with BoardHeader::window_bytes. A row is a slice of the engine.
StagedRows staged_rows_between_hosts(const Blocks& blocks, uint32_t rank, Dtype dtype,
                                     uint64_t count, uint64_t window_bytes);

// What a tensor of `bytes` takes of its window of `window_bytes`, in rows or without.
constexpr uint64_t used_window_bytes(const StagedRows& rows, uint64_t window_bytes,
                                     uint64_t bytes) {
  return rows.part != 0 ? rows.window_bytes() : std::min(window_bytes, bytes);
}

// Elements of each block in a slice of the engine; at least 1.
uint64_t block_slice_elements(const Blocks& blocks, Dtype dtype, uint64_t slice_bytes);

}  // namespace tutti
