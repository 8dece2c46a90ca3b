"""The figures as a table, and as JSON for comparing runs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

import journal
from benchmarks.figures import Result, Samples
from benchmarks.runs import Usage


def number(value: float | None) -> str:
    """Return a number with as many digits as are significant."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(is_met: bool | None) -> str:
    return {None: "", True: "yes", False: "NO"}[is_met]


def table(results: Sequence[Result]) -> Table:
    """Return one line for each figure: median, range, limit, ratio, target."""
    found = Table("figure", title="medians of all repeats", title_justify="left")
    for column in ("median", "min – max", "unit", "limit", "ratio"):
        found.add_column(column, justify="left" if column == "unit" else "right")
    for column in ("beside", "target", "met"):
        found.add_column(column)
    for one in results:
        figure = one.figure
        found.add_row(
            figure.name, number(one.value), f"{number(one.least)} – {number(one.most)}", figure.unit,
            number(one.limit), "" if one.ratio is None else f"{one.ratio:.2f}", figure.limit,
            figure.target.text if figure.target else "", verdict(one.is_met),
            style="" if one.is_met is not False else "bold red",
        )  # fmt: skip
    return found


def usage_table(usages: Mapping[str, Sequence[Usage]]) -> Table:
    """Return how many processors each side kept busy, which shows the bottleneck."""
    found = Table("load", title="processors busy while measuring", title_justify="left")
    for column in ("broker", "generator", "broker µs each"):
        found.add_column(column, justify="right")
    for name, used in usages.items():
        found.add_row(
            name,
            f"{median(one.broker for one in used):.2f}",
            f"{median(one.generator for one in used):.2f}",
            number(median(one.cost for one in used)),
        )
    return found


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    return {
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "build": journal.BUILD.value,
    }


def document(
    results: Sequence[Result],
    samples: Samples,
    usages: Mapping[str, Sequence[Usage]],
    settings: dict[str, Any],
) -> str:
    """Return everything as JSON, with every sample."""
    return json.dumps(
        {
            "machine": machine(),
            "settings": settings,
            "figures": [
                {
                    "name": one.figure.name, "unit": one.figure.unit, "median": one.value, "min": one.least,
                    "max": one.most, "beside": one.figure.limit, "limit": one.limit, "ratio": one.ratio,
                    "target": one.figure.target.text if one.figure.target else None, "met": one.is_met,
                    "samples": samples[one.figure.name],
                }
                for one in results
            ],
            "processors_busy": {name: [one._asdict() for one in used] for name, used in usages.items()},
        },
        indent=2,
    )  # fmt: skip


def show(results: Sequence[Result], usages: Mapping[str, Sequence[Usage]], console: Console) -> None:
    console.print(table(results))
    if usages:
        console.print(usage_table(usages))
