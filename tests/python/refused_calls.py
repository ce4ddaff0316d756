"""Every verb of Group with every kind of argument that Python refuses, on one rank: the call is an
error on all ranks, and the next calls meet those of the other ranks. Two ranks; as a program, under
`tutti run`; prints how many calls were refused."""

import numpy as np

import tutti

LONG = 60  # Seconds; nothing here takes them.


class Raises:
    """An array whose memory cannot be had."""

    def __init__(self, error):
        self.error = error

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise self.error


class Capsule:
    """An array that gives something else than a capsule, or than a device."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return self.capsule


def numbers(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def read_only(*shape, dtype="float32"):
    array = numbers(*shape, dtype=dtype)
    array.flags.writeable = False
    return array


# The arguments of a right call, by verb.
RIGHT = {
    "all_reduce": lambda rank: {"x": numbers(4)},
    "all_reduce_many": lambda rank: {"xs": [numbers(4), numbers(3, dtype="int64"), numbers(2)]},
    "reduce": lambda rank: {"x": numbers(4), "root": 0},
    "broadcast": lambda rank: {"x": numbers(4), "root": 0},
    "all_gather": lambda rank: {"x": numbers(4)},
    "reduce_scatter": lambda rank: {"x": numbers(4)},
    "gather": lambda rank: {"x": numbers(4), "root": 0},
    "scatter": lambda rank: {"x": numbers(4), "root": 0, "out": numbers(2)},
    "all_to_all": lambda rank: {"x": numbers(4)},
    "all_gather_v": lambda rank: {"x": numbers(1 + rank), "sizes": [1, 2]},
    "reduce_scatter_v": lambda rank: {"x": numbers(3), "sizes": [1, 2]},
    "all_to_all_v": lambda rank: {"x": numbers(2), "in_sizes": [1, 1], "out_sizes": [1, 1]},
    "barrier": lambda rank: {},
}
WRONG_ARRAYS = [
    lambda: None, lambda: "text", lambda: [[1.0, 2.0], [3.0]],
    lambda: numbers(4, dtype="complex64"), lambda: numbers(4, dtype=">f4"),
    lambda: np.ma.masked_array(numbers(4)), lambda: ["a"],
    lambda: Raises(ZeroDivisionError("by zero")), lambda: Raises(MemoryError()),
    lambda: Raises(KeyboardInterrupt()), lambda: Capsule(None), lambda: Capsule(3),
    lambda: Capsule(None, device=None), lambda: Capsule(None, device=()), lambda: bytearray(16),
    lambda: {}, lambda: numbers(4, dtype="M8[s]"), lambda: numbers(4, dtype="O")]
WRONG = {
    "op": ["avg", 3, None], "factor": [2.0, "2"], "root": [-1, "0", 2**40, 7, None],
    "strategy": [3, "star", {"Tree": 0}], "timeout": [0, -1, "1", float("nan")],
    "dtype": ["f8x", "f64", 3], "stream": ["s", -1],
    "sizes": [None, [1], [1, "2"], [-1, 4], [5, 5]],
    "in_sizes": [None, [1], [1, "1"], [2, 2]], "out_sizes": [None, [1], [1, -1]],
    "blocking": [np.ones(2)], "no_such_option": [1]}
NO_OP = ("broadcast", "all_gather", "gather", "scatter", "all_to_all", "all_gather_v",
         "all_to_all_v", "barrier")
LISTS = [
    lambda: None, lambda: 3, lambda: [numbers(4), read_only(3, dtype="int64"), numbers(2)],
    lambda: [numbers(4), Raises(RuntimeError("gone")), numbers(3, dtype="int64")],
    lambda: [numbers(4), numbers(3, dtype="int64"), None],
    lambda: iter([numbers(4), read_only(3, dtype="int64"), 2.0])]


def mistakes(verb, rank, right):
    """(name, arguments) of the wrong calls of a verb by a rank."""
    for name, values in WRONG.items():
        if name in right or name in ("no_such_option", "timeout", "blocking"):
            takes = True
        elif name in ("op", "factor"):
            takes = verb not in NO_OP
        else:
            takes = verb != "barrier" and name in ("strategy", "dtype", "stream")
        for value in values if takes else ():
            yield f"{name}={value!r}", {**right, name: value}
    if verb == "all_reduce_many":
        # A list of which nothing can be read stands for one operation: see its docstring.
        for i, xs in enumerate(LISTS[2:], 2):
            yield f"list {i}", {**right, "xs": xs()}
        yield "outs", {**right, "outs": [numbers(4)]}
        yield "an out", {**right, "outs": [numbers(4), numbers(1, dtype="int64"), numbers(2)]}
        return
    if "x" in right and not (verb == "scatter" and rank != 0):
        for i, x in enumerate(WRONG_ARRAYS):
            yield f"array {i}", {**right, "x": x()}
    if verb in ("all_reduce",) or (verb, rank) in (("reduce", 0), ("broadcast", 1)):
        yield "read-only x", {**right, "x": read_only(4)}
    if verb not in ("broadcast", "barrier") and (verb, rank) not in (("reduce", 1), ("gather", 1)):
        for i, out in enumerate((read_only(2), numbers(99), Raises(OSError("gone")))):
            if not (verb == "scatter" and rank != 0 and i == 1):  # There `out` tells the shape.
                yield f"out {i}", {**right, "out": out}
    if right:
        yield "a missing argument", {name: right[name] for name in list(right)[1:]}


class Checks:
    def __init__(self, group):
        self.group, self.step, self.refused = group, 0, 0

    def expect(self, what, is_right):
        if not is_right:
            raise AssertionError(f"rank {self.group.rank}: {what}")

    def in_step(self, what):
        """Both ranks' next two calls meet."""
        for _ in range(2):
            self.step += 1
            mine = [100.0 * self.step, 1.0 * self.step][self.group.rank]
            got = self.group.all_reduce(np.full(3, mine), timeout=LONG)[0]
            self.expect(f"{what}: {got}, right {101.0 * self.step}", got == 101.0 * self.step)

    def fails(self, what, call, is_mine):
        """The call raises; on the ranks whose mistake it is not, an error that names the other."""
        try:
            call()
        except tutti.Error as error:
            codes = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
            self.expect(f"{what}: {error}", error.code in codes)
            self.expect(f"{what}: {error}", is_mine or f"rank {1 - self.group.rank}" in str(error))
        except BaseException as error:
            self.expect(f"{what}: {error!r}", is_mine and not isinstance(error, AssertionError))
        else:
            self.expect(f"{what} was not refused", False)
        self.refused += is_mine

    def collective(self, verb, wrong):
        right = RIGHT[verb]
        method = getattr(self.group, verb)
        is_mine = self.group.rank == wrong
        for name, arguments in mistakes(verb, wrong, right(wrong)):
            what = f"{verb} with {name} by rank {wrong}"
            if not is_mine:
                arguments = {**right(1 - wrong), "timeout": LONG}
            self.fails(what, lambda: method(**arguments), is_mine)
            self.in_step(what)

    def collectives(self):
        for verb in RIGHT:
            for wrong in (0, 1):
                self.collective(verb, wrong)

    def refused_sends(self):
        """Rank 0's send is refused: the call of rank 1 for it fails, and the next gets the next."""
        wrong = [{"x": x()} for x in WRONG_ARRAYS] + [
            {name: value} for name in ("timeout", "dtype", "stream", "blocking", "no_such_option")
            for value in WRONG[name]] + [{"tag": -1}, {"tag": "a"}, {"tag": 2**64}]
        for change in wrong:
            what = f"send with {change}"
            if self.group.rank == 0:
                arguments = {"x": numbers(3), "destination": 1, "tag": 5, **change}
                self.fails(what, lambda: self.group.send(**arguments), True)
                self.group.send(numbers(3) * self.step, 1, tag=5, timeout=LONG)
            else:
                self.fails(what, lambda: self.group.recv(numbers(3), source=0, tag=5, timeout=LONG),
                           False)
                self.group.recv(got := numbers(3), source=0, tag=5, timeout=LONG)
                self.expect(f"{what}: {got}, right {self.step}", got[0] == self.step)
            self.in_step(what)

    def refused_receives(self):
        """Rank 1's recv is refused: the message is lost, and the next call gets the next."""
        wrong = [{"x": x()} for x in [*WRONG_ARRAYS, lambda: 3.0, lambda: read_only(3)]] + [
            {name: value} for name in ("timeout", "dtype", "stream", "blocking", "no_such_option")
            for value in WRONG[name]] + [{"tag": -1}, {"tag": "a"}]
        for change in wrong:
            what = f"recv with {change}"
            if self.group.rank == 1:
                arguments = {"x": numbers(3), "source": 0, "tag": 5, **change}
                self.fails(what, lambda: self.group.recv(**arguments), True)
                self.group.recv(got := numbers(3), source=0, tag=5, timeout=LONG)
                self.expect(f"{what}: {got}, right {self.step}", got[0] == self.step)
            else:
                self.group.send(numbers(3) * -1, 1, tag=5, timeout=LONG)
                self.group.send(numbers(3) * self.step, 1, tag=5, timeout=LONG)
            self.in_step(what)


def main():
    with tutti.join(timeout=LONG) as group:
        checks = Checks(group)
        checks.collectives()
        checks.refused_sends()
        checks.refused_receives()
        print(f"{checks.refused} calls were refused", flush=True)


if __name__ == "__main__":
    main()
