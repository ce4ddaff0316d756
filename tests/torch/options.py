"""What ranks of the torch tests check of tutti.torch.Options."""

from datetime import timedelta

import torch
import torch.distributed as dist

from details import check_raises
from training import check


def _timed(group):
    opts = dist.AllreduceOptions()
    opts.timeout = timedelta(seconds=20)
    opts.asyncOp = False
    work = group.allreduce([torch.ones(3)], opts)
    if work is not None:
        work.wait()


_REDUCTIONS = (
    lambda group: dist.all_reduce(torch.ones(3), group=group),
    lambda group: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX, group=group),
    lambda group: dist.all_reduce(torch.ones(3), dist._make_nccl_premul_sum(2.0), group=group),
    lambda group: dist.reduce(torch.ones(3), 0, group=group),
    lambda group: dist.reduce_scatter_tensor(torch.ones(1), torch.ones(2), group=group),
    _timed)


def _check_choices(choices):
    """choices: of (that of rank 0, of the others, whether they agree)."""
    for of_first, of_others, agree in choices:
        group = _new_group(of_first if dist.get_rank() == 0 else of_others)
        for reduction in _REDUCTIONS:
            if agree:
                reduction(group)
            else:
                error = check_raises("reproducible", lambda: reduction(group))
                check(error.code == "FAILED_PRECONDITION", error)
        dist.barrier(group)


def _new_group(reproducible):
    from tutti.torch import Options
    return dist.new_group(pg_options=Options(reproducible))


def reproducible():
    """The group's choice counts before that of torch."""
    check_raises("'yes' is none of True, False and None", lambda: _new_group("yes"))
    _check_choices(((True, None, False), (False, None, True), (None, None, True)))
    torch.use_deterministic_algorithms(True)
    _check_choices(((True, None, True), (False, None, False), (True, False, False)))


def reproducible_split():
    """split_group() takes its parent's choice."""
    parent = _new_group(dist.get_rank() == 0 or None)
    group = dist.split_group(parent, [[0, 1]])
    check_raises("reproducible", lambda: _REDUCTIONS[0](group))
