"""What each rank of mesh_reproducible does in a random job: reproducible reductions of random
groups, sizes, places in memory and kinds of calls, while ranks differ in what must not matter: the
floating-point modes of their threads, the kernels that they run, and when they call.

    reproducible_random.py SEED LAYOUT STEPS            random calls
    reproducible_random.py --stops SEED LAYOUT STEPS    large ones, in which ranks are stopped

SEED decides on the calls and their values, SEED and LAYOUT on everything else. Rank 0 prints
digests of the results of reproducible calls ("exact") and of others of the same values ("loose").
"""

import collections
import hashlib
import os
import select
import signal
import subprocess
import sys
import time

import numpy as np
import processor
from reproducible_ranks import FLOATS, NUMBERS, OPS, own_dtype, wild

import tutti

STRATEGIES = ("ring", "tree:1", "tree:2", "centralized", None)
COLLECTIVES = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v", "many", "premul_sum")
TINY = {"float16": 6e-8, "bf16": 1e-38, "float32": 1e-38, "float64": 2e-308}
LARGE = 1_000_000
PERIOD = 9973  # Of large arrays, so that their values and sums are quickly made.
STOP_SECONDS = 0.1
CALLS_FOR_A_STOP = 3  # One after the other: one of them is under way when the rank is stopped.
Step = collections.namedtuple("Step", "members collective dtype op count strategy root offset "
                                      "blocking cuts factors seed")


def all_values(ranks, count, dtype, seed):
    """All ranks' arrays, as of wild(); in some places sums are subnormal, in others products."""
    xs = [wild(rank, count, dtype, seed) for rank in range(ranks)]
    if dtype not in TINY:
        return xs
    place = np.random.default_rng([count, seed])
    kind, owner = place.integers(0, 4, count), place.integers(0, ranks, count)
    for rank, x in enumerate(xs):
        random = np.random.default_rng([rank, count, seed, 1])
        near_one = random.uniform(0.5, 1, count)
        near_zero = near_one * TINY[dtype] * random.choice([-1, 0.25, 1], count)
        values = np.where((kind == 0) | (owner == rank), near_zero, near_one)
        if dtype == "bf16":
            values = values.astype("float32").view("uint32") >> 16
        x[kind < 2] = values.astype(x.dtype)[kind < 2]
    return xs


def as_floats(x, dtype):
    """Values that NumPy can compare."""
    return (x.astype("uint32") << 16).view("float32") if dtype == "bf16" else x


def random_step(random, groups):
    """Drawn alike on all ranks, whichever takes part."""
    members = groups[random.integers(len(groups))]
    collective = COLLECTIVES[random.integers(len(COLLECTIVES))]
    types = FLOATS if collective == "premul_sum" else (*FLOATS, *FLOATS, *OPS)
    dtype = types[random.integers(len(types))]
    ops = OPS.get(dtype, (*NUMBERS, "sum", "mean"))
    count = int(random.choice([1, 7, 63, 1000, 4099, 40_001]) + random.integers(0, 3))
    cuts = sorted(random.integers(0, count + 1, len(members) - 1))
    return Step(members, collective, dtype, ops[random.integers(len(ops))], count,
                STRATEGIES[random.integers(len(STRATEGIES))], int(random.integers(len(members))),
                int(random.integers(0, 9)), bool(random.integers(2)), [0, *cuts, count],
                random.normal(size=len(members)).astype("float32").tolist(),
                int(random.integers(1 << 30)))


