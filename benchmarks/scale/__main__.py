"""``make bench-scale``, or ``python -m benchmarks.scale``, measures how cost grows with the number of things."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.harness.process_memory import allow_descriptors
from benchmarks.scale import tables
from benchmarks.scale.scenes import DESCRIPTORS, WORK, Measured, Scene, measure, typical

FOLDER: Final = Path("build/bench/scale")
WIDTH: Final = 190
FLUSHED: Final = 12.0
"""Seconds of load in which each tail is flushed at least once by the default force policy (10 s)."""

SCENES: Final[dict[str, list[Scene]]] = {
    "partitions": [Scene("partitions", number, FLUSHED) for number in (1, 100, 1_000, 10_000)],
    "idle connections": [Scene("idle connections", number, 3.0) for number in (1, 100, 1_000, 10_000)],
    "producing connections": [Scene("producing connections", number, 5.0) for number in (10, 100, 1_000)],
    "prepared transactions": [
        Scene("prepared transactions", number, 3.0) for number in (1_000, 10_000, 100_000)
    ],
    "open transactions": [Scene("open transactions", number, 3.0) for number in (10, 1_000, 10_000)],
    "MiB in one transaction": [Scene("MiB in one transaction", number, 0.0) for number in (16, 128, 1024)],
    "connections at 1,000 descriptors": [Scene("connections at 1,000 descriptors", 300, 1.0)],
}
assert SCENES.keys() == WORK.keys()


def small(scene: Scene) -> Scene:
    """Return the scene at a tenth of its size and for a moment, for a test."""
    if scene.kind in DESCRIPTORS:
        return scene._replace(seconds=0.3)
    return Scene(scene.kind, max(scene.number // 10, 1), 0.3)


def run(scenes: Sequence[Scene], folder: Path, repeat: int) -> list[Measured]:
    """Run all scenes, each on an empty directory, and then all again; return the medians of the turns."""
    turns: dict[Scene, list[Measured]] = {scene: [] for scene in scenes}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(scenes) * repeat)
        for scene in [*scenes] * repeat:
            progress.update(task, description=f"{scene.number:,} {scene.kind}")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                turns[scene].append(measure(scene, folder / "data"))
            finally:
                shutil.rmtree(folder)
            progress.advance(task)
    return [typical(each) for each in turns.values()]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*SCENES]))
@click.option(
    "--repeat",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="How often; all are gone through each time.",
)
@click.option("--quick", is_flag=True, help="A tenth of each, for a moment, once: to see that it works.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes: on the disk to be measured. It is removed before and after.",
)  # fmt: skip
def main(names: tuple[str, ...], repeat: int, quick: bool, file: Path | None, folder: Path) -> None:
    """Measure how throughput, latency, memory, starts and stops grow with partitions, connections and transactions.

    Exits with 0 whether the targets are met or not.
    """
    allowed = allow_descriptors()
    scenes = [scene for name in names or SCENES for scene in SCENES[name]]
    if quick:
        scenes, repeat = list(dict.fromkeys(map(small, scenes))), 1
    measured = run(scenes, folder, repeat)
    console = Console()
    tables.show(measured, console if console.is_terminal else Console(width=WIDTH))
    if file is not None:
        settings = {"quick": quick, "repeat": repeat, "descriptors": allowed}
        file.write_text(tables.document(measured, settings) + "\n")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.scale")
