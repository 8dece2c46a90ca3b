"""``make mutants`` finds out whether, and how soon, the simulation finds each fault in :mod:`tests.simulation.mutants`
and, with histories in which groups have members, clients have rights, messages are due later or clients speak AMQP, in
:mod:`tests.simulation.member_mutants`, :mod:`tests.simulation.access_mutants`,
:mod:`tests.simulation.schedule_mutants` and :mod:`tests.simulation.amqp_mutants`.

Each is made in a copy of the sources, which campaigns then run on, from one seed or several. First the copy is run as
it is, and must be found sound: a simulation that cries always has no teeth either.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.simulation.access_mutants import ACCESS_MUTANTS
from tests.simulation.amqp_mutants import AMQP_MUTANTS
from tests.simulation.member_mutants import MEMBER_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.schedule_mutants import SCHEDULE_MUTANTS
from tests.support.faulty_sources import copy_sources, faulty, run_python

_PARTS = {
    "members": MEMBER_MUTANTS,
    "access": ACCESS_MUTANTS,
    "schedule": SCHEDULE_MUTANTS,
    "amqp": AMQP_MUTANTS,
}
"""The faults that histories with a part must find."""

ALL = (*MUTANTS, *MEMBER_MUTANTS, *ACCESS_MUTANTS, *SCHEDULE_MUTANTS, *AMQP_MUTANTS)
COPIED = ("journal", "txbroker", "tests/simulation", "tests/support")
SOUND = "no fault at all"


class Verdict(NamedTuple):
    """What a campaign said of one fault. ``problem`` is the first line of the first broken promise, "" if none was.

    ``seed`` is that of the history that broke it.
    """

    name: str
    seconds: float
    histories: int
    problem: str
    seed: int | None


def judge(copy: Path, name: str, seconds: float, seed: int, part: str = "") -> Verdict:
    """Run a campaign on the copy, or one of histories that have a ``part``. A run that ends in any other way than by
    its own report is an error here.
    """
    arguments = ["--seconds", str(seconds), "--seed", str(seed), "--no-shrink", "--json"]
    if part:
        arguments.append(f"--{part}")
    began = time.monotonic()
    ran = run_python(copy, "-m", "tests.simulation", *arguments)
    took = time.monotonic() - began
    try:
        found = json.loads(ran.stdout)
    except ValueError:
        raise RuntimeError(
            f"the campaign on {name!r} ended with {ran.returncode}:\n{ran.stderr[-2000:]}"
        ) from None
    first = found["violations"][0] if found["violations"] else {"problem": "", "seed": None}
    return Verdict(name, took, found["histories"], _headline(first["problem"].strip()), first["seed"])


def _headline(problem: str) -> str:
    """Of a traceback its last line, else the first."""
    lines = problem.splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _search(copy: Path, mutant: Mutant, seconds: float, seed: int) -> Verdict:
    part = next((part for part, mutants in _PARTS.items() if mutant in mutants), "")
    return judge(copy, mutant.name, seconds, seed, part)


def check_is_used(copy: Path) -> None:
    """Raise unless a process started on the copy imports the copy."""
    ran = run_python(copy, "-c", "import journal, txbroker; print(journal.__file__, txbroker.__file__)")
    where = ran.stdout.split()
    if not where or not all(Path(each).is_relative_to(copy) for each in where):
        raise RuntimeError(f"the sources under test would be {where or ran.stderr}, not those in {copy}")


HEADINGS = f"{'fault':<62} {'found':<7} {'seconds':>14} {'histories':>15} {'seed':>9}  what was found first"


def line(verdicts: list[Verdict]) -> str:
    """A row of the table: least and most seconds and histories over its campaigns, and what the first one found."""
    first = verdicts[0]
    found = f"{sum(bool(each.problem) for each in verdicts)} of {len(verdicts)}"
    seconds = _spread([f"{each:.1f}" for each in sorted(each.seconds for each in verdicts)])
    histories = _spread([str(each) for each in sorted(each.histories for each in verdicts)])
    seed = "-" if first.seed is None else first.seed
    return f"{first.name:<62} {found:<7} {seconds:>14} {histories:>15} {seed:>9}  {first.problem[:80]}"


def _spread(values: list[str]) -> str:
    """Least, middle and most of several."""
    return values[0] if len(values) == 1 else "/".join((values[0], values[len(values) // 2], values[-1]))


def main() -> int:
    """Run them, print the table; 1 if one was not found, or if something was found where nothing is."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.teeth", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="most for each (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the first history (default 0)")
    parser.add_argument(
        "--campaigns", type=int, default=1,
        help="for each, a million seeds apart; the table has the least, middle and most of them (default 1)",
    )  # fmt: skip
    parser.add_argument("--only", metavar="TEXT", default="", help="those with this in their name")
    parser.add_argument("--part", choices=sorted(_PARTS), help="those that only such histories must find")
    arguments = parser.parse_args()
    faults = _PARTS[arguments.part] if arguments.part else ALL
    chosen = [mutant for mutant in faults if arguments.only in mutant.name]
    began = time.monotonic()
    seeds = [arguments.seed + 1_000_000 * number for number in range(arguments.campaigns)]
    missed = []
    print(HEADINGS)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder).resolve()
        copy_sources(copy, COPIED)
        check_is_used(copy)
        sound = [
            judge(copy, SOUND, min(arguments.seconds, 20.0), arguments.seed, each) for each in ("", *_PARTS)
        ]
        print(line(sound), flush=True)
        if any(verdict.problem for verdict in sound):
            print(
                "\nwithout any fault the simulation finds something: mend that first, it would be found in every fault"
            )
            return 1
        for mutant in chosen:
            with faulty(copy, mutant):
                verdicts = [_search(copy, mutant, arguments.seconds, seed) for seed in seeds]
            print(line(verdicts), flush=True)
            if not all(verdict.problem for verdict in verdicts):
                missed.append(mutant.name)
    print(f"\n{len(chosen) - len(missed)} of {len(chosen)} faults found in {time.monotonic() - began:.0f} s")
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