class Job:
    def __init__(self, group, own, kernel):
        self.group = group
        self.kernel = kernel
        self.own = own  # Random numbers of this rank in this layout.
        self.exact, self.loose = hashlib.sha256(), hashlib.sha256()
        self.differing = 0  # Elements of loose results, from the reference.
        self.modes = [0, 0]  # Calls in other modes; those whose reference in that mode differs.

    def some_mode(self):
        """One for this rank's thread, the plain one too."""
        names = [None, *processor.MODES]
        return names[self.own.integers(len(names))]

    def pause(self):
        if self.own.integers(4) == 0:
            time.sleep(self.own.exponential(0.003))

    def compare(self, step, result, expected):
        expected = np.ascontiguousarray(expected)
        if result.tobytes() != expected.tobytes():
            wrong = np.flatnonzero(result.reshape(-1).view("uint8") != expected.view("uint8"))
            raise AssertionError(f"{step}: byte {wrong[0]} of {result.nbytes} is the first of "
                                 f"{len(wrong)} wrong ones: {result} instead of {expected}")
        self.exact.update(result.tobytes())

    def run(self, group, step):
        xs = all_values(group.world_size, step.count, step.dtype, step.seed)
        known = own_dtype(step.dtype)[1]
        op, factors = step.op, None
        if step.collective == "premul_sum":
            op, factors = step.collective, step.factors
        expected = tutti.reference(xs, op, factors=factors, **known)
        if op == "sum" and step.dtype in FLOATS and group.world_size > 2:
            self.run_loose(group, step, xs, expected)
        mode = self.some_mode()
        if mode:
            with processor.in_mode(mode):
                other = tutti.reference(xs, op, factors=factors, **known)
            self.modes[0] += 1
            self.modes[1] += other.tobytes() != expected.tobytes()
        self.pause()
        with processor.in_mode(mode):
            results = self.call(group, step, xs[group.rank], **known)
        for begin, result in results:
            self.compare(step, result, expected[begin:begin + len(result)])

    def call(self, group, step, mine, **options):
        """(the place in the whole result, the result) of each result that this rank gets."""
        options.update(strategy=step.strategy, reproducible=True, blocking=step.blocking)
        stored = own_dtype(step.dtype)[0]
        x = group.empty(step.count + step.offset, stored)[step.offset:]
        x[:] = mine
        if step.collective == "many":
            pieces = [x[a:b] for a, b in zip(step.cuts, step.cuts[1:])]
            self.end(group.all_reduce_many(pieces, step.op, **options))
            return list(zip(step.cuts, pieces))
        if step.collective == "premul_sum":
            options["factor"] = step.factors[group.rank]
            return [(0, self.end(group.all_reduce(x, "premul_sum", **options)))]
        if step.collective == "reduce":
            result = self.end(group.reduce(x, step.root, step.op, **options))
            return [(0, result)] if group.rank == step.root else []
        if step.collective == "reduce_scatter":
            count = step.count // group.world_size
            part = self.end(group.reduce_scatter(x[:count * group.world_size], step.op, **options))
            return [(group.rank * count, part)]
        if step.collective == "reduce_scatter_v":
            part = self.end(group.reduce_scatter_v(x, np.diff(step.cuts).tolist(), step.op,
                                                   **options))
            return [(step.cuts[group.rank], part)]
        return [(0, self.end(group.all_reduce(x, step.op, **options)))]

    def end(self, called):
        """The result of what may be under way."""
        if not hasattr(called, "wait"):
            return called
        self.pause()
        return called.wait()

    def run_loose(self, group, step, xs, expected):
        """The same sum in any order: how often it differs, but for NaNs."""
        known = own_dtype(step.dtype)[1]
        for strategy in ("ring", "tree:1"):
            result = group.all_reduce(xs[group.rank].copy(), strategy=strategy, reproducible=False,
                                      **known)
            values = as_floats(result, step.dtype)
            is_number = ~np.isnan(values)
            self.differing += np.count_nonzero(
                (values != as_floats(expected, step.dtype)) & is_number)
            self.loose.update(np.where(is_number, values, 0).tobytes())

    def report(self):
        """All ranks call it, in the plain mode. Rank 0 prints."""
        elements, calls, differing = self.group.all_reduce(
            np.array([self.differing, *self.modes], "int64"))
        ranks = self.group.all_gather(np.frombuffer(
            self.exact.digest() + self.loose.digest(), "uint8")).reshape(-1, 64)
        kernels = self.group.all_gather(np.frombuffer(self.kernel.encode().ljust(9), "uint8"))
        if self.group.rank == 0:
            exact = hashlib.sha256(ranks[:, :32].tobytes()).hexdigest()
            loose = hashlib.sha256(ranks[:, 32:].tobytes()).hexdigest()
            print(f"exact {exact}\nloose {loose}\n{elements} elements of loose results differed; "
                  f"{differing} of {calls} results differ in another mode; kernels by rank: "
                  f"{kernels.tobytes().decode().split()}", flush=True)


