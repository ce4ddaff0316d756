"""all_reduce of sparse COO tensors, by all_gather of what each rank has."""

import torch
import torch.distributed as dist

from tutti.torch._operation import Operation
from tutti.torch._tensor import check_alike, folded, invalid


def all_reduce(backend, tensors, opts):
    """The sum, on every rank, of the sparse tensors of all ranks, for each tensor; also copied to
    the tensors."""
    try:
        check_alike(tensors, "all_reduce")
        if getattr(opts.reduceOp, "op", opts.reduceOp) != dist.ReduceOp.SUM:
            raise invalid("unsupported reduction operation: all_reduce of sparse tensors supports "
                          "SUM; use to_dense() for others")
        mine = folded(tensors, opts.reduceOp).coalesce()
    except BaseException as error:
        Operation(backend, backend.collectives, opts.timeout, False).refuse("all_gather", 1, error)
        raise
    result = _sum(backend, mine, opts.timeout)
    for tensor in tensors:
        tensor.copy_(result)
    return [result.clone() for _ in tensors]


def _sum(backend, tensor, timeout):
    mine = torch.tensor([tensor._nnz(), tensor.sparse_dim(), *tensor.shape])
    theirs = _gathered(backend, mine, timeout)
    for other in theirs:
        if other[1:].tolist() != mine[1:].tolist():
            raise invalid(f"the ranks' sparse tensors have sizes and sparse dimensions "
                          f"{[one[1:].tolist() for one in theirs]}, but must have the same")
    counts = [int(other[0]) for other in theirs]
    indices = _parts(backend, tensor.indices().t().contiguous(), counts, timeout)
    values = _parts(backend, tensor.values(), counts, timeout)
    return torch.sparse_coo_tensor(torch.cat(indices).t(), torch.cat(values),
                                   tensor.shape).coalesce()


def _parts(backend, rows, counts, timeout):
    """The first counts[r] rows of each rank r, whose tensors are padded to the longest."""
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[:rows.shape[0]] = rows
    flats = _gathered(backend, padded, timeout)
    return [flat.view(padded.shape)[:count] for flat, count in zip(flats, counts)]


def _gathered(backend, tensor, timeout):
    output = tensor.new_empty((backend.size(), tensor.numel()))
    opts = torch._C._distributed_c10d.AllgatherOptions()
    opts.asyncOp = True
    opts.timeout = timeout
    backend.all_gather_single(output, tensor, opts).wait()
    return list(output)
