"""``make bench``, or ``python -m benchmarks``, runs the benchmarks; ``python -m benchmarks recovery`` is another one.
See docs/benchmarks.md.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks import compressed, figure_tables, figures, runs
from benchmarks.figures import Samples
from benchmarks.recovery import measurement
from benchmarks.runs import MACHINE, Usage

BROKER = runs.BROKER | compressed.LOADS
FOLDER = Path("build/bench")
WIDTH = 160
"""The width of the output where it is no terminal."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*BROKER]))
@click.option("--seconds", default=3.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often; all are gone through each time.")
@click.option("--quick", is_flag=True, help="Half a second each, twice: to see that it works.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything to this file, too.")
@click.option(
    "--folder", default=FOLDER, type=click.Path(path_type=Path), show_default=True,
    help="Where the data goes: on the disk to be measured.",
)  # fmt: skip
def main(
    names: tuple[str, ...], seconds: float, repeat: int, quick: bool, file: Path | None, folder: Path
) -> None:
    """Measure the broker (all, or only NAMES), and what the machine allows, and show both side by side.

    'python -m benchmarks recovery' measures how long a broker takes to start, and has options of its own.

    Exits with 0 whether the targets are met or not.
    """
    if quick:
        seconds, repeat = 0.5, 2
    samples, usages = measure(names or tuple(BROKER), seconds, repeat, folder)
    results = figures.results(samples)
    console = Console()
    figure_tables.show(results, usages, console if console.is_terminal else Console(width=WIDTH))
    if file is not None:
        settings = {"seconds": seconds, "repeat": repeat}
        file.write_text(figure_tables.document(results, samples, usages, settings) + "\n")


def measure(
    names: tuple[str, ...], seconds: float, repeat: int, folder: Path
) -> tuple[Samples, dict[str, list[Usage]]]:
    """Run all of them ``repeat`` times, in turn, so that a noisy moment does not hit only one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    samples: Samples = {}
    usages: dict[str, list[Usage]] = {}
    todo = {**MACHINE, **{name: BROKER[name] for name in names}}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(todo) * repeat)
        for _ in range(repeat):
            for name, run in todo.items():
                progress.update(task, description=name)
                gc.collect()
                found, usage = run(folder, seconds)
                for figure, value in found.items():
                    samples.setdefault(figure.name, []).append(value)
                if usage is not None:
                    usages.setdefault(name, []).append(usage)
                progress.advance(task)
    return samples, usages


if __name__ == "__main__":
    if sys.argv[1:2] == ["recovery"]:
        measurement.main(sys.argv[2:], prog_name="python -m benchmarks recovery")
    main()
