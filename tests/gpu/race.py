"""all_reduce of Tutti, NCCL and Gloo in the same processes, all ranks sharing the GPUs there are.

    torchrun --nproc-per-node 2 tests/gpu/race.py [--sizes 4K,64M] [--rounds 5]

In each round every contestant takes its turn, and the first is another one each time. A call is
timed from its start until the GPU has nothing left to do. Before that, each contestant's sums are
checked, element by element; one that cannot run on this machine is named and left out. Beside them:
`copy`, rank 0 alone copying a tensor on its GPU, and `launch`, an empty kernel. Prints for each
size and contestant the median and quartiles in microseconds, the bytes per second that the ranks'
inputs and outputs make, in percent of the copy's (which reads and writes its tensor once), and the
time in units of Tutti's. Exits with 1 if a sum was wrong or Tutti did not run.
"""

import argparse
import statistics
import sys
import time

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401: registers it.

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_WARM_UP = 3
_CALLS_MOST = 200
_BYTES_A_TURN = 1 << 30  # So that a turn takes some ten milliseconds.


def parse_bytes(text):
    unit = _UNITS.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


class Place:
    """Where this rank's tensors are."""

    def __init__(self, kind):
        self.device = torch.device("cpu")
        if kind == "cuda":
            self.device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
            torch.cuda.set_device(self.device)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def launch(self):
        if self.device.type == "cuda":
            torch.cuda._sleep(1)  # A kernel that ends at once.


def time_calls(place, call, calls):
    seconds = []
    place.synchronize()
    for _ in range(calls):
        began = time.perf_counter()
        call()
        place.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds


def fault_of(place, group, count):
    """What is wrong with the group's sums; None: nothing."""
    rank, size = dist.get_rank(), dist.get_world_size()
    index = torch.arange(count, device=place.device) % 1000
    x = (index + rank).float()
    try:
        dist.all_reduce(x, group=group)
        place.synchronize()
    except (RuntimeError, ValueError) as error:  # What backends raise.
        return "does not run: " + (str(error).strip().splitlines() or [type(error).__name__])[0]
    wrong = int((x != (size * index + size * (size - 1) // 2).float()).sum())
    return f"wrong: {wrong} of {count} elements" if wrong else None


def agree(fault):
    """The first rank's fault, on all ranks."""
    faults = [None] * dist.get_world_size()
    dist.all_gather_object(faults, fault)
    return next((f"rank {rank}: {found}" for rank, found in enumerate(faults) if found), None)


class Race:
    def __init__(self, place, names):
        self._place = place
        self._groups = {}
        self.out = {}  # Why contestants left.
        for name in names:
            try:
                self._groups[name] = dist.new_group(backend=name)
            except (RuntimeError, ValueError) as error:
                self.out[name] = f"cannot be made: {str(error).strip().splitlines()[0]}"
        for name in [name for name in names if agree(self.out.get(name))]:
            self.out.setdefault(name, "another rank cannot make it")
            self._groups.pop(name, None)

    def _check(self, count):
        for name, group in list(self._groups.items()):
            fault = agree(fault_of(self._place, group, count))
            if fault is not None:
                self.out[name] = fault
                del self._groups[name]

    def _turns(self, size):
        """By contestant, what its turn calls."""
        x = torch.zeros(size // 4, device=self._place.device)
        y = torch.empty_like(x)
        turns = {name: lambda group=group: dist.all_reduce(x, group=group)
                 for name, group in self._groups.items()}
        turns["copy"] = lambda: y.copy_(x)
        turns["launch"] = self._place.launch
        return turns

    def run(self, size, rounds):
        """By contestant, the seconds of each call."""
        self._check(size // 4)
        turns = self._turns(size)
        calls = max(3, min(_CALLS_MOST, _BYTES_A_TURN // size))
        seconds = {name: [] for name in turns}
        order = list(turns)
        for round_ in range(rounds):
            at = round_ % len(order)
            for name in order[at:] + order[:at]:
                dist.barrier()
                if name in self._groups or dist.get_rank() == 0:
                    time_calls(self._place, turns[name], _WARM_UP)
                    seconds[name] += time_calls(self._place, turns[name], calls)
        return seconds


def line_of(name, size, seconds, medians):
    low, middle, high = (1e6 * part for part in statistics.quantiles(seconds, n=4))
    line = f"{size:>12} {name:<7} {middle:>10.1f} {low:>10.1f} {high:>10.1f}"
    passes = {"copy": 1, "launch": 0}.get(name, dist.get_world_size())
    line += f" {2 * passes * size / middle / 1e3:>9.1f}"
    line += f" {100 * passes * medians['copy'] / medians[name]:>7.0f}%"
    return line + (f" {medians[name] / medians['tutti']:>8.2f}" if "tutti" in medians else "")


def report(size, seconds):
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        print(line_of(name, size, times, medians), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1K,16K,256K,1M,16M,64M,256M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contestants", default="tutti,nccl,gloo")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    place = Place(arguments.device)
    race = Race(place, arguments.contestants.split(","))
    is_first = dist.get_rank() == 0
    if is_first:
        print(f"all_reduce f32 sum, {dist.get_world_size()} ranks, {place.device.type}\n"
              f"{'bytes':>12} {'':<7} {'median us':>10} {'25 %':>10} {'75 %':>10} {'GB/s':>9} "
              f"{'of copy':>8} {'x tutti':>8}")
    for size in map(parse_bytes, arguments.sizes.split(",")):
        seconds = race.run(size, arguments.rounds)
        if is_first:
            report(size, seconds)
    for name, fault in race.out.items() if is_first else ():
        print(f"{name} is not in the race: {fault}", flush=True)
    dist.destroy_process_group()
    fails = "tutti" in race.out or any("wrong" in fault for fault in race.out.values())
    sys.exit(1 if fails else 0)


if __name__ == "__main__":
    main()
