"""Tensors as the C ABI takes them: addresses, counts and dtypes."""

import math

import torch
import torch.distributed as dist

from tutti.torch._work import BackendError

# By tutti_dtype. Other dtypes are moved, not reduced, as bytes.
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3, torch.int8: 4,
          torch.uint8: 5, torch.int32: 6, torch.int64: 7, torch.bool: 8, torch.int16: 9,
          torch.uint16: 10, torch.uint32: 11, torch.uint64: 12}
_MOVED = {dtype: number for dtype, number in DTYPES.items() if dtype != torch.bool}
_U8 = 5
_REDUCE_OPS = {dist.ReduceOp.SUM: 0, dist.ReduceOp.AVG: 1, dist.ReduceOp.MIN: 2,
               dist.ReduceOp.MAX: 3, dist.ReduceOp.PRODUCT: 4, dist.ReduceOp.BAND: 5,
               dist.ReduceOp.BOR: 6, dist.ReduceOp.BXOR: 7, dist.ReduceOp.PREMUL_SUM: 8}
SUM, PREMUL_SUM = 0, 8


def invalid(message):
    return BackendError("INVALID_ARGUMENT", message)


def op_of(reduce_op):
    """The number of a reduction, a ReduceOp or its op."""
    if reduce_op == dist.ReduceOp.SUM:
        return SUM
    number = _REDUCE_OPS.get(getattr(reduce_op, "op", reduce_op))
    if number is None:
        raise invalid(f"{reduce_op} is not supported; use SUM, AVG, MIN, MAX, PRODUCT, BAND, "
                      "BOR, BXOR or PREMUL_SUM")
    return number


def dtype_of(tensor):
    """The dtype with which a tensor is reduced."""
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise invalid(f"{tensor.dtype} cannot be reduced; convert the tensor")
    return number


def bytes_of(tensor):
    """The count and dtype with which a tensor's elements are moved."""
    number = _MOVED.get(tensor.dtype)
    if number is not None:
        return tensor.numel(), number
    return tensor.numel() * tensor.element_size(), _U8


def unit_of(tensor):
    """The dtype with which a tensor's elements are moved, and how many of it make an element."""
    number = _MOVED.get(tensor.dtype)
    return (number, 1) if number is not None else (_U8, tensor.element_size())


def check_device(tensor):
    """Raises for a tensor whose memory the C ABI cannot take."""
    if not tensor.is_cpu and not tensor.is_cuda:
        raise BackendError("UNIMPLEMENTED", f"tensors on {tensor.device} are not supported; "
                                            "use one of the CPU or of CUDA")
    if tensor.layout is not torch.strided:
        raise invalid("a sparse tensor is supported by all_reduce alone; use to_dense()")


def check_size(tensor, count, what):
    if tensor.numel() != count:
        raise invalid(f"{what} has {tensor.numel()} elements, but must have {count}")


def check_parts(tensors, ranks, dtype, what):
    """Raises unless there is a tensor for each rank, all of one dtype."""
    if len(tensors) != ranks:
        raise invalid(f"there are {len(tensors)} {what}s for {ranks} ranks")
    for tensor in tensors:
        check_device(tensor)
        if tensor.dtype != dtype:
            raise invalid(f"{what}s are of {tensor.dtype} and {dtype}; convert them to one")


def check_apart(outputs):
    """Raises if two outputs share memory: each has a result of its own. Of one that is not
    contiguous only the first element is compared."""
    ranges = sorted((output.data_ptr(), i,
                     output.nbytes if output.is_contiguous() else output.element_size())
                    for i, output in enumerate(outputs) if output.numel())
    for (begin, first, size), (following, second, _) in zip(ranges, ranges[1:]):
        if following < begin + size:
            first, second = sorted((first, second))
            raise invalid(f"outputs {first} and {second} of the list overlap; use separate tensors")


def splits_of(tensor, splits, ranks, what):
    """The number of elements for each rank, of a tensor that is cut along its first axis: evenly,
    or as `splits` says. The second value: whether all are equal."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        if not tensor.dim() or rows % ranks != 0:
            raise invalid(f"all_to_all_single: shape {list(tensor.shape)} of the {what} cannot be "
                          f"cut into {ranks} along its first axis")
        splits = [rows // ranks] * ranks
    if len(splits) != ranks or min(splits) < 0 or sum(splits) != rows:
        raise invalid(f"the splits {list(splits)} of the {what} must be {ranks} numbers from 0 "
                      f"whose sum is {rows}")
    row = math.prod(tensor.shape[1:])
    return [row * split for split in splits], min(splits) == max(splits)


def adjacent(tensors):
    """Whether contiguous tensors lie one behind the other in one memory."""
    end = tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != end:
            return False
        end += tensor.numel() * tensor.element_size()
    storage = tensors[0].untyped_storage().data_ptr()
    return all(tensor.untyped_storage().data_ptr() == storage for tensor in tensors)


def copy_parts(flat, outputs):
    """Copies the elements of a flat tensor to the outputs, one after the other."""
    begin = 0
    for output in outputs:
        end = begin + output.numel()
        output.copy_(flat[begin:end].view(output.shape))
        begin = end
