"""Restarts as tables (each scene beside its limit and target, and how they grow) and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.figure_tables import machine, number, verdict
from benchmarks.recovery.restarts import Measured
from benchmarks.recovery.scenes import TITLES, Scene
from journal.constants import MIB

TARGETS: Final = (
    (Scene(stopped=True), 0.7),
    *((Scene(load, 512), 4.0) for load in TITLES),
    (Scene("singles", 64, partitions=10_000), 5.0),
    (Scene(prepared=100_000), 5.0),
)
"""The most seconds of a start: the project's own target. It is only shown: missing it fails nothing."""

GROWING: Final = {"mebibytes": "MiB", "partitions": "partition", "prepared": "transaction"}
"""The fields by which scenes of a kind grow, with the name of one unit."""


def target(scene: Scene) -> float | None:
    return dict(TARGETS).get(scene)


def table(measured: Sequence[Measured]) -> Table:
    """Return one line for each scene: seconds to the first accepted request, those of recovery, and those of a plain
    loop.
    """
    found = Table(
        "restart after", title="seconds from exec to the first accepted request", title_justify="left"
    )
    for column in (
        "median", "min – max", "recovery", "records", "MB", "records/s", "MB/s", "read + CRC MB/s", "MiB resident",
        "target", "met",
    ):  # fmt: skip
        found.add_column(column, justify="right")
    for one in measured:
        seconds = sorted(restart.seconds for restart in one.restarts)
        size, recovery = one.median("bytes"), one.median("recovery")
        checked, bound = one.median("checked"), target(one.scene)
        met = None if bound is None else one.median("seconds") <= bound
        found.add_row(
            one.scene.title, f"{one.median('seconds'):.2f}", f"{seconds[0]:.2f} – {seconds[-1]:.2f}",
            f"{recovery:.2f}", number(one.median("records")), number(size / 1e6),
            number(one.median("records") / recovery), number(size / recovery / 1e6),
            number(size / checked / 1e6 if checked else None), number(one.median("memory")),
            "" if bound is None else f"≤ {bound:g}", verdict(met),
            style="bold red" if met is False else "",
        )  # fmt: skip
    return found


def growth(measured: Sequence[Measured]) -> Table:
    """Return the price of one more unit, from each scene to the next larger one of its kind; it is constant if growth
    is linear.
    """
    found = Table("what grows", title="the shape of growth", title_justify="left")
    for column in ("from", "to", "seconds", "each", "µs a record"):
        found.add_column(column, justify="right")
    for field, unit in GROWING.items():
        for less, more in _neighbours(measured, field):
            step = getattr(more.scene, field) - getattr(less.scene, field)
            seconds = more.median("seconds") - less.median("seconds")
            records = more.median("records") - less.median("records")
            name = TITLES[more.scene.load] if field == "mebibytes" else field
            found.add_row(
                name + (", clean stop" if more.scene.stopped else ""),
                f"{getattr(less.scene, field):,}", f"{getattr(more.scene, field):,}", f"{seconds:+.2f}",
                f"{seconds / step * 1e3:.3g} ms a {unit}",
                f"{seconds / records * 1e6:.3g}" if records > 0 else "",
            )  # fmt: skip
    return found


def _neighbours(measured: Sequence[Measured], field: str) -> list[tuple[Measured, Measured]]:
    """Return pairs of scenes that differ in that field alone, and are neighbours in it."""
    found = []
    for more in measured:
        smaller = [
            less
            for less in measured
            if _given(less.scene, field, more.scene) == more.scene
            and getattr(less.scene, field) < getattr(more.scene, field)
        ]
        if smaller:
            found.append((max(smaller, key=lambda less: int(getattr(less.scene, field))), more))
    return found


def _given(scene: Scene, field: str, other: Scene) -> Scene:
    """Return the scene with the other's value in that field, and with its load if it has none of its own."""
    same = {field: getattr(other, field)}
    return scene._replace(**same) if scene.mebibytes else scene._replace(load=other.load, **same)


def document(measured: Sequence[Measured], settings: dict[str, Any]) -> str:
    """Return everything, for comparing runs."""
    return json.dumps(
        {
            "machine": machine(),
            "settings": settings,
            "scenes": [
                {
                    "scene": one.scene._asdict(), "title": one.scene.title, "seconds": one.median("seconds"),
                    "records_per_second": one.median("records") / one.median("recovery"),
                    "mebibytes_per_second": one.median("bytes") / MIB / one.median("recovery"),
                    "target": target(one.scene), "restarts": [restart._asdict() for restart in one.restarts],
                }
                for one in measured
            ],
        },
        indent=2,
    )  # fmt: skip


def show(measured: Sequence[Measured], console: Console) -> None:
    console.print(table(measured))
    console.print(growth(measured))
