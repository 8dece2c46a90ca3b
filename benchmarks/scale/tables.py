"""The growth of cost as tables (each figure beside the smallest scene of its kind, and its target) and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.figure_tables import machine, number, verdict
from benchmarks.scale.scenes import Measured
from journal.constants import MIB
from journal.engine.settings import JournalSettings

POOL: Final = JournalSettings().pool_bytes
RATE: Final = {("partitions", 1_000): 0.8, ("partitions", 10_000): 0.6}
"""The least share of the rate of the smallest scene: the project's own target."""

OPEN: Final = ("open transactions", 10_000)
BESIDE_POOL: Final = 120
"""MiB that a broker with that many open transactions may use beyond its pool's budget."""


class Verdict(NamedTuple):
    """A scene's target in words, and whether it is met; "" and None if there is none."""

    target: str = ""
    met: bool | None = None


def judged(one: Measured, base: Measured) -> Verdict:
    """Return the verdict on a scene beside the smallest of its kind."""
    name = (one.scene.kind, one.scene.number)
    if name in RATE:
        return Verdict(f"rate ≥ {RATE[name]:g} × one", one.rate >= RATE[name] * base.rate)
    if name == OPEN:
        bound = POOL // MIB + BESIDE_POOL
        return Verdict(f"≤ {bound} MiB", one.memory.peak <= bound * MIB)
    return Verdict()


def bases(measured: Sequence[Measured]) -> dict[str, Measured]:
    """Return the smallest scene of each kind."""
    found: dict[str, Measured] = {}
    for one in measured:
        found.setdefault(one.scene.kind, one)
    return found


def table(measured: Sequence[Measured]) -> Table:
    """Return one line for each scene."""
    found = Table(
        "number of things", title="how cost grows: medians, of memory the most", title_justify="left"
    )
    for column in (
        "made in s", "sends/s", "min – max", "of least", "p50 ms", "p99 ms", "MiB resident", "at most",
        "start s", "stop s", "restart s", "target", "met",
    ):  # fmt: skip
        found.add_column(column, justify="right")
    smallest = bases(measured)
    for one in measured:
        base = smallest[one.scene.kind]
        target, met = judged(one, base)
        found.add_row(
            f"{one.scene.number:,} {one.scene.kind}", number(one.setting_up), number(one.rate),
            f"{number(min(one.rates))} – {number(max(one.rates))}", f"{one.rate / base.rate:.2f}",
            number(one.p50), number(one.p99), number(one.memory.resident / MIB), number(one.memory.peak / MIB),
            f"{one.start:.2f}", f"{one.stop:.2f}", f"{one.restart:.2f}",
            target, verdict(met), style="bold red" if met is False else "",
        )  # fmt: skip
    return found


def notes(measured: Sequence[Measured]) -> Table:
    """Return the figures that only some scenes have."""
    found = Table("number of things", "figure", title="and beside that", title_justify="left")
    found.add_column("value", justify="right")
    for one in measured:
        for name, value in one.notes.items():
            found.add_row(f"{one.scene.number:,} {one.scene.kind}", name, number(value))
    return found


def growth(measured: Sequence[Measured]) -> Table:
    """Return the price of one more thing, from each number to the next; it is constant if growth is linear."""
    found = Table("from", "to", title="the shape of growth: what one more costs", title_justify="left")
    for column in ("making it ms", "KiB resident", "stop ms", "restart ms"):
        found.add_column(column, justify="right")
    for less, more in pairwise(measured):
        if less.scene.kind != more.scene.kind:
            continue
        step = more.scene.number - less.scene.number
        found.add_row(
            f"{less.scene.number:,}", f"{more.scene.number:,} {more.scene.kind}",
            f"{(more.setting_up - less.setting_up) / step * 1e3:.3g}",
            f"{(more.memory.resident - less.memory.resident) / step / 1024:.3g}",
            f"{(more.stop - less.stop) / step * 1e3:.3g}", f"{(more.restart - less.restart) / step * 1e3:.3g}",
        )  # fmt: skip
    return found


def document(measured: Sequence[Measured], settings: dict[str, Any]) -> str:
    """Return everything, for comparing runs."""
    smallest = bases(measured)
    return json.dumps(
        {
            "machine": machine(),
            "settings": settings,
            "scenes": [
                {
                    **one._asdict(),
                    "scene": one.scene._asdict(),
                    "memory": one.memory._asdict(),
                    **judged(one, smallest[one.scene.kind])._asdict(),
                }
                for one in measured
            ],
        },
        indent=2,
    )


def show(measured: Sequence[Measured], console: Console) -> None:
    console.print(table(measured))
    console.print(notes(measured))
    console.print(growth(measured))
