"""``python -m tests.queues.queue_teeth`` finds out after how many histories each fault of
:mod:`tests.queues.queue_mutants` is found.

Each is made in a copy of the sources. First the copy is run as it is, and must be found sound.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.queues.queue_mutants import MUTANTS
from tests.support.faulty_sources import copy_sources, faulty, run_python

COPIED = (
    "journal", "txbroker", "tests/queues", "tests/simulation", "tests/support", "pyproject.toml",
)  # fmt: skip


class Verdict(NamedTuple):
    """What histories say of one fault. ``problem`` is the first line of the first broken promise, "" if none was."""

    name: str
    histories: int
    seconds: float
    problem: str
    seed: int | None


def judge(copy: Path, name: str, histories: int, seed: int) -> Verdict:
    """Run so many histories on the copy, or up to the first that breaks a promise; raises RuntimeError if they do not
    end by themselves.
    """
    arguments = ["--histories", str(histories), "--seed", str(seed), "--jobs", "1", "--json"]
    ran = run_python(copy, "-m", "tests.queues", *arguments)
    try:
        found = json.loads(ran.stdout)
    except ValueError:
        raise RuntimeError(
            f"the histories on {name!r} ended with {ran.returncode}:\n{ran.stderr[-2000:]}"
        ) from None
    return Verdict(name, found["histories"], found["seconds"], headline(found["problem"]), found["seed"])


def headline(problem: str) -> str:
    """Return of a traceback its last line, else the first two."""
    lines = problem.strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else " ".join(lines[:2])


def main() -> int:
    """Run them, print the table; 1 if one was not found, or if something was found where nothing is."""
    parser = argparse.ArgumentParser(prog="python -m tests.queues.queue_teeth", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000, help="most for each (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first history (default 0)")
    parser.add_argument("--only", metavar="TEXT", default="", help="those with this in their name")
    arguments = parser.parse_args()
    chosen = [each for each in MUTANTS if arguments.only in each.name]
    missed = []
    with tempfile.TemporaryDirectory(prefix="queue-mutants-") as folder:
        copy = Path(folder).resolve()
        copy_sources(copy, COPIED)
        sound = judge(copy, "no fault", min(300, arguments.histories), arguments.seed)
        print(line(sound), flush=True)
        if sound.problem:
            print("without any fault something is found: mend that first")
            return 1
        for mutant in chosen:
            with faulty(copy, mutant):
                verdict = judge(copy, mutant.name, arguments.histories, arguments.seed)
            print(line(verdict), flush=True)
            if not verdict.problem:
                missed.append(mutant.name)
    print(f"\n{len(chosen) - len(missed)} of {len(chosen)} faults found")
    for name in missed:
        print(f"missed: {name}")
    return 1 if missed else 0


def line(verdict: Verdict) -> str:
    """A row of the table."""
    found = "found" if verdict.problem else "-"
    return f"{verdict.name:<78} {found:<6} {verdict.histories:>6} {verdict.seconds:>7.1f} s  {verdict.problem[:90]}"


if __name__ == "__main__":
    sys.exit(main())
