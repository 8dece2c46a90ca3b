"""``make model`` has Spin check every interleaving of ``atomic.pml``, as intended and with each mistake compiled in.

A table says for each variant what came out. Exits with 1 unless the protocol as meant is accepted, everything that
should be reached is reached, and every mistake is refused.
"""

from __future__ import annotations

import enum
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

MODEL = Path(__file__).with_name("atomic.pml")
PATIENCE = 300.0
"""Seconds for one variant; each takes a few."""

DEPTH = 1_000_000
"""The greatest depth of a search, in steps."""

WIDTH = 100
"""The width of the output where it is no terminal."""


class Outcome(enum.Enum):
    """The outcome that the checker reports for a variant."""

    HOLDS = "holds"
    VIOLATED = "violated"
    ENDLESS = "never ends"


@dataclass(frozen=True)
class Variant:
    """The model with some of its options, and the expected outcome.

    ``formula`` names what must happen in the end; without one, what must hold at every moment is checked, however
    often things go wrong.
    """

    name: str
    options: tuple[str, ...] = ()
    expected: Outcome = Outcome.HOLDS
    formula: str = ""


@dataclass(frozen=True)
class Checked:
    """The result of one check. ``trail`` is the number of steps to the violation, 0 if there is none."""

    variant: Variant
    outcome: Outcome
    states: float
    trail: int
    seconds: float

    @property
    def as_expected(self) -> bool:
        return self.outcome is self.variant.expected


class CheckerFailed(Exception):
    """Spin or the compiler refused the model, or the search was not complete."""


def _mistake(name: str, *options: str) -> Variant:
    return Variant(name, (*options, "ONE_RESOLVER"), Outcome.VIOLATED)


def _reached(name: str, witness: int, *options: str) -> Variant:
    return Variant(name, (f"WITNESS={witness}", *options), Outcome.VIOLATED)


MEANT = (
    Variant("both or neither, always"),
    Variant("the same, first committer wins (Galera)", ("OPTIMISTIC", "ONE_RESOLVER")),
    Variant("the same, prepared first, marks kept", ("PREPARE_FIRST", "MARKS_KEPT", "ONE_RESOLVER")),
    Variant("the same, commits seen before forced", ("SEEN_FIRST", "FORCES_FIRST", "ONE_RESOLVER")),
    Variant("what is prepared ends", ("LIVENESS", "BUDGET=2"), formula="ends"),
    Variant("its decision row goes", ("LIVENESS", "BUDGET=1"), formula="cleaned"),
)
REACHED = (
    _reached("another than the program commits at the broker", 1, "ONE_RESOLVER"),
    _reached("a COMMIT under way is lost, all rolled back", 2, "ONE_RESOLVER"),
    _reached("both resolvers wait for a program that commits", 3),
    _reached("a mark for what is committed: it proves nothing", 4, "ONE_RESOLVER"),
)
MISTAKES = (
    _mistake("resolver looks instead of inserting", "LOOK_ONLY"),
    _mistake("prepared first, mark deleted early", "PREPARE_FIRST"),
    _mistake("row deleted before the acknowledgement", "ROW_EARLY"),
    _mistake("resolver of another database decides", "FOREIGN"),
    _mistake("sweep goes by another broker's list", "SWEEP_OTHER_BROKER"),
    _mistake("sweep lists first and reads the rows afterwards", "SWEEP_LISTS_FIRST"),
    _mistake("an unknown outcome is taken for a failure", "UNKNOWN_IS_FAILURE"),
    _mistake("decision and rows in two transactions", "SEPARATE_TRANSACTIONS"),
    _mistake("database answers before it has forced", "UNFORCED"),
    _mistake("key is unique only at commit, mark deleted", "CHECKED_AT_COMMIT"),
    _mistake("resolver goes by what is seen and not forced", "SEEN_FIRST"),
    _mistake("COMMIT of nothing is taken for success", "COMMIT_OF_NOTHING"),
    _mistake("decision in a table that nobody looks at", "WRONG_TABLE"),
    Variant("nobody resolves", ("LIVENESS", "BUDGET=1", "NO_RESOLVER"), Outcome.ENDLESS, "ends"),
)
VARIANTS = (*MEANT, *REACHED, *MISTAKES)


