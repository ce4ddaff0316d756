"""The program that README.md shows: one rank of a job, which prints its result."""

import numpy, tutti

group = tutti.join()                        # Job, rank and world size: from TUTTI_* variables.
x = numpy.full(1000, group.rank, "float32")
group.all_reduce(x, op="mean")              # In place, on NumPy, torch or any array with DLPack.
print(f"rank {group.rank} of {group.world_size}: mean {x[0]}", flush=True)  # rank 0 of 4: mean 1.5
group.all_reduce(x, blocking=False, strategy="ring").wait()
group.broadcast(x, root=0)
buf = group.empty((1024, 1024), "float32")  # In memory shared with the daemon: never copied.
group.all_reduce_many([x, buf])             # A list of tensors as one operation.
pair = group.subgroup([0, 1]) if group.rank < 2 else None
group.leave()
