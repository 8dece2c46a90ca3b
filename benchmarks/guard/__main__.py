"""``make bench-guard`` counts instructions per message by callgrind, and compares them with a budget in the project.

Seconds differ from run to run and from machine to machine; instructions of the same program do not. So a change that
makes a message's path longer is seen at once, even on a busy machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.guard.work import MARKER

ROOT: Final = Path(__file__).resolve().parents[2]
BUDGETS: Final = {
    "pure": Path(__file__).with_name("budget.json"),
    "compiled": Path(__file__).with_name("budget_compiled.json"),
}
"""The budget of each build: Python's source as it is here, and what ``make compiled`` has installed."""

INSTALLED: Final = ROOT / ".make/compiled"
UNIT: Final = "unit"
"""The piece of plain Python that never changes: on another interpreter the others are compared in units of it."""

SAME: Final = 0.03
"""The allowed share above the budget on the interpreter that it was made on. Two runs differ by 0.0001."""

OTHER: Final = 0.15
"""The allowed share on any other interpreter, where units are compared."""


class CountFailed(click.ClickException):
    """The instructions could not be counted; the message has the program's output."""

    exit_code = 2


class Count(NamedTuple):
    """The instructions of one message, batch, transaction or fetch."""

    instructions: int
    units: float


def interpreter(build: str) -> str:
    """Return what determines, beside the program, how many instructions it takes."""
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    made = f"{platform.python_compiler()}, {'with' if optimised else 'without'} profile-guided optimisation"
    name = f"{platform.python_implementation()} {platform.python_version()}, {made}, {platform.machine()}"
    return f"{name}, Cython {version('cython')}" if build == "compiled" else name


def count(build: str) -> dict[str, Count]:
    """Run the work of a build under callgrind; raises :class:`CountFailed`."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CountFailed("valgrind is not installed; on Debian: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="txbroker-guard-") as folder:
        out = Path(folder) / "out"
        command = [valgrind, "--tool=callgrind", f"--dump-before={MARKER}", f"--callgrind-out-file={out}"]
        command += [sys.executable, "-P", "-m", "benchmarks.guard.work", build]
        folders = [str(ROOT)] if build == "pure" else [str(INSTALLED), str(ROOT)]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(folders)
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise CountFailed(f"the work ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        dumps = [(out.parent / f"out.{place}") for place in range(1, len(list(out.parent.iterdir())))]
        return counted(ended.stdout, [path.read_text() for path in dumps])


def counted(said: str, dumps: list[str]) -> dict[str, Count]:
    """Return the work's output, and the counts that callgrind wrote before each mark; raises :class:`CountFailed`.

    Of the two dumps of each piece the second has its counts, the first those of everything before it.
    """
    pieces = re.findall(r"^(\d+)\t(.+)$", said, re.MULTILINE)
    totals = [int(number) for dump in dumps for number in re.findall(r"^totals: (\d+)$", dump, re.MULTILINE)]
    if not pieces or len(totals) != 2 * len(pieces):
        raise CountFailed(f"{len(totals)} counts for {len(pieces)} pieces of work: each needs two")
    each = {name: total / int(times) for (times, name), total in zip(pieces, totals[1::2], strict=True)}
    if UNIT not in each:
        raise CountFailed(f"the piece {UNIT!r} is missing")
    return {name: Count(round(number), round(number / each[UNIT], 2)) for name, number in each.items()}


class Verdict(NamedTuple):
    """One piece compared with its budget. ``change`` is 0.05 for 5 % more."""

    name: str
    found: Count
    budget: Count | None
    change: float
    over: bool


def judged(found: Mapping[str, Count], budget: Mapping[str, Count], same: bool) -> Iterator[Verdict]:
    """Return the verdict on every piece; a piece without a budget is over it.

    Raises :class:`CountFailed` if a piece that has a budget was not counted.
    """
    if missing := sorted(set(budget) - set(found)):
        raise CountFailed(f"{', '.join(missing)}: there is a budget, but nothing was counted")
    for name, count in found.items():
        if name == UNIT:
            continue
        known = budget.get(name)
        if known is None:
            yield Verdict(name, count, None, 0.0, True)
            continue
        ratio = count.instructions / known.instructions if same else count.units / known.units
        yield Verdict(name, count, known, ratio - 1, ratio - 1 > (SAME if same else OTHER))


def read_budget(path: Path) -> tuple[str, dict[str, Count]]:
    """Return the interpreter that the budget was made on, and the budget."""
    kept = json.loads(path.read_text())
    return kept["interpreter"], {name: Count(*each) for name, each in kept["pieces"].items()}


def written(build: str, found: Mapping[str, Count]) -> str:
    """Return the text of the budget's file for these counts."""
    pieces = ",\n".join(f"    {json.dumps(name)}: [{each[0]}, {each[1]}]" for name, each in found.items())
    return f'{{\n  "interpreter": {json.dumps(interpreter(build))},\n  "pieces": {{\n{pieces}\n  }}\n}}\n'


def table(build: str, verdicts: list[Verdict], same: bool) -> Table:
    """Return the verdicts as a table."""
    shown = Table(title=f"instructions of a message's own path, {build} (callgrind)")
    for column in ("", "instructions", "units", "budget", "change", ""):
        shown.add_column(column, justify="left" if not column else "right")
    for each in verdicts:
        kept = "" if each.budget is None else f"{each.budget[0]:,}" if same else f"{each.budget[1]:,} units"
        shown.add_row(
            each.name, f"{each.found.instructions:,}", f"{each.found.units:,}", kept or "none",
            f"{each.change:+.1%}" if kept else "", "over" if each.over else "",
        )  # fmt: skip
    return shown


@click.command()
@click.argument("builds", nargs=-1, type=click.Choice(sorted(BUDGETS)))
@click.option("--write", is_flag=True, help="Make what is found now the budget.")
@click.option(
    "--json", "file", type=click.Path(path_type=Path), help="Write what is found to this file, too."
)
def main(builds: tuple[str, ...], write: bool, file: Path | None) -> None:
    """Count the instructions of sends, fetches and commits, and compare them with the budget of each build
    (both, or only BUILDS).

    Exit code 0: within the budget. 1: something is over it. 2: the instructions could not be counted.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    texts, over = {}, []
    for build in builds or sorted(BUDGETS):
        found = count(build)
        texts[build] = written(build, found)
        if write:
            BUDGETS[build].write_text(texts[build])
        over += [f"{each.name} ({build})" for each in _shown(console, build, found) if each.over]
    if file is not None:
        file.write_text(json.dumps({build: json.loads(text) for build, text in texts.items()}))
    if over:
        console.print(
            f"Over the budget: {', '.join(over)}. If that is meant, say why and run it with --write."
        )
        sys.exit(1)


def _shown(console: Console, build: str, found: Mapping[str, Count]) -> list[Verdict]:
    made_on, budget = read_budget(BUDGETS[build])
    here = interpreter(build)
    same = made_on == here
    verdicts = list(judged(found, budget, same))
    console.print(table(build, verdicts, same))
    if not same:
        console.print(f"The budget was made on {made_on}; this is {here}: compared in units, ±{OTHER:.0%}.")
    if any(each.change < -SAME for each in verdicts) and same:
        console.print("Some take less than their budget: --write keeps it so.")
    return verdicts


if __name__ == "__main__":
    main()
