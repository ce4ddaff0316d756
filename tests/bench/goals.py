"""The goals of the race, and whether they are met: ratios of medians."""

import dataclasses
import statistics
from typing import Callable

from contestants import CASES
from network import bits_per_s
from results import Results, size_text

KIB, MIB = 1 << 10, 1 << 20
ALLOCATED = ("ordinary", "tuned")  # "tuned" means the fastest of both.


@dataclasses.dataclass
class Goal:
    text: str
    cases: tuple[str, ...]
    least: int
    most: int
    # Of (results, case, collective, bytes): what was measured, or None where it does not apply.
    measure: Callable[[Results, str, str, int], float | None]
    goal: float
    at_most: bool = False  # The measure is to stay below the goal, not to reach it.
    limited: bool = False  # Over links of a limited rate.


def against(mine: str, kinds: tuple[str, ...]) -> Callable:
    """How many times as fast as the fastest of these kinds."""

    def measure(results: Results, case: str, collective: str, size: int) -> float | None:
        us = results.get(case, collective, size, mine)
        other = results.fastest(case, collective, size, kinds)
        theirs = results.get(case, collective, size, other)
        return theirs.us / us.us if us and theirs else None

    return measure


def time_us(results: Results, case: str, collective: str, size: int) -> float | None:
    figure = results.get(case, collective, size, "tutti")
    return figure.us if figure else None


def of_any_order(results: Results, case: str, collective: str, size: int) -> float | None:
    """The time of a reproducible reduction, in parts of the time in any order."""
    mine = results.get(case, collective, size, "tutti-reproducible")
    other = results.get(case, collective, size, "tutti")
    return mine.us / other.us if mine and other else None


def cpu(results: Results, case: str, collective: str, size: int) -> float | None:
    """CPU time, in parts of the fastest peer's."""
    mine = results.get(case, collective, size, "tutti")
    peer = results.fastest(case, collective, size, ("ordinary", "tuned", "huge"))
    theirs = results.get(case, collective, size, peer)
    return mine.cpu_ms / theirs.cpu_ms if mine and theirs and theirs.cpu_ms > 0 else None


def of_wire(results: Results, case: str, collective: str, size: int) -> float | None:
    """The part of 2(N-1)/N of the bytes at the goodput that raw TCP reaches in the same race."""
    figure = results.get(case, collective, size, "tutti")
    streams = [f.bus_gb_s for size in results.sizes(case, "stream")
               if (f := results.get(case, "stream", size, "ring"))]
    if collective != "all_reduce" or figure is None or not streams:
        return None
    return figure.bus_gb_s / max(streams)


