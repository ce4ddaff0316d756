#include "daemon/board/sides.h"

namespace tutti {

std::optional<SideBytes> side_bytes(Collective collective, Dtype dtype, uint64_t count,
                                    uint32_t root, GroupPlace place) {
  if (has_blocks(collective))
    return side_bytes(BlockSizes({collective, root, place.size}, count), dtype, place.rank);
  uint64_t bytes = 0;
  if (collective == Collective::barrier) return SideBytes{};
  if (__builtin_mul_overflow(count, size_of(dtype), &bytes)) return std::nullopt;
  const bool at_root = place.rank == root;
  if (collective == Collective::reduce) return SideBytes{bytes, at_root ? bytes : 0};
  if (collective == Collective::broadcast)
    return at_root ? SideBytes{bytes, 0} : SideBytes{0, bytes};
  return SideBytes{bytes, bytes};
}

std::optional<SideBytes> side_bytes(const BlockSizes& sizes, Dtype dtype, uint32_t rank) {
  const uint64_t in = sizes.input_elements(rank);
  const uint64_t out = sizes.output_elements(rank);
  if (in > kElementsMax || out > kElementsMax) return std::nullopt;
  const size_t element = size_of(dtype);
  const Collective collective = sizes.blocks().collective;
  SideBytes bytes{in * element, out * element};
  if (has_in_place(collective))
    bytes.own_block = element * (has_output_blocks(collective) ? sizes.first_in_output(rank)
                                                               : sizes.first_in_input(rank));
  return bytes;
}

bool may_share(Collective collective, uint64_t in, uint64_t out, const SideBytes& bytes) {
  if (bytes.in == 0 || bytes.out == 0) return true;
  if (in + bytes.in <= out || out + bytes.out <= in) return true;
  if (!has_in_place(collective)) return false;
  return has_output_blocks(collective) ? in == out + bytes.own_block : out == in + bytes.own_block;
}

}  // namespace tutti