def random_calls(job, seed, steps):
    random = np.random.default_rng(seed)
    everyone = list(range(job.group.world_size))
    groups = [everyone, random.permutation(everyone).tolist()]
    groups += [random.permutation(everyone)[:size].tolist() for size in random.integers(2, 8, 4)]
    mine = {str(ranks): job.group.subgroup(ranks) for ranks in groups if job.group.rank in ranks}
    for i in range(steps):
        step = random_step(random, groups)
        if i == 0:  # A sum that depends on its order: without one the job would prove nothing.
            step = step._replace(members=everyone, collective="all_reduce", dtype="float32",
                                 op="sum", count=40_001)
        if str(step.members) in mine:
            job.run(mine[str(step.members)], step)


class Stopper:
    """A process that stops ranks, its parent too."""

    def __init__(self, seed, pids):
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--stop", str(seed), *map(str, pids)], bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def stop_one_soon(self):
        self._process.stdin.write(b"\n")

    def await_stop(self):
        """Until it has stopped a rank for as long as it does, and continued it."""
        assert self._process.stdout.read(1) == b".", "the process that stops ranks has ended"

    def end(self):
        self._process.stdin.close()
        assert self._process.wait(60) == 0


def stop_ranks(seed, pids):
    """The Stopper's process: for each byte that it reads, a random rank, soon. It stops none while
    its input is at an end, which is so when its parent has died."""
    random = np.random.default_rng(seed)
    while os.read(0, 1):
        time.sleep(random.uniform(0, 0.01))
        pid = int(random.choice(pids))
        os.kill(pid, signal.SIGSTOP)
        select.select([], [], [], STOP_SECONDS)
        os.kill(pid, signal.SIGCONT)
        os.write(1, b".")


def stopped_calls(job, seed, steps):
    """Large sums. Ranks are stopped for a while within them, not always the same one."""
    random = np.random.default_rng(seed)
    group = job.group
    pids = group.all_gather(np.array([os.getpid()], "int64")).tolist()
    stopper = Stopper(job.own.integers(1 << 30), pids) if group.rank == 0 else None
    long = 0
    for i in range(steps):
        dtype = FLOATS[i % len(FLOATS)]
        step = Step(None, "all_reduce", dtype, "mean" if i % 3 == 2 else "sum", LARGE,
                    STRATEGIES[random.integers(len(STRATEGIES))], 0, int(random.integers(9)),
                    bool(random.integers(2)), None, None, int(random.integers(1 << 30)))
        xs = all_values(group.world_size, PERIOD, dtype, step.seed)
        known = own_dtype(dtype)[1]
        expected = np.resize(tutti.reference(xs, step.op, **known), LARGE)
        mine = np.resize(xs[group.rank], LARGE)
        if step.op == "sum":
            job.run_loose(group, step, xs, expected[:PERIOD])
        group.barrier()
        if stopper:
            stopper.stop_one_soon()
        for _ in range(CALLS_FOR_A_STOP):
            began = time.monotonic()
            with processor.in_mode(job.some_mode()):
                (_, result), = job.call(group, step, mine, **known)
            long += time.monotonic() - began > STOP_SECONDS
            job.compare(step, result, expected)
        if stopper:
            stopper.await_stop()
    if stopper:
        stopper.end()
        print(f"{long} calls took as long as a stop, for {steps} stops")
        assert long, "no rank was stopped within a call"


def main():
    if sys.argv[1] == "--stop":
        stop_ranks(int(sys.argv[2]), [int(pid) for pid in sys.argv[3:]])
        return
    stops = sys.argv[1] == "--stops"
    seed, layout, steps = sys.argv[-3:]
    rank = int(os.environ["TUTTI_RANK"])
    own = np.random.default_rng([int(seed), rank, *layout.encode()])
    kernel = processor.limit_kernels(os.environ["TUTTI_LIBRARY"], own)
    # Threads of the library inherit the mode of the one that starts them.
    with processor.in_mode(str(own.choice(list(processor.MODES)))):
        group = tutti.join(timeout=60)
    job = Job(group, own, kernel)
    (stopped_calls if stops else random_calls)(job, int(seed), int(steps))
    job.report()
    group.leave()


if __name__ == "__main__":
    main()
