"""``make bench-builds`` measures both builds in turn: Python's source, and what ``make compiled`` has installed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = {"pure": (ROOT,), "compiled": (ROOT / ".make/compiled", ROOT)}
NAMES: Final = (
    "singles", "depth-1", "clients", "batches", "large-batches", "one-phase", "two-phase", "python-client",
)  # fmt: skip
COLUMNS: Final = ("", "pure", "spread", "compiled", "spread", "ratio")

Found = dict[str, list[float]]


class BuildMissing(click.ClickException):
    """Another build ran than was to be measured."""

    exit_code = 2


def environment(build: str) -> dict[str, str]:
    """Return the environment in which broker and generator are of a build; raises :class:`BuildMissing`."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, FOLDERS[build]))}
    asked = [sys.executable, "-P", "-c", "import journal; print(journal.BUILD.name == 'COMPILED')"]
    ran = subprocess.run(asked, env=variables, capture_output=True, text=True, check=True)
    if ran.stdout.strip() != str(build == "compiled"):
        raise BuildMissing(f"the {build} build is not what runs there: make compiled")
    return variables


def measured(build: str, names: tuple[str, ...], seconds: float, folder: Path) -> dict[str, float]:
    """Run ``make bench`` once on a build; return its figures, and the broker's processor time of each load."""
    file = folder / f"{build}.json"
    command = [sys.executable, "-P", "-m", "benchmarks", *names, "--seconds", str(seconds), "--repeat", "1"]
    command += ["--json", str(file), "--folder", str(folder / build)]
    subprocess.run(command, env=environment(build), stdout=subprocess.DEVNULL, check=True)
    document: dict[str, Any] = json.loads(file.read_text())
    found = {f"{each['name']}, {each['unit']}": each["median"] for each in document["figures"]}
    for load, usages in document["processors_busy"].items():
        found[f"broker's processor time, {load}, µs each"] = usages[0]["cost"]
    return found


def table(samples: Mapping[str, Found]) -> Table:
    """Return medians, spreads and ratios of both builds."""
    shown = Table(title="both builds, in turn")
    for column in COLUMNS:
        shown.add_column(column, justify="right" if column else "left")
    for name, pure in samples["pure"].items():
        compiled = samples["compiled"][name]
        before, after = statistics.median(pure), statistics.median(compiled)
        ratio = f"{after / before:.2f}" if before else ""
        shown.add_row(name, number(before), spread(pure), number(after), spread(compiled), ratio)
    return shown


def number(value: float) -> str:
    """Return a figure with as many digits as say something."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    """Return the least and the greatest."""
    return f"{number(min(values))} – {number(max(values))}"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seconds", default=2.0, show_default=True, help="For measuring each of them once.")
@click.option("--repeat", default=5, show_default=True, help="How often each build; the builds take turns.")
@click.option(
    "--folder", default=Path("build/bench-builds"), type=click.Path(path_type=Path), show_default=True
)
def main(names: tuple[str, ...], seconds: float, repeat: int, folder: Path) -> None:
    """Measure both builds in turn: NAMES are those of 'python -m benchmarks'."""
    folder.mkdir(parents=True, exist_ok=True)
    samples: dict[str, Found] = {build: {} for build in FOLDERS}
    for _ in range(repeat):
        for build, found in samples.items():
            for name, value in measured(build, names or NAMES, seconds, folder).items():
                found.setdefault(name, []).append(value)
    Console(width=160).print(table(samples))


if __name__ == "__main__":
    main()
