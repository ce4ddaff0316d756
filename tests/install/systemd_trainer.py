"""One rank of a job under systemd_scenario.py: reduces and checks until rank 0 is asked to stop.

    systemd_trainer.py DIRECTORY     writes what it has checked to DIRECTORY/<job>-<rank>
"""

import os
import pathlib
import sys
import time

import numpy
import tutti

directory = pathlib.Path(sys.argv[1])
with tutti.join() as group:
    progress = directory / f"{os.environ['TUTTI_JOB']}-{group.rank}"
    step = 0
    while True:
        ends = group.rank == 0 and (directory / "stop").exists()
        x = numpy.full(10_000, group.rank + 1 + step, "float64")
        x[0] = ends
        group.all_reduce(x)
        expected = sum(rank + 1 + step for rank in range(group.world_size))
        assert (x[1:] == expected).all(), f"step {step}: {x[1]}, not {expected}"
        step += 1
        progress.with_suffix(".new").write_text(str(step))
        progress.with_suffix(".new").rename(progress)
        if x[0]:
            break
        time.sleep(0.02)  # A step of a trainer takes a while.
