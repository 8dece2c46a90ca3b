"""``python -m spark.resolve``: what writes of Spark have left undecided at a broker, and ending it as they decided.

For writes that nobody will run again: a stream, or a batch with ``txnAppId``, ends what it has left by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from journal.quantities import duration
from spark.sink import branches, decision
from spark.sink.leftovers import Left, Used, expire, is_of, left_registers, look, registers
from spark.sink.register import Register
from txbroker import errors
from txbroker.client.blocking import Connection, connect
from txbroker.client.core import url as urls


def main(arguments: Sequence[str] | None = None) -> int:
    """Show undecided writes, and end them with ``--execute``. Exit code 0: nothing waits now, 1: something does, 3 to
    6: an error.
    """
    options = _parser().parse_args(arguments)
    try:
        with connect(options.broker, client="spark.resolve", timeout=options.timeout) as broker:
            return _run(broker, options)
    except errors.TxBrokerError as error:
        print(f"spark.resolve: {error}", file=sys.stderr)
        return _exit_code(error)


def _run(broker: Connection, options: argparse.Namespace) -> int:
    everything = look(broker)
    found = [left for left in everything if not options.name or left.is_of(options.name)]
    if options.registers or options.expire is not None:
        _see_to_registers(broker, {left.name for left in everything}, options)
    # Before branches are ended, because that needs the room of one group.
    names = {left.name for left in found}
    empty = [] if options.name else left_registers(broker, names, time.time() - options.older_than)
    for name in empty if options.execute else []:
        Register(broker, name).delete()
    waiting, failures = 0, list[errors.TxBrokerError]()
    for left in found:
        ended = False
        if options.execute and left.age is not None and left.age >= options.older_than:
            try:
                decision.settle(broker, left.name)
                ended = True
            except (errors.RequestRefused, branches.RegisterDamaged) as error:
                failures.append(error)
        else:
            waiting += 1
        _say(left, options, ended=ended)
    if not options.json:
        _sum_up(found, waiting, empty, options)
    for failure in failures:
        print(f"spark.resolve: {failure}", file=sys.stderr)
    return _exit_code(failures[0]) if failures else 1 if waiting else 0


def _see_to_registers(broker: Connection, undecided: set[str], options: argparse.Namespace) -> None:
    """Print registers; those that are old enough, and have no branches, are deleted, or could be."""
    before = None if options.expire is None else time.time() - options.expire
    for used in registers(broker):
        if options.name and not is_of(used.name, options.name):
            continue
        old = before is not None and 0 < used.at < before and used.name not in undecided
        deleted = old and options.execute and expire(broker, used)
        if options.registers or old:
            _say_register(used, options, old=old, deleted=deleted)


def _say_register(used: Used, options: argparse.Namespace, *, old: bool, deleted: bool) -> None:
    when = datetime.fromtimestamp(used.at, UTC).isoformat() if used.at else None
    if options.json:
        print(
            json.dumps(
                {"register": used.name, "version": used.version, "epoch": used.epoch, "used": when}
                | {"deleted": deleted, "problem": used.problem}
            )
        )
        return
    decided = "none decided" if used.version < 0 else f"version {used.version} decided"
    end = ": deleted" if deleted else ": to be deleted" if old and not options.execute else ""
    problem = f". {used.problem}" if used.problem else ""
    print(f"register {used.name}: {decided}, epoch {used.epoch}, last used {when or 'unknown'}{end}{problem}")


def _say(left: Left, options: argparse.Namespace, *, ended: bool) -> None:
    if options.json:
        print(json.dumps({**left._asdict(), "ended": ended}))
        return
    age = f"{left.sending} still sending" if left.age is None else f"prepared for {left.age:.0f} s"
    done = "ended" if ended else "to be ended"
    print(
        f"{left.name}: {left.to_commit} branches to commit (decided), {left.to_roll_back} to roll back (not decided), "
        f"{left.messages} messages, {age}: {done}{'. ' + left.problem if left.problem else ''}"
    )


def _sum_up(found: list[Left], waiting: int, empty: list[str], options: argparse.Namespace) -> None:
    if not found:
        print("no write of Spark is undecided")
    elif waiting and not options.execute:
        print("nothing was changed: end them with --execute")
    elif waiting:
        print(
            f"{waiting} are younger than {options.older_than:g} s (--older-than), or still sending: left alone"
        )
    if empty:
        done = "deleted" if options.execute else "to be deleted"
        print(f"{len(empty)} registers of batch writes that have ended without a word: {done}")


def _exit_code(error: errors.TxBrokerError) -> int:
    """Return the exit code of an error, as on the command line (docs/cli.md)."""
    if isinstance(error, errors.RequestRefused):
        return 3
    if isinstance(error, errors.StorageUnavailable):
        return 4
    return 6 if isinstance(error, branches.RegisterDamaged) else 5


def _age(text: str) -> float:
    try:
        return duration(text) / 1_000_000
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark.resolve", description=__doc__)
    parser.add_argument("--broker", default=urls.DEFAULT, help="its address (%(default)s)")
    parser.add_argument(
        "--name",
        default="",
        help="only this write: a query's id or a txnAppId, the latter for all its topics",
    )
    parser.add_argument(
        "--older-than", type=_age, default=3600.0, metavar="TIME",
        help="only writes whose branches have all been prepared for so long (1h); others may be at work",
    )  # fmt: skip
    parser.add_argument("--registers", action="store_true", help="show the registers of all writes, too")
    parser.add_argument(
        "--expire", type=_age, metavar="TIME",
        help="delete registers that were not used for so long: a version that is repeated after all "
        "is written again",
    )  # fmt: skip
    parser.add_argument(
        "--execute", action="store_true", help="end and delete them; without it nothing is changed"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each write")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the broker")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
