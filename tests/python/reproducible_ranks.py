"""What each rank of mesh_reproducible does: reproducible reductions in every way that calls have,
each compared with tutti.reference() of all ranks' values. Rank 0 prints a digest of its results."""

import hashlib
import os
import time

import numpy as np

import tutti

FLOATS = ("float16", "bf16", "float32", "float64")
LATE_SECONDS = 0.2  # So late that hosts tell each other who is.
NUMBERS = ("sum", "min", "max", "prod")
OPS = {"int32": (*NUMBERS, "band", "bxor"), "bool": (*NUMBERS, "bor", "bxor")}


def wild(rank, count, dtype, seed):
    """Values that no two orders sum alike, with zeros, subnormals, infinities and NaNs."""
    random = np.random.default_rng([rank, count, seed])
    if dtype in OPS:
        return random.integers(0, 2 if dtype == "bool" else 1 << 31, count).astype(dtype)
    if dtype == "bf16":
        return (wild(rank, count, "float32", seed).view("uint32") >> 16).astype("uint16")
    with np.errstate(over="ignore"):
        x = (random.normal(size=count) * 2.0 ** random.integers(-12, 12, count)).astype(dtype)
    special = np.array([0.0, -0.0, 1e-7, -1e-40, np.inf, -np.inf, np.nan, -np.nan], dtype)
    chosen = random.integers(0, 100, count)
    x[chosen < len(special)] = special[chosen[chosen < len(special)]]
    return x


def own_dtype(dtype):
    """The dtype of NumPy, and the argument of calls that says bf16."""
    return ("uint16", {"dtype": "bf16"}) if dtype == "bf16" else (dtype, {})


class Checker:
    def __init__(self, group):
        self.group = group
        self.digest = hashlib.sha256()
        self.seed = 0

    def values(self, count, dtype):
        """All ranks' arrays, by rank."""
        self.seed += 1
        return [wild(rank, count, dtype, self.seed) for rank in range(self.group.world_size)]

    def expect(self, result, expected):
        assert result.tobytes() == expected.tobytes(), (result, expected, self.seed)
        self.digest.update(result.tobytes())

    def reductions(self, count, dtype, op, **options):
        xs = self.values(count * self.group.world_size, dtype)
        known = own_dtype(dtype)[1]
        options |= known
        expected = tutti.reference(xs, op, **known)
        rank, mine = self.group.rank, xs[self.group.rank]
        self.expect(self.group.all_reduce(mine.copy(), op, **options), expected)
        root = count % self.group.world_size
        reduced = self.group.reduce(mine.copy(), root, op, **options)
        if rank == root:
            self.expect(reduced, expected)
        part = self.group.reduce_scatter(mine, op, **options)
        self.expect(part, expected[rank * count:(rank + 1) * count])
        self.expect(self.group.all_gather(part), expected)

    def ways(self, count, dtype):
        """The same values by other calls: shared memory, without blocking, lists, counts."""
        xs = self.values(count, dtype)
        stored, known = own_dtype(dtype)
        expected = tutti.reference(xs, **known)
        known["reproducible"] = True
        mine = xs[self.group.rank]
        shared = self.group.empty(count + 3, stored)[3:]
        shared[:] = mine
        if self.group.rank == self.seed % self.group.world_size:
            time.sleep(LATE_SECONDS)
        self.expect(self.group.all_reduce(shared, **known), expected)
        work = self.group.all_reduce(mine.copy(), blocking=False, **known)
        self.expect(work.wait(), expected)
        cuts = sorted([0, 1, 1, count // 3, count])
        pieces = [mine[a:b].copy() for a, b in zip(cuts, cuts[1:])]
        self.group.all_reduce_many(pieces, **known)
        self.expect(np.concatenate(pieces), expected)
        sizes = [0] * self.group.world_size
        sizes[-1], sizes[0] = count // 3, count - count // 3
        part = self.group.reduce_scatter_v(mine, sizes, **known)
        begin = sum(sizes[:self.group.rank])
        self.expect(part, expected[begin:begin + len(part)])

    def premultiplied(self, count, dtype):
        xs = self.values(count, dtype)
        known = own_dtype(dtype)[1]
        factors = [1 / (3 + rank) for rank in range(self.group.world_size)]
        expected = tutti.reference(xs, "premul_sum", factors=factors, **known)
        result = self.group.all_reduce(xs[self.group.rank], "premul_sum", reproducible=True,
                                       factor=factors[self.group.rank], **known)
        self.expect(result, expected)


def check_all(group):
    checker = Checker(group)
    for strategy in ("ring", "tree:2", "centralized", None):
        for dtype in (*FLOATS, *OPS):
            for op in OPS.get(dtype, (*NUMBERS, "mean")):
                checker.reductions(37, dtype, op, strategy=strategy, reproducible=True)
    for count in (1, 1000, 300_001):
        for dtype in FLOATS:
            checker.ways(count, dtype)
            checker.premultiplied(count, dtype)
    return checker.digest


def check_choices(rank, world_size):
    """The call's choice counts before the join's, and that before the environment's. Ranks that
    choose differently fail, and go on."""
    os.environ["TUTTI_REPRODUCIBLE"] = "1"
    with tutti.join(job="choices", rank=rank, world_size=world_size, timeout=60,
                    reproducible=False if rank == 0 else None) as group:
        for of_first, of_others, agree in ((True, None, True), (None, False, True),
                                           (None, None, False), (True, False, False),
                                           (True, True, True)):
            choice = of_first if rank == 0 else of_others
            try:
                group.all_reduce(np.ones(3), reproducible=choice)
            except tutti.Error as error:
                assert error.code == "FAILED_PRECONDITION", error
                assert "reproducible" in str(error) and not agree, error
            else:
                assert agree, (of_first, of_others)
            group.broadcast(np.ones(3))


def main():
    group = tutti.join(timeout=60)
    digest = check_all(group)
    if group.world_size == 4:
        mixed = group.subgroup([2, 0, 3, 1])  # On two hosts, their ranks do not follow each other.
        check_all(mixed)
    group.leave()
    check_choices(group.rank, group.world_size)
    del os.environ["TUTTI_REPRODUCIBLE"]
    with tutti.join(job="again", rank=group.rank, world_size=group.world_size, timeout=60,
                    reproducible=True) as again:
        xs = [wild(rank, 999, "float32", 5) for rank in range(again.world_size)]
        Checker(again).expect(again.all_reduce(xs[again.rank].copy()), tutti.reference(xs))
    if group.rank == 0:
        print(digest.hexdigest())


if __name__ == "__main__":
    main()