def check(variant: Variant, model: Path = MODEL) -> Checked:
    """Have Spin make a checker of a variant, and run it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="txbroker-model-") as folder:
        said = _search(variant, model, Path(folder))
    return Checked(variant, _outcome(said), _states(said), _trail(said), time.monotonic() - began)


def counterexample(variant: Variant, model: Path = MODEL) -> str:
    """Return the steps that lead to the violation, as Spin prints them."""
    with tempfile.TemporaryDirectory(prefix="txbroker-model-") as folder:
        if _outcome(_search(variant, model, Path(folder))) is Outcome.HOLDS:
            return "There is none: it holds."
        return _run(["spin", *_options(variant), "-t", "-p", "-g", model.name], Path(folder))


def _search(variant: Variant, model: Path, folder: Path) -> str:
    shutil.copy(model, folder / model.name)
    _run(["spin", *_options(variant), "-a", model.name], folder)
    # Mistakes are searched breadth first, which finds the shortest way to them.
    mode = ["-O1", "-DNFAIR=3"] if variant.formula else ["-O1", "-DSAFETY"]
    if not variant.formula and variant.expected is Outcome.VIOLATED:
        mode = [
            "-O0",
            "-DSAFETY",
            "-DBFS",
        ]  # compiling these with optimisation takes longer than the search without
    _run(["gcc", "-w", "-DMEMLIM=4000", *mode, "-o", "pan", "pan.c"], folder)
    end = ["-a", "-f", "-N", variant.formula] if variant.formula else []
    said = _run(["./pan", f"-m{DEPTH}", *end], folder)
    if ("errors: 0" in said and "Search not completed" in said) or "max search depth too small" in said:
        raise CheckerFailed(f"the search of {variant.name!r} was not carried through:\n{said}")
    return said


def _options(variant: Variant) -> list[str]:
    return [f"-D{option}" for option in variant.options]


def _run(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE
        )
    except FileNotFoundError as error:
        raise CheckerFailed(
            f"{command[0]} is not installed. Install it with: .ci/need-debian {command[0]}={command[0]}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CheckerFailed(f"{' '.join(command)} was still running after {PATIENCE:.0f} s") from error
    if done.returncode:
        raise CheckerFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _outcome(said: str) -> Outcome:
    if "acceptance cycle" in said:
        return Outcome.ENDLESS
    if "assertion violated" in said:
        return Outcome.VIOLATED
    if re.search(r"errors: 0\b", said):
        return Outcome.HOLDS
    raise CheckerFailed(f"the checker found something else:\n{said}")


def _states(said: str) -> float:
    found = re.search(r"^\s*([\d.e+]+) states, stored", said, re.MULTILINE)
    if found is None:
        raise CheckerFailed(f"the checker did not say how many states there are:\n{said}")
    return float(found[1])


def _trail(said: str) -> int:
    found = re.search(r"\(at depth (\d+)\)", said)
    return int(found[1]) if found else 0


def table(results: Sequence[Checked]) -> Table:
    """Return the results as a table, one line for each variant."""
    shown = Table("variant")
    shown.add_column("options", no_wrap=True)
    for column in ("states", "steps", "s"):
        shown.add_column(column, justify="right")
    shown.add_column("result")
    shown.add_column("expected")
    for one in results:
        if one.variant in (REACHED[0], MISTAKES[0]):
            shown.add_section()
        shown.add_row(
            one.variant.name,
            "\n".join(one.variant.options),
            f"{one.states:,.0f}",
            str(one.trail or ""),
            f"{one.seconds:.1f}",
            "reached" if one.variant in REACHED and one.outcome is Outcome.VIOLATED else one.outcome.value,
            "yes" if one.as_expected else "NO",
            style="" if one.as_expected else "bold red",
        )
    return shown


def _checked_all(jobs: int) -> list[Checked]:
    """Check all variants in their order; each is shown when it ends."""
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(check, variant) for variant in VARIANTS]
        for number, each in enumerate(as_completed(running), 1):
            one = each.result()
            click.echo(f"{number} of {len(running)}, {one.seconds:.0f} s: {one.variant.name}", err=True)
        return [each.result() for each in running]


@click.command()
@click.option(
    "--trace", metavar="OPTION", help="Show the steps to the violation of the variant with this option."
)
@click.option("--jobs", default=2, show_default=True, help="How many variants at a time.")
def main(trace: str | None, jobs: int) -> None:
    """Check the protocol of `txbroker.atomic` and every mistake it must not make."""
    try:
        if trace is not None:
            found = [variant for variant in VARIANTS if trace in variant.options]
            if not found:
                raise click.BadParameter(f"no variant has the option {trace}", param_hint="--trace")
            click.echo(counterexample(found[0]))
            return
        results = _checked_all(jobs)
    except CheckerFailed as error:
        raise click.ClickException(str(error)) from error
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table(results))
    sys.exit(0 if all(one.as_expected for one in results) else 1)


if __name__ == "__main__":
    main()
