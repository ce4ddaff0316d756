"""Joins one job of one rank after the other until that fails, and then keeps them."""

import signal

import tutti

groups = []
try:
    while len(groups) < 40:
        groups.append(tutti.join(f"other{len(groups)}", rank=0, world_size=1, timeout=10))
except tutti.Error as error:
    print(f"after {len(groups)} jobs: {error}", flush=True)
signal.pause()
