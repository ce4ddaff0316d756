"""Time and bus bandwidth over size, as PNG."""

import pathlib

from results import Results, size_text

STYLES = {"tutti": ("-", 2.2), "ordinary": (":", 1.2), "tuned": ("--", 1.2), "huge": ("-.", 1.2),
          "ring": ("-", 1.2), "floor": (":", 1.6)}


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(results: Results, folder: pathlib.Path) -> list[pathlib.Path]:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = []
    for case, collective in results.boards():
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 6))
        for index, name in enumerate(results.names(case, collective)):
            draw_one(results, case, collective, name, left, right, f"C{index % 10}")
        finish(left, "time (us)", results.sizes(case, collective))
        finish(right, "bus bandwidth (GB/s)", results.sizes(case, collective))
        right.legend(fontsize="small", loc="upper left")
        figure.suptitle(f"{collective}, {case}: median over rounds, bars from least to most")
        figure.tight_layout()
        paths.append(folder / f"{case}-{collective}.png")
        figure.savefig(paths[-1], dpi=110)
        pyplot.close(figure)
    return paths


def draw_one(results: Results, case: str, collective: str, name: str, left, right, color) -> None:
    found = [(size, figure) for size in results.sizes(case, collective)
             if (figure := results.get(case, collective, size, name))]
    sizes = [size for size, _ in found]
    times = [figure.us for _, figure in found]
    line, width = STYLES[results.kinds[name]]
    spread = [[figure.us - figure.us_min for _, figure in found],
              [figure.us_max - figure.us for _, figure in found]]
    left.errorbar(sizes, times, yerr=spread, linestyle=line, linewidth=width, color=color,
                  marker=".", capsize=2, elinewidth=0.6)
    right.plot(sizes, [figure.bus_gb_s for _, figure in found], line, linewidth=width, color=color,
               marker=".", label=name)


def finish(axes, label: str, sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=60)
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
