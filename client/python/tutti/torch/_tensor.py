"""Tensors as the C ABI takes them: addresses, counts and dtypes."""

import functools
import math

import torch
import torch.distributed as dist

from tutti import _overlap
from tutti._overlap import elements_of
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
SUM, AVG, PREMUL_SUM = 0, 1, 8
INTEGERS = frozenset(dtype for dtype in DTYPES
                     if not dtype.is_floating_point and dtype != torch.bool)
# How tensors of one rank are reduced before those of all are.
_FOLDS = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add,
          dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.minimum,
          dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.BAND: torch.bitwise_and,
          dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}


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
        raise invalid("unsupported layout: a sparse tensor is supported by all_reduce alone; use "
                      "to_dense()")


def check_size(tensor, count, what):
    if tensor.numel() != count:
        raise invalid(f"invalid tensor size: {what} has {tensor.numel()} elements, but must have "
                      f"{count}")


def check_root(root, ranks):
    if not 0 <= root < ranks:
        raise invalid(f"invalid root rank: {root}; the group's ranks are 0 to {ranks - 1}")


def check_single(tensors, verb, what):
    """Raises unless a list that the C++ interface of torch takes has one element."""
    if len(tensors) != 1:
        raise invalid(f"{verb} requires a single-element {what}, but this one has {len(tensors)}; "
                      "make a call for each")


def check_alike(tensors, verb):
    """Raises unless the tensors of a list are like the first one, and there is one."""
    if not tensors:
        raise invalid(f"{verb} requires non-empty tensor list")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        for what, mine, wanted in (("layout", tensor.layout, first.layout),
                                   ("type", tensor.dtype, first.dtype),
                                   ("size", list(tensor.shape), list(first.shape))):
            if mine != wanted:
                raise invalid(f"{verb}: invalid tensor {what} at index {i}: {mine}, but the list's "
                              f"first is {wanted}")


def check_lists(outputs, inputs, verb):
    """Raises unless there is a list of outputs for each input, and an input."""
    if not inputs:
        raise invalid(f"{verb} requires non-empty input tensor list")
    if len(outputs) != len(inputs):
        raise invalid(f"{verb} requires input/output tensor lists to have the same length, not "
                      f"{len(inputs)} and {len(outputs)}")


def check_parts(tensors, ranks, dtype, what):
    """Raises unless there is a tensor for each rank, all of one dtype."""
    if len(tensors) != ranks:
        raise invalid(f"Incorrect {what} list size {len(tensors)}. {what.capitalize()} list size "
                      f"should be {ranks}, the number of ranks")
    for tensor in tensors:
        check_device(tensor)
        if tensor.dtype != dtype:
            raise invalid(f"invalid tensor type: {what}s are of {tensor.dtype} and {dtype}; "
                          "convert them to one")


def check_apart(outputs, has_one_result=False):
    """Raises if two outputs share elements: each has a result of its own. has_one_result: one that
    is there twice, with the same elements, has one."""
    for output in outputs:
        check_device(output)
    if len(outputs) < 2:
        return

    def matters(i, j):
        return not has_one_result or elements(i) != elements(j)

    def elements(i):
        return elements_of(outputs[i], outputs[i].dtype)

    found = _overlap.find([_overlap.Use(output, True, True) for output in outputs], matters)
    if found is not None:
        raise invalid(f"outputs {found[0]} and {found[1]} of the list overlap; use separate "
                      "tensors")


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


def folded(tensors, reduce_op):
    """The reduction of one rank's tensors, which are alike."""
    fold = _FOLDS.get(getattr(reduce_op, "op", reduce_op))
    if len(tensors) > 1 and fold is None:
        raise invalid(f"{reduce_op} takes one tensor a call")
    return functools.reduce(fold, tensors)


def divide(tensor, divisor):
    """Divides integers in place, toward zero, as NCCL does for AVG."""
    if tensor.dtype == torch.uint64:  # For this and the two below torch 2.15 has no division.
        signed = tensor.view(torch.int64)
        halves = (signed >> 1) & (2**63 - 1)
        quotients = halves.div_(divisor, rounding_mode="trunc").mul_(2)
        signed.copy_(quotients + (signed - quotients * divisor >= divisor))
    elif tensor.dtype in (torch.uint16, torch.uint32):
        tensor.copy_(tensor.to(torch.int64).div_(divisor, rounding_mode="trunc"))
    else:
        tensor.div_(divisor, rounding_mode="trunc")


def is_plain(tensor):
    """Whether the tensor's memory has its elements, in order."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def plain(tensor):
    """The tensor, or a copy whose memory has its elements, in order."""
    return tensor.contiguous().resolve_conj().resolve_neg()


def adjacent(tensors):
    """Whether contiguous tensors lie one behind the other in one memory."""
    end = tensors[0].data_ptr()
    for tensor in tensors:
        if not is_plain(tensor) or tensor.data_ptr() != end:
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
