"""The figures as bar charts, one panel for each load: as SVG for the documentation, and as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peers.goals import LOADS, OWN, Load, Result, Results

OURS, THEIRS, UNFORCED = "#c2410c", "#64748b", "#cbd5e1"
COLUMNS = 3
PANEL = (5.2, 2.3)
"""Sizes in inches."""


def draw(results: Results, unforced: Sequence[str], folder: Path, name: str = "peers") -> list[Path]:
    """Write ``name.svg`` and ``name.png``; systems in ``unforced``, which promise less, are drawn pale."""
    shown = [load for load in LOADS if any(key == load.key for key, _ in results)]
    if not shown:
        return []
    rows = -(-len(shown) // COLUMNS)
    columns = min(COLUMNS, len(shown))
    # Equal figures give equal files: no date, no random names inside.
    with matplotlib.rc_context({"svg.hashsalt": "txbroker", "font.size": 9, "svg.fonttype": "path"}):
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
        for place, load in enumerate(shown):
            panel(figure.add_subplot(rows, columns, place + 1), load, results, unforced)
        figure.suptitle(
            "Forced to disk before acknowledged, unless pale; median of all repeats, least to greatest"
        )
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / f"{name}.svg", folder / f"{name}.png"]
        figure.savefig(written[0], metadata={"Date": None})
        figure.savefig(written[1], dpi=110, metadata={"Software": None})
    return written


def ordered(load: Load, results: Results) -> list[Result]:
    """Return the systems under one load, the best first."""
    found = [one for (key, _), one in results.items() if key == load.key]
    return sorted(found, key=lambda one: one.value, reverse=not load.by_latency)


def panel(axes: Axes, load: Load, results: Results, unforced: Sequence[str]) -> None:
    """Draw one load: a bar for each system, with its figure behind it."""
    found = ordered(load, results)
    values = [one.value for one in found]
    spread = [
        [one.value - min(one.samples) for one in found],
        [max(one.samples) - one.value for one in found],
    ]
    colours = [OURS if one.system == OWN else UNFORCED if one.system in unforced else THEIRS for one in found]
    axes.barh(range(len(found)), values, xerr=spread, color=colours, ecolor="#334155", capsize=2)
    axes.set_yticks(range(len(found)), [one.system for one in found])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(max(one.samples) for one in found))
    for place, one in enumerate(found):
        axes.text(max(one.samples), place, f"  {one.value:,.{2 if one.value < 100 else 0}f}", va="center")
    axes.set_title(f"{load.title} ({load.unit}{', less is better' if load.by_latency else ''})", fontsize=8)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
