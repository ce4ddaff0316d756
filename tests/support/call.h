// A collective through the C ABI, as a Reference describes it.
#pragma once

#include "client/tutti.h"
#include "tests/support/reference.h"

namespace tutti::testing {

// With a count for each rank, or each pair.
inline tutti_code call_with_counts(tutti_group* group, const Reference& reference,
                                   tutti_dtype dtype, const void* in, void* out,
                                   const tutti_options* options, tutti_work** work) {
  const size_t* counts = reference.counts.data();
  if (reference.collective == Collective::all_gather)
    return tutti_all_gather_v(group, in, out, counts, dtype, options, work);
  if (reference.collective == Collective::reduce_scatter)
    return tutti_reduce_scatter_v(group, in, out, counts, dtype,
                                  static_cast<tutti_op>(reference.op), options, work);
  const int rank = tutti_rank(group);
  const Counts sent = reference.sent(rank), received = reference.received(rank);
  return tutti_all_to_all_v(group, in, sent.data(), out, received.data(), dtype, options, work);
}

// A broadcast's buffer is `out`, on the root as well.
inline tutti_code call(tutti_group* group, const Reference& reference, Dtype type, const void* in,
                       void* out, const tutti_options* options, tutti_work** work) {
  const auto dtype = static_cast<tutti_dtype>(type);
  if (!reference.counts.empty())
    return call_with_counts(group, reference, dtype, in, out, options, work);
  const size_t count = reference.count;
  const auto op = static_cast<tutti_op>(reference.op);
  const int root = reference.root;
  switch (reference.collective) {
    case Collective::all_reduce:
      return tutti_all_reduce(group, in, out, count, dtype, op, options, work);
    case Collective::reduce:
      return tutti_reduce(group, in, out, count, dtype, op, root, options, work);
    case Collective::broadcast:
      return tutti_broadcast(group, out, count, dtype, root, options, work);
    case Collective::all_gather:
      return tutti_all_gather(group, in, out, count, dtype, options, work);
    case Collective::reduce_scatter:
      return tutti_reduce_scatter(group, in, out, count, dtype, op, options, work);
    case Collective::gather:
      return tutti_gather(group, in, out, count, dtype, root, options, work);
    case Collective::scatter:
      return tutti_scatter(group, in, out, count, dtype, root, options, work);
    case Collective::all_to_all:
      return tutti_all_to_all(group, in, out, count, dtype, options, work);
    case Collective::barrier:
      return tutti_barrier(group, options, work);
  }
  return TUTTI_UNIMPLEMENTED;
}

}  // namespace tutti::testing
