"""``make bench-recovery``, or ``python -m benchmarks recovery``, measures how long a start takes. See
docs/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.recovery import tables
from benchmarks.recovery.restarts import Measured, restart
from benchmarks.recovery.scenes import LOADS, Scene, build

FOLDER: Final = Path("build/bench/recovery")
WIDTH: Final = 180
SIZES: Final = (0, 64, 256, 512)
SCENES: Final[dict[str, list[Scene]]] = {
    "stopped": [
        Scene(stopped=True), Scene("singles", 64, stopped=True), Scene(partitions=10_000, stopped=True),
        Scene(prepared=100_000, stopped=True),
    ],
    "bytes": [Scene(load, size) for load in LOADS for size in SIZES if size or load == "singles"],
    "partitions": [Scene("singles", 64, partitions) for partitions in (1, 100, 10_000)],
    "prepared": [Scene(prepared=transactions) for transactions in (0, 1_000, 100_000)],
}  # fmt: skip


def measure(scenes: Sequence[Scene], repeat: int, folder: Path) -> list[Measured]:
    """Build each scene, restart once unmeasured (the last end must be a real broker's), then measure ``repeat``
    restarts.
    """
    found = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(scenes) * (repeat + 1))
        progress.update(task, description="building the first scene")
        for scene, data in build(folder, list(scenes)):
            one = Measured(scene, [])
            for number in range(repeat + 1):
                progress.update(task, description=scene.title)
                restarted = restart(data, scene)
                if restarted.in_doubt != scene.prepared:
                    raise click.ClickException(f"{scene.title}: {restarted.in_doubt} are in doubt after it")
                if number:
                    one.restarts.append(restarted)
                progress.advance(task)
            found.append(one)
    return found


def small(scene: Scene) -> Scene:
    """Return the scenes at a hundredth of their size, for a test."""
    return scene._replace(
        mebibytes=-(-scene.mebibytes // 100),
        partitions=-(-scene.partitions // 100),
        prepared=scene.prepared // 100,
    )


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*SCENES]))
@click.option("--repeat", default=5, show_default=True, help="Restarts of each scene.")
@click.option("--quick", is_flag=True, help="A hundredth of each, once: to see that it works.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes: on the disk to be measured. It is removed before and after.",
)  # fmt: skip
def main(names: tuple[str, ...], repeat: int, quick: bool, file: Path | None, folder: Path) -> None:
    """Measure restarts (all kinds, or only NAMES): from exec to the first accepted request.

    Exits with 0 whether the targets are met or not.
    """
    scenes = list(dict.fromkeys(scene for name in names or SCENES for scene in SCENES[name]))
    if quick:
        scenes, repeat = list(dict.fromkeys(map(small, scenes))), 1
    measured = measure(scenes, repeat, folder)
    console = Console()
    tables.show(measured, console if console.is_terminal else Console(width=WIDTH))
    if file is not None:
        file.write_text(tables.document(measured, {"repeat": repeat}) + "\n")
