"""What the faces for TensorFlow and JAX run on NumPy arrays. Each function returns new arrays; of
those here a sum or a mean is its own adjoint, and copies and summed_at are each other's."""

import numpy

from tutti._many import Works, start_all

LINEAR = ("sum", "mean")  # The ops that have a gradient.


def reduced(group, arrays, op, options):
    """The arrays, reduced over all ranks: an operation for each dtype."""
    outs = [numpy.empty(array.shape, array.dtype) for array in arrays]
    group.all_reduce_many(arrays, op=op, outs=outs, **options)
    return outs


def copies(group, arrays, root, options):
    """The arrays of rank `root`: an operation for each."""
    results = [numpy.array(array) for array in arrays]
    works = start_all(lambda result: group.broadcast(result, root, blocking=False, **options),
                      [(result,) for result in results])
    return Works(works, results).wait()


def summed_at(group, arrays, root, options):
    """The sum of all ranks' arrays at rank `root`, zeros at the others. All take part, also in what
    its own gradient is, which zeros alone would not."""
    outs = reduced(group, arrays, "sum", options)
    return outs if group.rank == root else [numpy.zeros_like(out) for out in outs]
