"""``python -m tests.queues``: histories of queues from seeds; exit 1 if one broke a promise."""

from __future__ import annotations

import argparse
import json
import os
import sys

from tests.queues.queue_histories import campaign, explain, replay


def main() -> int:
    """Run, report, and say by the exit code whether all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.queues", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=None, help="how long (default 60, without --histories)"
    )
    parser.add_argument("--histories", type=int, default=None, help="how many, if that is reached earlier")
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the others count up")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument("--replay", metavar="SEED[/STEPS]", help="run one history again and print all of it")
    parser.add_argument("--no-shrink", action="store_true", help="print a failing history as it is")
    parser.add_argument(
        "--json", action="store_true", help="one JSON document instead of text, nothing is shrunk"
    )
    arguments = parser.parse_args()
    if arguments.replay:
        outcome, text = replay(arguments.replay)
        print(text)
        return 1 if outcome.problem else 0
    seconds = arguments.seconds
    if seconds is None:
        seconds = 60.0 if arguments.histories is None else float("inf")
    found = campaign(arguments.seed, seconds, arguments.histories, arguments.jobs)
    failed = found.failed
    if arguments.json:
        problem, seed = ("", None) if failed is None else (failed.problem, failed.seed)
        told = {
            "histories": found.histories,
            "seconds": round(found.seconds, 2),
            "problem": problem,
            "seed": seed,
        }
        print(json.dumps({**told, "counts": dict(sorted(found.counts.items()))}))
        return 1 if failed else 0
    width = max(map(len, found.counts), default=0)
    for name, count in sorted(found.counts.items()):
        print(f"  {name:<{width}} {count:>9,}")
    print(f"{found.histories} histories from seed {arguments.seed} in {found.seconds:.1f} s")
    if failed is None:
        print("all promises were kept")
        return 0
    print(f"\n{failed.problem if arguments.no_shrink else explain(failed)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
