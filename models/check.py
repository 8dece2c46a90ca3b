"""``make model`` has Spin check every interleaving of two protocols, as intended and with each mistake compiled in.

``atomic.pml`` is one transaction of ``txbroker.atomic``, ``outbox.pml`` one stream of an outbox. A table says for each
variant what came out. Exits with 1 unless the protocols as meant are accepted, everything that should be reached is
reached, and every mistake is refused.
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

ATOMIC = Path(__file__).with_name("atomic.pml")
OUTBOX = Path(__file__).with_name("outbox.pml")
PATIENCE = 300.0
"""Seconds for one variant; each takes a few, the longest half a minute."""

DEPTH = 1_000_000
"""The greatest depth of a search, in steps."""

DELIVERED = "delivered_and_gone"
"""The formula of ``outbox.pml``."""

WIDTH = 100
"""The width of the output where it is no terminal."""


class Outcome(enum.Enum):
    """The outcome that the checker reports for a variant."""

    HOLDS = "holds"
    VIOLATED = "violated"
    ENDLESS = "never ends"


@dataclass(frozen=True)
class Variant:
    """A model with some of its options, and the expected outcome.

    ``formula`` names what must happen in the end; without one, what must hold at every moment is checked, however
    often things go wrong.
    """

    name: str
    options: tuple[str, ...] = ()
    expected: Outcome = Outcome.HOLDS
    formula: str = ""
    model: Path = ATOMIC


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


def _mistake(name: str, *options: str, model: Path = ATOMIC) -> Variant:
    return Variant(name, (*options, "ONE_RESOLVER"), Outcome.VIOLATED, model=model)


def _reached(name: str, witness: int, *options: str, model: Path = ATOMIC) -> Variant:
    return Variant(name, (f"WITNESS={witness}", *options), Outcome.VIOLATED, model=model)


def _endless(name: str, formula: str, *options: str, model: Path = ATOMIC) -> Variant:
    return Variant(name, ("LIVENESS", *options), Outcome.ENDLESS, formula, model)


def _holds(name: str, *options: str, formula: str = "") -> Variant:
    return Variant(name, options, formula=formula, model=OUTBOX)


@dataclass(frozen=True)
class Protocol:
    """A protocol: what holds of it as it is meant, what is reached, and which mistakes it must not make."""

    meant: tuple[Variant, ...]
    reached: tuple[Variant, ...]
    mistakes: tuple[Variant, ...]

    @property
    def variants(self) -> tuple[Variant, ...]:
        return (*self.meant, *self.reached, *self.mistakes)


ATOMIC_PROTOCOL = Protocol(
    meant=(
        Variant("both or neither, always"),
        Variant("the same, first committer wins (Galera)", ("OPTIMISTIC", "ONE_RESOLVER")),
        Variant("the same, prepared first, marks kept", ("PREPARE_FIRST", "MARKS_KEPT", "ONE_RESOLVER")),
        Variant("the same, commits seen before forced", ("SEEN_FIRST", "FORCES_FIRST", "ONE_RESOLVER")),
        Variant("the same, with savepoints", ("SAVEPOINTS", "ONE_RESOLVER")),
        Variant("the same, the decision with BEGIN", ("WITH_BEGIN", "SAVEPOINTS", "ONE_RESOLVER")),
        Variant("what is prepared ends", ("LIVENESS", "BUDGET=2"), formula="ends"),
        Variant("its decision row goes", ("LIVENESS", "BUDGET=1"), formula="cleaned"),
    ),
    reached=(
        _reached("another than the program commits at the broker", 1, "ONE_RESOLVER"),
        _reached("a COMMIT under way is lost, all rolled back", 2, "ONE_RESOLVER"),
        _reached("both resolvers wait for a program that commits", 3),
        _reached("a mark for what is committed: it proves nothing", 4, "ONE_RESOLVER"),
    ),
    mistakes=(
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
        _mistake("decision in a savepoint, rolled back to", "IN_SAVEPOINT", "SAVEPOINTS"),
        _mistake("back to a savepoint between decision and COMMIT", "BACK_BEFORE_COMMIT", "SAVEPOINTS"),
        _mistake("messages of a savepoint rolled back to are kept", "KEEPS_MESSAGES", "SAVEPOINTS"),
        _endless("nobody resolves", "ends", "BUDGET=1", "NO_RESOLVER"),
    ),
)


def _reached_there(name: str, witness: int) -> Variant:
    return _reached(name, witness, "ONE_RESOLVER", model=OUTBOX)


def _wrong(name: str, *options: str) -> Variant:
    return _mistake(name, *options, model=OUTBOX)


def _wrong_if_set_back(name: str, *options: str) -> Variant:
    return _wrong(name, "SET_BACK", *options, "N=1")


OUTBOX_PROTOCOL = Protocol(
    meant=(
        _holds("once, in order, none lost, always"),
        _holds("the same with three rows", "N=3", "ONE_RESOLVER"),
        _holds("the same, release after all answers", "LAST_UNCHECKED", "WAITS", "ONE_RESOLVER"),
        _holds("the same, database set back", "SET_BACK", "N=1", "ONE_RESOLVER"),
        _holds("the same, set back, two resolvers", "SET_BACK", "N=1", "ONLY_COMMITS"),
        _holds(
            "the same, set back, with stamps",
            "SET_BACK",
            "STAMPS",
            "OTHER",
            "ONLY_COMMITS",
            "N=1",
            "MOST=3",
            "ONE_RESOLVER",
        ),
        _holds("rows are delivered and go, the entry too", "LIVENESS", "BUDGET=1", formula=DELIVERED),
    ),
    reached=(
        _reached_there("all is delivered, and nothing is left", 5),
        _reached_there("a release comes after another delivery", 6),
        _reached_there("a program is fenced with rows in memory", 7),
    ),
    mistakes=(
        _wrong("a delivery without a claim", "WITHOUT_CLAIM"),
        _wrong("memory from before the claim is delivered", "BEFORE_CLAIM"),
        _wrong("broker does not look at the epoch", "NOT_FENCED"),
        _wrong("what is in memory outlives the fence", "KEEPS_MEMORY"),
        _wrong("older rows are not read before newer go", "SKIPS_OLDER"),
        _wrong("two open transactions use one stream", "TWO_OPEN"),
        _wrong("the stream goes on after an unknown COMMIT", "GOES_ON"),
        _wrong("an unknown stream is taken for delivered", "UNKNOWN_IS_DELIVERED"),
        _wrong("broker does not look at `after`", "NO_AFTER"),
        _wrong("an epoch comes again after a restart", "EPOCH_COMES_AGAIN"),
        _wrong("rows are read before the claim is answered", "READS_EARLY"),
        _wrong("rows are not read in one snapshot", "PIECEMEAL"),
        _wrong("what is seen and not forced is delivered", "SEEN_ONLY"),
        _wrong("database answers before it has forced", "ANSWERS_UNFORCED"),
        _wrong("rows deleted before the acknowledgement", "DELETES_UNANSWERED"),
        _wrong("release before the delete is forced", "RELEASED_UNFORCED"),
        _wrong("release does not say which `last` it knows", "LAST_UNCHECKED"),
        _wrong_if_set_back("no generations, database set back", "NO_GENERATIONS", "ONLY_COMMITS"),
        _wrong_if_set_back("holder goes on in a database set back", "ANY_CONNECTION", "ONLY_COMMITS"),
        _wrong_if_set_back("the same, it compares generations", "CHECKED"),
        _wrong_if_set_back("generation is seen and not forced", "GENERATION_SEEN"),
        _wrong_if_set_back("another stream catches up (known)", "OTHER", "ONLY_COMMITS"),
        _endless("resolvers do not leave each other time", DELIVERED, "BUDGET=0", "IMPATIENT", model=OUTBOX),
        _endless("nobody delivers what is left", DELIVERED, "BUDGET=1", "LEFT_ALONE", model=OUTBOX),
    ),
)
PROTOCOLS = (ATOMIC_PROTOCOL, OUTBOX_PROTOCOL)
VARIANTS = tuple(variant for protocol in PROTOCOLS for variant in protocol.variants)
REACHED = tuple(variant for protocol in PROTOCOLS for variant in protocol.reached)
_FIRST = tuple(
    group[0] for protocol in PROTOCOLS for group in (protocol.meant, protocol.reached, protocol.mistakes)
)


def check(variant: Variant) -> Checked:
    """Have Spin make a checker of a variant, and run it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="txbroker-model-") as folder:
        said = _search(variant, Path(folder))
    return Checked(variant, _outcome(said), _states(said), _trail(said), time.monotonic() - began)


def counterexample(variant: Variant) -> str:
    """Return the steps that lead to the violation, as Spin prints them."""
    with tempfile.TemporaryDirectory(prefix="txbroker-model-") as folder:
        if _outcome(_search(variant, Path(folder))) is Outcome.HOLDS:
            return "There is none: it holds."
        return _run(["spin", *_options(variant), "-t", "-p", "-g", variant.model.name], Path(folder))


def _search(variant: Variant, folder: Path) -> str:
    shutil.copy(variant.model, folder)
    _run(["spin", *_options(variant), "-a", variant.model.name], folder)
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
        if one.variant in _FIRST:
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
    """Check the protocols of `txbroker.atomic` and of outbox streams, and every mistake that they must not make."""
    try:
        if trace is not None:
            found = [variant for variant in VARIANTS if trace in variant.options]
            if not found:
                raise click.BadParameter(f"no variant has the option {trace}", param_hint="--trace")
            click.echo(counterexample(min(found, key=lambda variant: variant.expected is Outcome.HOLDS)))
            return
        results = _checked_all(jobs)
    except CheckerFailed as error:
        raise click.ClickException(str(error)) from error
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table(results))
    sys.exit(0 if all(one.as_expected for one in results) else 1)


if __name__ == "__main__":
    main()
