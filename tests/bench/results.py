"""What the race found: medians over the rounds, tables of them, ratios."""

import dataclasses
import statistics
from typing import Iterable

from contestants import CASES, Contestant
from rounds import Sample

BUS_FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
}


@dataclasses.dataclass
class Figure:
    """A contestant's at one size of one case: medians over the rounds."""

    us: float
    us_min: float
    us_max: float
    cpu_ms: float
    bus_gb_s: float


Key = tuple[str, str, int, str]  # Case, collective, bytes, contestant.


def size_text(size: int) -> str:
    for unit in ("", "K", "M", "G"):
        if size < 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def time_text(us: float) -> str:
    if us < 10:
        return f"{us:.2f}"
    if us < 1000:
        return f"{us:.0f}" if us >= 100 else f"{us:.1f}"
    return f"{us / 1000:.2f}ms" if us < 100_000 else f"{us / 1000:.0f}ms"


class Results:
    def __init__(self, samples: Iterable[Sample], contestants: list[Contestant]):
        self.kinds = {contestant.name: contestant.kind for contestant in contestants}
        self.figures: dict[Key, Figure] = {}
        grouped: dict[Key, list[Sample]] = {}
        for s in samples:
            grouped.setdefault((s.case, s.collective, s.bytes, s.contestant), []).append(s)
        for key, group in grouped.items():
            case, collective, size, _ = key
            times = [s.p50_us for s in group]
            us = statistics.median(times)
            factor = BUS_FACTORS.get(collective, lambda n: 1)(CASES[case].ranks)
            self.figures[key] = Figure(us, min(times), max(times),
                                       statistics.median(s.cpu_ms for s in group),
                                       size * factor / us / 1e3)

    def get(self, case: str, collective: str, size: int, contestant: str) -> Figure | None:
        return self.figures.get((case, collective, size, contestant))

    def boards(self) -> list[tuple[str, str]]:
        """Every (case, collective) there is, in order."""
        return list(dict.fromkeys(key[:2] for key in self.figures))

    def sizes(self, case: str, collective: str) -> list[int]:
        return sorted({key[2] for key in self.figures if key[:2] == (case, collective)})

    def names(self, case: str, collective: str) -> list[str]:
        present = {key[3] for key in self.figures if key[:2] == (case, collective)}
        return [name for name in self.kinds if name in present]

    def fastest(self, case: str, collective: str, size: int, kinds: Iterable[str]) -> str:
        """The name of the fastest contestant of these kinds, or ""."""
        found = {name: figure.us for name in self.kinds if self.kinds[name] in kinds
                 if (figure := self.get(case, collective, size, name))}
        return min(found, key=found.__getitem__) if found else ""


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown, padded to be read as it is."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def board_tables(results: Results, case: str, collective: str) -> str:
    sizes = results.sizes(case, collective)
    head = [size_text(size) for size in sizes]

    def rows(cell) -> list[list[str]]:
        return [[name] + [cell(f) if (f := results.get(case, collective, size, name)) else "-"
                          for size in sizes]
                for name in results.names(case, collective)]

    times = rows(lambda f: f"{time_text(f.us)} [{time_text(f.us_min)}-{time_text(f.us_max)}]")
    bus = rows(lambda f: f"{f.bus_gb_s:.2f} ({f.cpu_ms:.3g})")
    parts = [
        f"**{collective}, {case}: time in us (ms where marked), median over rounds [min-max]**",
        table(["contestant", *head], times),
        f"{collective}, {case}: bus bandwidth in GB/s (CPU ms per operation, all processes)",
        table(["contestant", *head], bus),
    ]
    ratios = ratio_rows(results, case, collective, sizes)
    if ratios:
        parts.append(table(["how many times as fast", *head], ratios))
    return "\n\n".join(parts)


def ratio_rows(results: Results, case: str, collective: str, sizes: list[int]) -> list[list[str]]:
    rows = []
    for mine in ("tutti", "tutti-staged"):
        for kind in ("ordinary", "tuned", "huge", "ring", "floor"):
            row = [f"{mine} : fastest {kind}"]
            for size in sizes:
                us = results.get(case, collective, size, mine)
                other = results.fastest(case, collective, size, [kind])
                theirs = results.get(case, collective, size, other)
                row.append(f"{theirs.us / us.us:.2f} ({other})" if us and theirs else "-")
            if any(cell != "-" for cell in row[1:]):
                rows.append(row)
    return rows