ONE_HOST = ("shm2", "shm4")
HOSTS = ("tcp2", "tcp4")
HOSTS_OF_SEVERAL = ("tcp2x2", "tcp2x4")
HOSTS_WITH_CORES = ("tcp2",) + HOSTS_OF_SEVERAL  # One each, on a machine of two.
SEVERAL = HOSTS + HOSTS_OF_SEVERAL
ANY = 1 << 60
GOALS = [
    Goal("3x the fastest peer at its ordinary settings", ONE_HOST, 16 * MIB, ANY,
         against("tutti", ("ordinary",)), 3),
    Goal("2x the fastest tuned peer", ONE_HOST, 16 * MIB, ANY, against("tutti", ALLOCATED), 2),
    Goal("0.8 of the fused-sum floor", ONE_HOST, 16 * MIB, ANY, against("tutti", ("floor",)), 0.8),
    Goal("ordinary buffers: 1.5x the fastest tuned peer", ONE_HOST, 16 * MIB, ANY,
         against("tutti-staged", ALLOCATED), 1.5),
    Goal("1.5x the fastest tuned peer", ONE_HOST, 64 * KIB, 4 * MIB, against("tutti", ALLOCATED),
         1.5),
    Goal("p50 of at most 0.4 us", ("shm2",), 0, 4, time_us, 0.4, at_most=True),
    Goal("p50 of at most 2 us", ("shm2",), 0, 4 * KIB, time_us, 2, at_most=True),
    Goal("faster than the fastest peer", ("shm4",), 0, 4 * KIB, against("tutti", ALLOCATED), 1),
    Goal("1.5x the fastest tuned peer", HOSTS, MIB, ANY, against("tutti", ALLOCATED), 1.5),
    Goal("1.3x the fastest tuned peer", ("tcp2",), MIB, MIB, against("tutti", ALLOCATED), 1.3),
    Goal("as fast as the bare ring", HOSTS, MIB, ANY, against("tutti", ("ring",)), 1),
    Goal("0.95 of the wire's bound", HOSTS, 16 * MIB, ANY, of_wire, 0.95, limited=True),
    Goal("2x the fastest tuned peer", HOSTS_OF_SEVERAL, MIB, ANY,
         against("tutti", ALLOCATED), 2),
    Goal("ordinary buffers: 1.3x the fastest tuned peer", SEVERAL, MIB, ANY,
         against("tutti-staged", ALLOCATED), 1.3),
    Goal("same bits: 1.2 of the time in any order", SEVERAL, 0, 4 * KIB, of_any_order, 1.2,
         at_most=True),
    Goal("same bits: 1.15 of the time in any order", SEVERAL, 64 * KIB, ANY, of_any_order, 1.15,
         at_most=True),
    Goal("same bits: 1.5 of the time in any order", SEVERAL, 64 * KIB, ANY, of_any_order, 1.5,
         at_most=True, limited=True),
    Goal("same bits: 1.05 of the time in any order", ONE_HOST, 0, ANY, of_any_order, 1.05,
         at_most=True),
    Goal("CPU at or below the fastest peer's", tuple(CASES), 64 * KIB, ANY, cpu, 1, at_most=True),
]


def stream_row(streams: list[dict[str, float]]) -> list[str]:
    """The gRPC link in parts of a bare stream, the median of the rounds."""
    part = statistics.median(round_["link"] / round_["bare"] for round_ in streams)
    speeds = {key: statistics.median(round_[key] for round_ in streams) / 1e9
              for key in ("link", "bare")}
    where = f"{speeds['link']:.2f} of {speeds['bare']:.2f} GB/s"
    return ["gRPC link: 0.8 of a bare gRPC stream", where, "1M", f"{part:.2f}",
            "met" if part >= 0.8 else "MISSED"]


def tls_rows(results: Results, aead: list[float]) -> list[list[str]]:
    """The time without TLS, and that of encrypting and decrypting what a host's core sends and
    receives, in parts of the time with TLS."""
    def measure(results: Results, case: str, collective: str, size: int) -> float | None:
        plain = results.get(case, collective, size, "tutti")
        secured = results.get(case, collective, size, "tutti-tls")
        if plain is None or secured is None:
            return None
        hosts = CASES[case].hosts
        coded = 2 * 2 * (hosts - 1) / hosts * size
        return (plain.us + coded / statistics.median(aead) * 1e6) / secured.us

    goal = Goal("TLS: 0.8 of the speed without it and OpenSSL's AEAD", HOSTS_WITH_CORES, MIB, ANY,
                measure, 0.8)
    return [row for case, collective in results.boards()
            if case in goal.cases and collective == "all_reduce"
            for row in rows_of(goal, results, case, collective)]


def goal_rows(results: Results, rate: str, streams: list[dict[str, float]],
              aead: list[float]) -> list[list[str]]:
    limited = bits_per_s(rate) > 0
    rows = [stream_row(streams)] if streams else []
    rows += tls_rows(results, aead) if aead else []
    for goal in GOALS:
        for case, collective in results.boards():
            if case not in goal.cases or (limited and CASES[case].networked) != goal.limited:
                continue
            rows += rows_of(goal, results, case, collective)
    return rows


def rows_of(goal: Goal, results: Results, case: str, collective: str) -> list[list[str]]:
    rows = []
    for size in results.sizes(case, collective):
        if not goal.least <= size <= goal.most:
            continue
        measured = goal.measure(results, case, collective, size)
        if measured is None:
            continue
        met = measured <= goal.goal if goal.at_most else measured >= goal.goal
        rows.append([goal.text, f"{case} {collective}", size_text(size), f"{measured:.2f}",
                     "met" if met else "MISSED"])
    return rows
