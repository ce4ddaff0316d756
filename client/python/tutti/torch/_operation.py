"""One operation of torch.distributed: it prepares all calls of the C ABI, then makes them."""

import ctypes
import functools
from datetime import timedelta

import torch

from tutti import _overlap, _refusal
from tutti._error import Error
from tutti._library import Options, library
from tutti._overlap import elements_of
from tutti._waiting import WITHOUT_WAIT, interruptible
from tutti.torch import _gpu
from tutti.torch._tensor import (AVG, INTEGERS, PREMUL_SUM, SUM, adjacent, check_apart,
                                 check_device, check_parts, check_size, copy_parts, divide,
                                 dtype_of, invalid, is_plain, op_of, plain)
from tutti.torch._work import (BackendError, GpuWork, Handle, TuttiWork, backend_error,
                               begin_record, end_here, last_failure)

TIMEOUT_UNSET = timedelta(milliseconds=-1)


class Operation:
    """Its call blocks if the operation of torch does, there is one, and no profiler watches. On a
    GPU no call blocks: see _gpu. Nothing is called before start(), so that a refusal leaves no call
    half made."""

    __slots__ = ("_backend", "_completer", "_options", "_blocks", "_calls", "_keep", "_uses",
                 "_finish", "_device", "_has_tensors", "_divides", "_waits")

    def __init__(self, backend, completer, timeout, asynchronous, waits=False):
        """waits: C may wait for others before it returns."""
        self._backend = backend
        self._completer = completer
        self._options = backend.options_for(timeout)
        self._blocks = not asynchronous
        self._calls = []
        self._keep = []
        self._uses = []  # Of the tensors, on the host.
        self._finish = []
        self._device = None  # The tensors' GPU; None: the host.
        self._has_tensors = False
        self._divides = False
        self._waits = waits

    # ---- Preparation ----

    def accept(self, tensor):
        """Raises for a tensor that the operation cannot take."""
        check_device(tensor)
        device = _gpu.device_of(tensor)
        if self._has_tensors and device != self._device:
            raise invalid(f"tensors on {tensor.device} and on {self._device or 'cpu'} are in one "
                          "operation; move them to one device")
        self._device, self._has_tensors = device, True

    def call(self, verb, *arguments):
        """Prepares tutti_<verb> with the arguments between the group and the options."""
        self._calls.append((getattr(library, "tutti_" + verb), arguments))

    def op(self, reduce_op, dtype, has_result=True):
        """The number of the reduction. The mean of integers is their sum, to divide at the end,
        where the result is."""
        number = op_of(reduce_op)
        if number == AVG and dtype in INTEGERS:
            self._divides = has_result
            return SUM
        if number == PREMUL_SUM:
            given = self._options._obj
            factor = float(reduce_op.__getstate__()[1])  # Its .factor is there since torch 2.13.
            self._options = ctypes.byref(Options(given.size, None, given.timeout_ms, factor,
                                                 given.buffers_stay,
                                                 reproducible=given.reproducible))
        return number

    def _use(self, tensors, is_written, is_copied):
        """For tensors on a GPU the streams order the operations."""
        self._uses.extend(_overlap.Use(tensor, is_written, is_copied, is_watched=not is_copied)
                          for tensor in tensors if not tensor.is_cuda)

    def _takes(self, tensor, is_written):
        """Whether the C ABI can take the tensor's memory itself."""
        takes = is_plain(tensor)
        self._use([tensor], is_written, not takes)
        return takes

    def check_uses(self):
        """Raises for a tensor that gets in the way of an operation under way, and for one to which
        no result can be copied."""
        try:
            for use in self._uses:
                if use.is_copied and use.is_written:
                    _overlap.check_self(use.array)
            _overlap.check_under_way(self._uses)
        except Error as error:
            raise backend_error(error) from None

    def in_place(self, tensor):
        """Contiguous memory with the tensor's elements, written back if it is a copy."""
        self.accept(tensor)
        if self._takes(tensor, is_written=True):
            self._keep.append(tensor)
            return tensor
        flat = plain(tensor)
        self._keep.append(flat)
        self._finish.append(lambda: tensor.copy_(flat))
        return flat

    def source(self, tensor):
        """The address of the tensor's elements, or of a contiguous copy of them."""
        self.accept(tensor)
        flat = tensor if self._takes(tensor, is_written=False) else plain(tensor)
        self._keep.append(flat)
        return flat.data_ptr()

    def target(self, tensor):
        """The address of memory for the tensor's elements, copied to it at the end."""
        self.accept(tensor)
        if self._takes(tensor, is_written=True):
            self._keep.append(tensor)
            return tensor.data_ptr()
        flat = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        self._finish.append(lambda: tensor.copy_(flat))
        self._keep.append(flat)
        return flat.data_ptr()

    def host_side(self, tensor, is_output):
        """Like target() or source(), in the host's memory: that of a GPU is copied there, and the
        call waits for that."""
        check_device(tensor)
        if _gpu.device_of(tensor) is None:
            return self.target(tensor) if is_output else self.source(tensor)
        flat = torch.empty(tensor.shape, dtype=tensor.dtype) if is_output else tensor.cpu()
        self._keep.append(flat)
        if is_output:
            self._finish.append(lambda: tensor.copy_(flat))
        return flat.data_ptr()

    def sides(self, source, output):
        """The addresses of both sides, which have one dtype."""
        if source.dtype != output.dtype:
            raise invalid(f"the input is of {source.dtype}, but the output of {output.dtype}")
        return self.source(source), self.target(output)

    def joined(self, tensors, dtype, fill):
        """One flat tensor for a list with a tensor for each rank: the memory of the list itself,
        if they are adjacent. fill: True: the list is the input, whose elements it gets; False: the
        list is the output, to which its elements are copied at the end."""
        what = "input" if fill else "output"
        check_parts(tensors, self._backend.size(), dtype, what)
        count = sum(tensor.numel() for tensor in tensors)
        if adjacent(tensors):
            self._keep.append(tensors)
            self._use(tensors, is_written=not fill, is_copied=False)
            return torch.as_strided(tensors[0], (count,), (1,))
        self._use(tensors, is_written=not fill, is_copied=True)
        if fill:
            flat = plain(torch.cat([tensor.reshape(-1) for tensor in tensors]))
        else:
            check_apart(tensors)
            flat = torch.empty(count, dtype=dtype, device=tensors[0].device)
            self._finish.append(lambda: copy_parts(flat, tensors))
        self._keep.append(flat)
        return flat

    def spread(self, flat, outputs):
        """The elements of a flat tensor, which the operation writes, are at the end copied to the
        outputs, one after the other."""
        self.accept(flat)
        self._keep.append(flat)
        self._use(outputs, is_written=True, is_copied=True)
        self._finish.append(lambda: copy_parts(flat.view(-1), outputs))

    def divide(self, outputs):
        """At the end, divides the integers among the outputs if they are to be means."""
        if self._divides:
            integers = {elements_of(output, output.dtype): output for output in outputs
                        if output.dtype in INTEGERS}
            ranks = self._backend.size()
            self._finish.extend(functools.partial(divide, output, ranks)
                                for output in integers.values())

    def reduced(self, source, output, verb, op):
        """Prepares a reduction of `source` whose result is `output`."""
        self.call(verb, *self.sides(source, output), output.numel(), dtype_of(output), op)

    def equal_parts(self, tensors, like, fill):
        """Like joined(), of tensors of one size."""
        for tensor in tensors:
            check_size(tensor, like.numel(), "an input" if fill else "an output")
        return self.joined(tensors, like.dtype, fill)

    def follow(self, works):
        """The operation ends after these works, whatever their outcome."""
        self._finish.extend(work.end for work in works)

    # ---- The calls ----

    def start(self, title, inputs, outputs):
        """Makes the calls. title: of the collective. The TuttiWork, which torch waits for if its
        operation blocks, or None if the call blocked: several at once end by one deadline."""
        backend = self._backend
        backend.check_aborted()
        if self._device is not None:
            return self._start_on_gpu(title, outputs)
        record = None
        if torch.autograd._profiler_enabled():
            record = begin_record(backend.title + title, inputs)
        may_wait = self._waits or len(self._completer.unfinished) >= WITHOUT_WAIT
        if self._blocks and record is None and len(self._calls) < 2 and not may_wait:
            self._raise(self._make_calls_here())
            _run_all(self._finish)
            self._completer.settle()
            return None
        begin = functools.partial(self._begin, outputs, record)
        failure, work = interruptible(begin) if may_wait else begin()
        self._raise(failure)
        return work

    def _begin(self, outputs, record):
        """Makes the calls. (A failure or None, the TuttiWork), also after a failure: the other
        ranks need what is under way."""
        handles = []
        failure = self._make_calls(handles)
        finish = functools.partial(_run_all, self._finish)
        return failure, TuttiWork(self._backend, self._completer, outputs, handles, self._keep,
                                  finish, record, uses=self._uses)

    def _start_on_gpu(self, title, outputs):
        """Makes the calls on the group's stream of the GPU, after what the current stream has."""
        backend, device = self._backend, self._device
        self._completer.settle()
        unseen = backend.take_unseen()
        if unseen is not None:
            self.refuse(title, len(self._calls), unseen)  # Other ranks may learn of it later.
            raise unseen
        stream = backend.stream_of(device)
        stream.wait_stream(_gpu.current_stream(device))
        given = self._options._obj
        self._options = ctypes.byref(Options(given.size, None, given.timeout_ms, given.factor,
                                             given.buffers_stay, 1, stream.cuda_stream,
                                             backend.choice))
        handles = []
        failure = self._make_calls(handles)
        with _gpu.on_stream(stream):
            _run_all(self._finish)
        for kept in [*self._keep, outputs]:
            for tensor in kept if isinstance(kept, list) else [kept]:
                _gpu.keep(tensor, stream)
        work = GpuWork(backend, self._completer, outputs, handles, self._keep, device, stream)
        self._raise(failure)
        if self._blocks:
            work.wait()
            return None
        return work

    def _raise(self, failure):
        if failure is not None:
            self._backend.note_failure(failure)
            if self._device is not None:
                self._backend.note_seen(failure)
            raise failure

    def _make_calls(self, handles):
        """Makes all calls, also after one failed, because the other ranks make them. The first
        failure, or None. handles: gets what is under way."""
        failure = None
        group, options = self._backend.pointer, self._options
        for function, arguments in self._calls:
            work = ctypes.c_void_p()
            code = function(group, *arguments, options, ctypes.byref(work))
            if code == 0:
                handles.append(Handle(work))
            elif failure is None:
                failure = last_failure()
        return failure

    def _make_calls_here(self):
        """Makes the one call, if there is one, and waits for it. Its failure, or None."""
        try:
            for function, arguments in self._calls:
                work = ctypes.c_void_p()
                if function(self._backend.pointer, *arguments, self._options,
                            ctypes.byref(work)) != 0:
                    return last_failure()
                end_here(self._backend, work, [self._keep, arguments])
        except BackendError as failure:
            return failure
        return None

    def refuse(self, title, calls, error):
        """Fails the calls of a collective that were not made, on the other ranks."""
        for _ in range(calls):
            library.tutti_refuse(self._backend.pointer, _refusal.COLLECTIVES[title],
                                 *_refusal.reason(error))

    def refuse_message(self, verb, peer, tag, error):
        """The same for a message."""
        getattr(library, "tutti_refuse_" + verb)(
            self._backend.pointer, peer, ctypes.byref(ctypes.c_uint64(tag)),
            *_refusal.reason(error))


def collective(title, calls=None):
    """A method that starts the operation of torch that its body prepares: body(self, operation,
    arguments of torch) returns the input tensors and the outputs. title: for the profiler. calls:
    how many calls of the C ABI the method makes, by its arguments; without: one."""
    def decorate(prepare):
        def start(self, operation, arguments):
            try:
                inputs, outputs = prepare(self, operation, *arguments)
                operation.divide(outputs)
                operation.check_uses()
            except BaseException as error:
                operation.refuse(title, 1 if calls is None else calls(*arguments), error)
                raise
            return operation.start(title, inputs, outputs)

        @functools.wraps(prepare)
        def method(self, *arguments):
            opts = arguments[-1]
            operation = Operation(self, self.collectives, opts.timeout,
                                  opts.asyncOp or self._coalesced is not None)
            self._sequence += 1
            return self._started(start, self, operation, arguments)

        return method

    return decorate


def _run_all(functions):
    if functions:
        with torch.no_grad():
            for function in functions:
                function()
