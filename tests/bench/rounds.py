"""Runs the contestants, round by round, and collects what their ranks wrote."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from contestants import Case, Contestant, Field, Launch
from network import Network
from secured import aead_bytes_per_s


GRACE_S = 5
# The link that Tutti has over gRPC, and a bare stream, in one program (micro).
STREAMS = {"link": "link_one_way/grpc/KiB:1024", "bare": "grpc_stream/KiB:1024"}


class Wrong(Exception):
    """A contestant computed a wrong value, or Tutti itself failed: the race is void."""


@dataclasses.dataclass
class Plan:
    cases: list[Case]
    contestants: list[Contestant]
    collectives: list[str]
    sizes: list[int]
    rounds: int
    seconds: float
    timeout_s: float
    rate: str
    streams: bool  # Whether the gRPC link runs against a bare stream, too.
    aead: bool  # Whether TLS runs against OpenSSL's ciphers alone, too.


@dataclasses.dataclass
class Sample:
    """One contestant in one round, at one size."""

    case: str
    collective: str
    bytes: int
    contestant: str
    round: int
    p50_us: float
    cpu_ms: float  # Of all ranks and their helpers, an operation.
    operations: int


def probe(bin_folder: pathlib.Path) -> dict[str, float]:
    """The state of the machine: what two threads do in the time of one, and the load."""
    text = subprocess.check_output([str(bin_folder / "race_probe")], text=True)
    return {"two_threads": float(text), "load": os.getloadavg()[0]}


def measure_streams(micro: list[str]) -> dict[str, float]:
    """Bytes per second of each of STREAMS."""
    names = "|".join(STREAMS.values())
    text = subprocess.check_output(
        [*micro, f"--benchmark_filter={names}", "--benchmark_format=json",
         "--benchmark_min_time=0.3", "--benchmark_enable_random_interleaving=true",
         "--benchmark_repetitions=3"], text=True, stderr=subprocess.DEVNULL)
    medians = {row["run_name"]: row["bytes_per_second"]
               for row in json.loads(text)["benchmarks"] if row.get("aggregate_name") == "median"}
    return {key: next(speed for name, speed in medians.items() if name.startswith(prefix))
            for key, prefix in STREAMS.items()}


def wait_for(process: subprocess.Popen, timeout_s: float) -> int | None:
    try:
        return process.wait(max(timeout_s, 0))
    except subprocess.TimeoutExpired:
        return None


def end(process: subprocess.Popen) -> None:
    """Asks, then ends what is left of it; it is a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        wait_for(process, GRACE_S)


def run_all(launches: list[Launch], log: pathlib.Path, timeout_s: float) -> str:
    """"" where all processes end well, else why not."""
    deadline = time.monotonic() + timeout_s
    processes: list[subprocess.Popen] = []
    with log.open("wb") as file:
        try:
            for launch in launches:
                processes.append(subprocess.Popen(
                    launch.argv, env=os.environ | launch.env, stdin=subprocess.DEVNULL,
                    stdout=file, stderr=subprocess.STDOUT, start_new_session=True))
            codes = [wait_for(process, deadline - time.monotonic()) for process in processes]
        finally:
            for process in processes:
                end(process)
    if not any(code != 0 for code in codes):
        return ""
    tail = log.read_text(errors="replace").strip().splitlines()[-5:]
    reason = f"no end after {timeout_s:.0f} s" if None in codes else f"exit codes {codes}"
    return reason + ": " + " | ".join(tail)


def read_ranks(folder: pathlib.Path, ranks: int) -> list[list[dict]]:
    """The lines of each rank; as many as all have."""
    lines = []
    for rank in range(ranks):
        path = folder / f"rank-{rank}.jsonl"
        text = path.read_text() if path.exists() else ""
        lines.append([json.loads(line) for line in text.splitlines() if line.endswith("}")])
    return [list(row) for row in zip(*lines)]


def samples_of(rows: list[list[dict]], case: Case, name: str, round_: int) -> list[Sample]:
    out = []
    for row in rows:
        wrong = sum(rank["wrong"] for rank in row)
        first = row[0]
        if wrong:
            raise Wrong(f"{name}, {case.name}: {wrong} wrong values in {first['collective']} of "
                        f"{first['bytes']} bytes")
        slowest = [max(times) for times in zip(*(rank["ns"] for rank in row))]
        cpu_s = sum(rank["cpu_s"] + rank["helpers_cpu_s"] for rank in row)
        out.append(Sample(case.name, first["collective"], first["bytes"], name, round_,
                          statistics.median(slowest) / 1e3, cpu_s / len(slowest) * 1e3,
                          len(slowest)))
    return out


class Race:
    def __init__(self, plan: Plan, bin_folder: pathlib.Path, scratch: pathlib.Path):
        self.plan = plan
        self.samples: list[Sample] = []
        self.probes: list[dict[str, float]] = []
        self.streams: list[dict[str, float]] = []  # Of measure_streams(), a round.
        self.aead: list[float] = []  # Of aead_bytes_per_s(), a round.
        self.failures: dict[str, str] = {}  # By case and contestant.
        self._bin = bin_folder
        self._scratch = scratch

    def run(self, network: Network) -> None:
        for round_ in range(self.plan.rounds):
            self.probes.append(probe(self._bin))
            state = self.probes[-1]
            print(f"round {round_ + 1} of {self.plan.rounds}: two threads do "
                  f"{state['two_threads']:.2f}x one's work, load {state['load']:.1f}", flush=True)
            for case in self.plan.cases:
                start = time.monotonic()
                self._run_case(case, round_, network)
                print(f"  {case.name}: {time.monotonic() - start:.0f} s", flush=True)
            if self.plan.streams:
                micro = network.inside(0, [str(self._bin / "micro")])
                self.streams.append(measure_streams(micro))
            if self.plan.aead:
                self.aead.append(aead_bytes_per_s())

    def _run_case(self, case: Case, round_: int, network: Network) -> None:
        entered = [c for c in self.plan.contestants if c.cases(case)]
        turn = round_ % max(len(entered), 1)
        for contestant in entered[turn:] + entered[:turn]:
            if f"{case.name} {contestant.name}" not in self.failures:
                self._run_one(case, contestant, round_, network)

    def _run_one(self, case: Case, contestant: Contestant, round_: int, network: Network) -> None:
        asked = [c for c in self.plan.collectives if c in contestant.collectives]
        if not asked:
            return
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._scratch))
        arguments = ["--collectives", ",".join(asked), "--out", str(folder),
                     "--sizes", ",".join(map(str, self.plan.sizes)),
                     "--seconds", str(self.plan.seconds)]
        field = Field(case, self._bin, folder, network, arguments)
        failure = run_all(contestant.launch(field), folder / "log", self.plan.timeout_s)
        self.samples += samples_of(read_ranks(folder, case.ranks), case, contestant.name, round_)
        shutil.rmtree(folder)
        if failure and contestant.kind == "tutti":
            raise Wrong(f"{contestant.name}, {case.name}: {failure}")
        if failure:
            self.failures[f"{case.name} {contestant.name}"] = failure
            print(f"  {contestant.name} is out of {case.name}: {failure}", file=sys.stderr)
