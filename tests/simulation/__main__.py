"""``python -m tests.simulation``: histories from seeds, as many as fit into the time; exit 1 if one broke a promise."""

from __future__ import annotations

import argparse
import json
import sys

from tests.simulation.campaign import Campaign, explain, replay

_PARTS = {
    "members": "only histories in which groups have members",
    "outboxes": "only histories in which rows of outboxes are delivered",
    "schedule": "only histories in which messages are due later",
    "access": "only histories in which clients have rights",
    "amqp": "only histories in which clients speak AMQP",
}


def main() -> int:
    """Run, report, and say by the exit code whether all promises were kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=None, help="how long (default 60, without --histories)"
    )
    parser.add_argument("--histories", type=int, default=None, help="how many, if that is reached earlier")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first history; the others count up (default 0)"
    )
    chosen = parser.add_mutually_exclusive_group()
    for part, what in _PARTS.items():
        chosen.add_argument(f"--{part}", action="store_const", const=part, dest="part", default="", help=what)
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--replay", metavar="SEED[/STEPS]", help="run one history again and print all of it")
    parser.add_argument("--no-shrink", action="store_true", help="print a failing history as it is")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    parser.add_argument(
        "--verbose", action="store_true", help="count every kind of request, answer and event"
    )
    arguments = parser.parse_args()
    if arguments.replay:
        outcome, text = replay(arguments.replay)
        print(text)
        return 1 if outcome.problem else 0
    seconds = arguments.seconds
    if seconds is None:
        seconds = 60.0 if arguments.histories is None else float("inf")
    campaign = Campaign(arguments.seed, seconds, arguments.histories, arguments.part)
    campaign.run(arguments.jobs)
    failing = [explain(outcome, shrink=not arguments.no_shrink) for outcome in campaign.failed]
    if arguments.json:
        print(json.dumps({**campaign.summary(), "violations": failing}, indent=2))
    else:
        print(campaign.report(arguments.verbose))
        for each in failing:
            print(f"\n{each['text']}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
