"""Record the corpus, or show where today's verdicts differ from the recorded ones."""

from __future__ import annotations

import argparse
import difflib
import logging
import sys

from tests.corpus.damages import drawn
from tests.corpus.record_file import FILE, packed, recorded
from tests.corpus.verdicts import PARTS, verdict_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="draw cases and write them down with today's verdicts")
    record.add_argument("--cases", type=int, default=400)
    commands.add_parser("again", help="write today's verdicts down for the cases that are recorded")
    commands.add_parser("compare", help="print what today's verdicts say otherwise; 1 if there is anything")
    chosen = parser.parse_args()
    logging.disable()
    if chosen.command == "compare":
        return _compare()
    cases = drawn(chosen.cases) if chosen.command == "record" else [case for case, _ in recorded()]
    FILE.write_text(packed((case, verdict_of(case)) for case in cases))
    return 0


def _compare() -> int:
    differing = 0
    for case, expected in recorded():
        now = verdict_of(case)
        differing += now != expected
        for part in PARTS:
            if now[part] != expected[part]:
                print(f"{case}: {part}")
                lines = difflib.ndiff(expected[part].splitlines(), now[part].splitlines())
                print("".join(f"  {line}\n" for line in lines if line[:1] in "+-"), end="")
    print(f"{differing} cases differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
