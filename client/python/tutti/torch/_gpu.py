"""What torch.cuda does for operations on GPU tensors. Tests put a driver of their own in its place.

An operation goes on a stream of the group's own, apart from what the program computes: it begins
after all that the program's current stream was given before the call, and the current stream waits
for it in work.wait(), as with NCCL. The processor waits for neither.
"""

import torch


def device_of(tensor):
    """The tensor's GPU; None: it is in the host's memory."""
    return tensor.device if tensor.is_cuda else None


def is_available():
    return torch.cuda.is_available()


def make_stream(device):
    return torch.cuda.Stream(device)


def current_stream(device):
    return torch.cuda.current_stream(device)


def on_stream(stream):
    """A context in which torch queues its work on the stream."""
    return torch.cuda.stream(stream)


def keep(tensor, stream):
    """The tensor's memory is not used again before the stream's work so far is done."""
    tensor.record_stream(stream)


def future_of(outputs, device, stream):
    """A Future that has the outputs already; who waits for it waits on the GPU for the stream."""
    future = torch.futures.Future(devices=[device])
    with torch.cuda.stream(stream):
        future.set_result(outputs)
    return future
