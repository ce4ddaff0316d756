#include "daemon/board/sides.h"

namespace tutti {

std::optional<SideBytes> side_bytes(Collective collective, Dtype dtype, uint64_t count,
                                    uint32_t root, GroupPlace place) {
  uint64_t one = 0;
  uint64_t all = 0;
  if (__builtin_mul_overflow(count, size_of(dtype), &one) ||
      __builtin_mul_overflow(one, uint64_t{place.size}, &all))
    return std::nullopt;
  const bool at_root = place.rank == root;
  switch (collective) {
    case Collective::all_reduce:
      return SideBytes{one, one};
    case Collective::reduce:
      return SideBytes{one, at_root ? one : 0};
    case Collective::broadcast:
      return at_root ? SideBytes{one, 0} : SideBytes{0, one};
    case Collective::all_gather:
      return SideBytes{one, all};
    case Collective::reduce_scatter:
      return SideBytes{all, one};
    case Collective::gather:
      return SideBytes{one, at_root ? all : 0};
    case Collective::scatter:
      return SideBytes{at_root ? all : 0, one};
    case Collective::all_to_all:
      return SideBytes{all, all};
    case Collective::barrier:
      break;
  }
  return SideBytes{};
}

bool has_in_place(Collective collective) {
  return !(has_input_blocks(collective) && has_output_blocks(collective));
}

uint64_t in_place_offset(Collective collective, SideBytes bytes, GroupPlace place) {
  if (!has_blocks(collective) || !has_in_place(collective)) return 0;
  return place.rank * (has_output_blocks(collective) ? bytes.in : bytes.out);
}

bool may_share(Collective collective, uint64_t in, uint64_t out, SideBytes bytes,
               GroupPlace place) {
  if (bytes.in == 0 || bytes.out == 0) return true;
  if (in + bytes.in <= out || out + bytes.out <= in) return true;
  if (!has_in_place(collective)) return false;
  const uint64_t within = in_place_offset(collective, bytes, place);
  return has_output_blocks(collective) ? in == out + within : out == in + within;
}

}  // namespace tutti
