"""Ending transactions by hand, one or many: the plan, the question, the requests, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click
from rich.console import RenderableType

from journal.transaction_states import State, TransactionNumber
from journal.xid import Xid
from txbroker.cli.exits import WORST, Exit, Failure, exit_for
from txbroker.cli.invocation import Invocation, confirm
from txbroker.cli.output import console, count_text, emit, table
from txbroker.cli.transactions.choice import Choice
from txbroker.cli.transactions.json_form import transaction_json
from txbroker.cli.transactions.views import listing
from txbroker.cli.transactions.words import number_of, summary, totals
from txbroker.errors import TxBrokerError
from txbroker.wire.messages import TransactionInfo

if TYPE_CHECKING:
    from txbroker import Connection

NAMED: Final = 20
"""Most transactions that a question names one by one."""

NOT_TRIED: Final = "not tried"


@dataclass(frozen=True)
class Ending:
    """A way to end transactions: its verb, its participle, and its function."""

    verb: str
    done: str
    act: Callable[[Connection, TransactionNumber], object]
    chosen_from: tuple[State, ...] = (State.PREPARED,)
    heuristic: bool = False
    """Whether filters select from heuristic outcomes, rather than from transactions in doubt."""

    @property
    def ask_one(self) -> str:
        """The question about a single one."""
        return "Roll it back?" if self.verb == "Roll back" else f"{self.verb} it?"


@dataclass(frozen=True)
class Result:
    """The result for one. ``error`` is None if it was done, ``code`` then OK."""

    info: TransactionInfo
    text: str
    code: Exit = Exit.OK

    def as_json(self) -> dict[str, object]:
        """Return it for programs."""
        xid = None if self.info.xid is None else str(self.info.xid)
        done = self.code is Exit.OK and self.text != NOT_TRIED
        return {"number": number_of(self.info), "xid": xid, "done": done, "result": self.text}


def end(
    invocation: Invocation,
    ending: Ending,
    which: Sequence[TransactionNumber | Xid],
    choice: Choice,
    execute: bool,
    yes: bool,
) -> None:
    """End named transactions, after a question; or show those that filters select, and end them with --execute."""
    if bool(which) == bool(choice):
        raise click.UsageError(
            "name the transactions, or choose them with --older-than, --topic, --owner, --principal or --xid; not both"
        )
    if execute and which:
        raise click.UsageError(
            "--execute is for transactions chosen by options; those that are named are ended at once"
        )
    with invocation.connect() as broker:
        if len(which) == 1:
            end_one(invocation, broker, ending, which[0], yes)
            return
        infos = named(broker, which) if which else choice.ask(broker, ending.chosen_from, ending.heuristic)
        if choice and not execute:
            show_plan(invocation, ending, infos)
            return
        if infos:
            confirm(question(ending, infos), yes)
        report(invocation, ending, end_all(broker, ending, infos))


def end_one(
    invocation: Invocation, broker: Connection, ending: Ending, which: TransactionNumber | Xid, yes: bool
) -> None:
    """Summarise, ask, act, and print the outcome that the broker reports."""
    info = broker.show_transaction(which, 0).transaction
    confirm(f"{summary(info)}\n{ending.ask_one}", yes)
    number = TransactionNumber(info.session, info.serial)
    ending.act(broker, number)
    if ending.heuristic:
        emit(
            invocation.as_json,
            {"forgotten": number_of(info)},
            lambda: f"Forgot transaction {number_of(info)}.",
        )
        return
    ended = broker.show_transaction(number, 0).transaction
    emit(invocation.as_json, transaction_json(ended), lambda: summary(ended))


def named(broker: Connection, which: Sequence[TransactionNumber | Xid]) -> list[TransactionInfo]:
    """Return the broker's information about named ones, each once; raises if one is unknown, before anything is
    done.
    """
    infos = {}
    for each in which:
        info = broker.show_transaction(each, 0).transaction
        infos[info.session, info.serial] = info
    return list(infos.values())


def show_plan(invocation: Invocation, ending: Ending, infos: Sequence[TransactionInfo]) -> None:
    """Print the transactions that would be ended, and end none."""
    emit(
        invocation.as_json,
        [transaction_json(info) for info in infos],
        lambda: listing(infos, "No transaction is chosen by these options."),
    )
    if infos and not invocation.as_json:
        console().print(f"\n{ending.verb}: {totals(infos)}. Nothing was changed; to do it, add --execute.")


def question(ending: Ending, infos: Sequence[TransactionInfo]) -> str:
    """Return the question, with the transactions that are about to be ended."""
    lines = [summary(info) for info in infos[:NAMED]]
    if len(infos) > NAMED:
        lines.append(f"... and {len(infos) - NAMED:,} more")
    what = ending.ask_one if len(infos) == 1 else f"{ending.verb} these {totals(infos)}?"
    return "\n".join([*lines, what])


def end_all(broker: Connection, ending: Ending, infos: Sequence[TransactionInfo]) -> list[Result]:
    """End one after the other. A refused one does not stop the others; without a broker the rest is not tried."""
    results = []
    stopped: Exit | None = None
    for info in infos:
        if stopped is not None:
            results.append(Result(info, NOT_TRIED))
            continue
        try:
            ending.act(broker, TransactionNumber(info.session, info.serial))
            results.append(Result(info, ending.done))
        except TxBrokerError as error:
            code = exit_for(error)
            results.append(Result(info, f"{type(error).__name__}: {error}", code))
            if code in (Exit.UNREACHABLE, Exit.UNKNOWN):
                stopped = code
        except KeyboardInterrupt:
            stopped = Exit.INTERRUPTED
            results.append(Result(info, "interrupted: it may or may not have been ended; look", stopped))
    return results


def report(invocation: Invocation, ending: Ending, results: Sequence[Result]) -> None:
    """Print each result; fail with the exit code of the most urgent failure."""
    failed = [result for result in results if result.code is not Exit.OK]
    skipped = sum(result.text == NOT_TRIED for result in results)

    def people() -> RenderableType:
        shown = results if len(results) <= NAMED else failed
        rows = [(number_of(result.info), result.info.xid, result.text) for result in shown]
        return table(
            ("number", "xid", "result"),
            rows,
            f"All were {ending.done}." if results else "There was nothing to do.",
        )

    emit(invocation.as_json, [result.as_json() for result in results], people)
    done = len(results) - len(failed) - skipped
    if not failed:
        if not invocation.as_json and results:
            console(stderr=True).print(f"{count_text(done, 'transaction')} {ending.done}.")
        return
    codes = {result.code for result in failed}
    code = Exit.INTERRUPTED if Exit.INTERRUPTED in codes else next(each for each in WORST if each in codes)
    raise Failure(
        f"{done:,} of {count_text(len(results), 'transaction')} {ending.done}, {len(failed):,} not"
        + (f", {skipped:,} not tried" if skipped else "")
        + "; each is told above",
        code,
    )
