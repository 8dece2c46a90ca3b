"""``python -m tests.access_drill``: one drill; exit 1 if something was wrong. Then its files stay."""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.access_drill.acts import Result
from tests.access_drill.drill import Drill, Verdict

SHOWN = 40
"""How many violations are printed."""


def report(verdict: Verdict) -> str:
    """Return the verdict as text."""
    lines = [f"{'act':<16}" + "".join(f"{result.value:>12}" for result in Result)]
    for what in sorted({what for what, _ in verdict.answers}):
        lines.append(f"{what:<16}" + "".join(f"{verdict.answers[what, result]:>12,}" for result in Result))
    total = Counter[Result]()
    for (_, result), times in verdict.answers.items():
        total[result] += times
    lines.append(f"{'all':<16}" + "".join(f"{total[result]:>12,}" for result in Result))
    changes = ", ".join(f"{name} {times}" for name, times in verdict.changes.items())
    lines += [
        "",
        f"{verdict.seconds:.0f} s, seed {verdict.seed}: {verdict.kills} kills, {verdict.stops} stops",
        f"{sum(verdict.changes.values())} changes: {changes}",
        f"{verdict.counts} times the metrics were compared, {verdict.audited} records are in the audit",
        f"{verdict.stored:,} messages are stored",
    ]
    if not verdict.violations:
        return "\n".join([*lines, "", "no violation"])
    lines += ["", f"{len(verdict.violations)} VIOLATIONS"]
    return "\n".join([*lines, *(f"  {each}" for each in verdict.violations[:SHOWN])])


def main() -> int:
    """Run a drill, report, and say by the exit code whether nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.access_drill", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long there is load (default 300)")
    parser.add_argument("--seed", type=int, default=None, help="of load and changes (default: a new one)")
    parser.add_argument("--out", type=Path, default=None, help="a new folder for the files")
    parser.add_argument("--keep", action="store_true", help="keep the files also if nothing is wrong")
    parser.add_argument("--quiet", action="store_true", help="print the report alone")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    path = arguments.out or Path(tempfile.mkdtemp(prefix="txbroker-access-"))

    def tell(text: str) -> None:
        if not arguments.quiet:
            print(text, flush=True)

    path.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=path / "clients.log", format="%(asctime)s %(threadName)s %(message)s")
    verdict = Drill(path, seed, arguments.seconds, tell).run()
    print(report(verdict))
    if verdict.violations or arguments.keep:
        print(f"the files are in {path}")
    else:
        shutil.rmtree(path)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
