"""What each rank of mesh_verified does."""

import gc
import os
import threading

import numpy as np

import tutti


def check_sound(group, **options):
    """Results of every call that is verified."""
    total = sum(range(1, group.world_size + 1))
    for count in (0, 1, 300_001):
        x = np.full(count, group.rank + 1.0)
        assert set(group.all_reduce(x.copy(), **options)) <= {total}
        assert set(group.all_reduce(x.copy(), blocking=False, **options).wait()) <= {total}
        shared = group.empty(count, "float64")
        shared[:] = x
        assert set(group.all_reduce(shared, **options)) <= {total}
        pieces = [x.copy(), x.astype("int32"), x[:count // 2].copy()]
        assert all(set(y) <= {total} for y in group.all_reduce_many(pieces, **options))
        strided = np.zeros((count, 2))
        group.all_reduce(x, out=strided[:, 0], **options)
        assert set(strided[:, 0]) <= {total}
        assert set(group.broadcast(x, root=2, **options)) <= {3}
        sizes = [count, 0, 1, 7]
        mine = np.full(sizes[group.rank], float(group.rank))
        expected = np.repeat(np.arange(4.0), sizes)
        assert (group.all_gather_v(mine, sizes, **options) == expected).all()
        assert len(group.all_gather(x, **options)) == 4 * count


def check_damaged(group):
    """Rank 2 writes to its result while the ranks compare."""
    x = np.ones(1000, "float32")
    stops = threading.Event()

    def write():
        while not stops.is_set():
            x[7] = -1

    writer = threading.Thread(target=write)
    if group.rank == 2:
        writer.start()
    def until_named(call):
        while True:
            try:
                call()
            except tutti.Error as error:
                assert error.code == "DATA_LOSS" and error.rank == 2, error
                assert "rank 2 (host " in str(error) and "rank 1" not in str(error), error
                return

    ones, counts = np.ones(1000, "float32"), np.ones(5, "int32")
    until_named(lambda: group.all_reduce(ones, out=x, verify=True))
    gc.disable()  # What failed keeps nothing in use.
    until_named(lambda: group.all_reduce_many([counts, ones], outs=[counts.copy(), x], verify=True,
                                              blocking=False))
    until_named(lambda: group.all_reduce_many([counts, ones], outs=[counts, x], verify=True,
                                              blocking=False))
    gc.enable()
    stops.set()
    if group.rank == 2:
        writer.join()
    group.all_reduce(counts)
    group.all_reduce(x)
    assert group.all_reduce(np.ones(1))[0] == group.world_size


def check_choices(group):
    """Ranks that choose differently fail, and go on."""
    for odd in (0, group.world_size - 1):
        try:
            group.all_reduce(np.ones(3), verify=group.rank == odd)
        except tutti.Error as error:
            assert error.code == "FAILED_PRECONDITION" and "verified" in str(error), error
        else:
            raise AssertionError("ranks that verify and ranks that do not agree")
        assert set(group.all_reduce(np.ones(3), verify=True)) == {group.world_size}


def check_bools(group):
    """True is any byte but 0, which ranks need not hold alike."""
    odd = np.array([2, 3, 0, 255], "uint8").view(bool)
    group.broadcast(odd if group.rank == 0 else np.zeros(4, bool), verify=True)
    group.all_gather(odd, verify=True)


def check_repeats(group):
    """Ranks that list an array differently often hold the same result."""
    x, y = np.ones(5), np.ones(3)
    group.all_reduce_many([x, x, y] if group.rank == 0 else [x, y], verify=True)
    assert set(x) == set(y) == {group.world_size}


def main():
    x = np.arange(12.0).reshape(3, 4)
    assert tutti.checksum(x.T) == tutti.checksum(x.T.copy()) != tutti.checksum(x)
    assert tutti.checksum(np.zeros(0)) == 0x2d06800538d394c2
    group = tutti.join(timeout=60)
    check_sound(group, verify=True)
    check_sound(group.subgroup([3, 1, 2, 0]), verify=True, timeout=50)
    check_damaged(group)
    check_choices(group)
    check_repeats(group)
    check_bools(group)
    rank, world_size = group.rank, group.world_size
    group.leave()
    os.environ["TUTTI_VERIFY"] = "1"
    with tutti.join(job="all", rank=rank, world_size=world_size, timeout=60) as verifying:
        check_sound(verifying)
        assert verifying.reduce_scatter(np.ones(4))[0] == 4
        parts = verifying.all_to_all_v(np.ones(4), [1] * 4, [1] * 4)
        assert parts.sum() == 4


if __name__ == "__main__":
    main()
