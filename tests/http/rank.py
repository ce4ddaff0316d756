"""One rank of a job. Does what the lines of its stdin say, and answers each with a line:

    all_reduce COUNT    of COUNT floats
    barrier
    die                 at once, without a word to the daemon
"""

import os
import signal
import sys

import numpy
import tutti

group = tutti.join()
print("joined", flush=True)
for line in sys.stdin:
    verb, *arguments = line.split()
    if verb == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        if verb == "barrier":
            group.barrier()
        else:
            group.all_reduce(numpy.ones(int(arguments[0]), "float32"))
        print("done", flush=True)
    except tutti.Error as error:
        print(f"failed: {error}", flush=True)
group.leave()
