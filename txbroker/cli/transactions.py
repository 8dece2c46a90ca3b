"""``txbroker transactions``: see what is undecided and why, and end by hand what nobody else will end."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from rich.console import Group as Stack
from rich.console import RenderableType

from journal.transaction import State, TransactionNumber, Xid
from txbroker.cli.arguments import Parsed, transaction
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import age_text, bytes_json, bytes_text, count_text, emit, facts, size_text, table
from txbroker.client.results import Message, TransactionDetails
from txbroker.commands import TransactionInfo

if TYPE_CHECKING:
    from txbroker import Connection

SHOWN_MESSAGES = 20

which_argument = click.argument("which", metavar="XID|NUMBER", type=Parsed("transaction", transaction))
by_option = click.option("--by", default=getpass.getuser, help="Who does it (default: your login).")
why_option = click.option("--why", required=True, help="Why; kept with the outcome.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(cls=Group)
def transactions() -> None:
    """List, show and end transactions.

    A transaction is named by its number (SESSION-SERIAL) or its xid (FORMAT:GLOBAL:BRANCH), both as `list`
    prints them. A part of an xid that does not print is 0x and hex.
    """


@transactions.command("list")
@click.option("--in-doubt", is_flag=True, help="Only prepared ones: they wait for a decision.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.name.lower().replace("_", "-") for state in State]),
    help="Only these (default: all that are undecided). Repeatable.",
)
@pass_invocation
def list_transactions(invocation: Invocation, in_doubt: bool, states: tuple[str, ...]) -> None:
    """List transactions, the undecided ones unless told otherwise."""
    if in_doubt and states:
        raise click.UsageError("say either --in-doubt or --state, not both")
    wanted = (
        (State.PREPARED,) if in_doubt else tuple(State[name.upper().replace("-", "_")] for name in states)
    )
    with invocation.connect() as broker:
        found = broker.transactions(states=wanted)
    columns = ("number", "xid", "state", "age", "messages", "bytes", "topics", "groups", "owner")
    rows = [
        (
            number_of(info),
            info.xid,
            state_text(info),
            age_text(info.age),
            info.messages,
            size_text(info.bytes),
            ", ".join(info.topics) or None,
            ", ".join(info.groups) or None,
            info.owner,
        )
        for info in found
    ]
    empty = "No transaction is in doubt." if in_doubt else "There are no such transactions."
    emit(
        invocation.as_json,
        [transaction_json(info) for info in found],
        lambda: table(columns, rows, empty),
    )


@transactions.command()
@which_argument
@pass_invocation
def show(invocation: Invocation, which: TransactionNumber | Xid) -> None:
    """Show all that is known about a transaction, and the first messages in it."""
    with invocation.connect() as broker:
        shown = broker.show_transaction(which)
    emit(invocation.as_json, shown_json(shown), lambda: details(shown))


@transactions.command()
@which_argument
@by_option
@why_option
@yes_option
@pass_invocation
def commit(invocation: Invocation, which: TransactionNumber | Xid, by: str, why: str, yes: bool) -> None:
    """Commit a prepared transaction by hand.

    Its coordinator may decide otherwise: the outcome is kept as forced, with who and why, until forgotten.
    """
    force(invocation, which, "Commit", yes, lambda broker: broker.commit_transaction(which, by=by, why=why))


@transactions.command()
@which_argument
@by_option
@why_option
@yes_option
@pass_invocation
def rollback(invocation: Invocation, which: TransactionNumber | Xid, by: str, why: str, yes: bool) -> None:
    """Roll back a transaction by hand.

    Its coordinator may decide otherwise: the outcome is kept as forced, with who and why, until forgotten.
    """
    force(
        invocation, which, "Roll back", yes, lambda broker: broker.rollback_transaction(which, by=by, why=why)
    )


@transactions.command()
@which_argument
@by_option
@yes_option
@pass_invocation
def forget(invocation: Invocation, which: TransactionNumber | Xid, by: str, yes: bool) -> None:
    """Forget how a decided transaction ended. Asking for it is then told that it is forgotten."""
    force(
        invocation,
        which,
        "Forget the outcome of",
        yes,
        lambda broker: broker.forget_transaction(which, by=by),
        after=False,
    )


def force(
    invocation: Invocation,
    which: TransactionNumber | Xid,
    verb: str,
    yes: bool,
    act: Callable[[Connection], object],
    after: bool = True,
) -> None:
    """Summarise, ask, act, and say how it ended, as the broker tells it (unless not ``after``)."""
    with invocation.connect() as broker:
        info = broker.show_transaction(which).transaction
        confirm(f"{summary(info)}\n{verb} it?", yes)
        act(broker)
        ended = broker.show_transaction(which).transaction if after else None
    if ended is None:
        emit(
            invocation.as_json,
            {"forgotten": number_of(info)},
            lambda: f"Forgot transaction {number_of(info)}.",
        )
        return
    emit(invocation.as_json, transaction_json(ended), lambda: f"{summary(ended)}")


def summary(info: TransactionInfo) -> str:
    """A transaction in a sentence."""
    parts = [f"Transaction {number_of(info)}"]
    if info.xid is not None:
        parts.append(f"(xid {info.xid})")
    parts.append(f"is {state_text(info)}; it {began_or_ended(info)} {age_text(info.age)} ago")
    verb = "held" if has_ended(info) else "holds"
    holds = [f"{count_text(info.messages, 'message')} ({size_text(info.bytes)})"]
    holds += [f"for {', '.join(info.topics)}"] if info.topics else []
    holds += [f"and offsets of {', '.join(info.groups)}"] if info.groups else []
    return f"{' '.join(parts)} and {verb} {' '.join(holds)}."


def details(shown: TransactionDetails) -> RenderableType:
    """A transaction for people."""
    info = shown.transaction
    known: list[tuple[str, object]] = [
        ("number", number_of(info)),
        ("xid", info.xid),
        ("state", state_text(info)),
        (began_or_ended(info), age_text(info.age) + " ago"),
        ("owner", info.owner),
        ("messages", info.messages),
        ("bytes", size_text(info.bytes)),
        ("topics", ", ".join(info.topics) or None),
        ("groups", ", ".join(info.groups) or None),
    ]
    if info.cause is not None:
        known += [("cause", cause_text(info)), ("by", info.by or None), ("why", info.why or None)]
    if info.heuristic:
        known.append(("coordinator told", info.told is not None))
    parts: list[RenderableType] = [facts(known)]
    if shown.messages:
        rows = [(m.topic, m.partition, bytes_text(m.key), bytes_text(m.value)) for m in content(shown)]
        parts += ["", table(("topic", "partition", "key", "value"), rows, "")]
    if len(content(shown)) < info.messages and not has_ended(info):
        parts.append(
            f"These are the first {len(content(shown)):,} of {count_text(info.messages, 'message')}."
        )
    if shown.offsets:
        parts += ["", table(("group", "topic", "partition", "offset"), shown.offsets, "")]
    return Stack(*parts)


def content(shown: TransactionDetails) -> list[Message]:
    """The first messages of a transaction."""
    return shown.messages[:SHOWN_MESSAGES]


def number_of(info: TransactionInfo) -> str:
    """Its number, as arguments take it."""
    return str(TransactionNumber(info.session, info.serial))


def state_text(info: TransactionInfo) -> str:
    """Its state for people; a forced outcome says so."""
    return info.state.name.lower().replace("_", "-") + (" (forced)" if info.heuristic else "")


def has_ended(info: TransactionInfo) -> bool:
    """Whether it is decided."""
    return info.state in (State.COMMITTED, State.ROLLED_BACK)


def began_or_ended(info: TransactionInfo) -> str:
    """What its age counts from."""
    return "ended" if has_ended(info) else "began"


def cause_text(info: TransactionInfo) -> str | None:
    """Why it ended as it did."""
    return None if info.cause is None else info.cause.name.lower().replace("_", "-")


def transaction_json(info: TransactionInfo) -> dict[str, object]:
    """A transaction in JSON; ``age`` is in µs since it began, or ended if it has."""
    return {
        "number": number_of(info),
        "xid": None if info.xid is None else str(info.xid),
        "state": info.state.name.lower().replace("_", "-"),
        "owner": info.owner,
        "age": info.age,
        "messages": info.messages,
        "bytes": info.bytes,
        "topics": info.topics,
        "groups": info.groups,
        "cause": cause_text(info),
        "by": info.by,
        "why": info.why,
        "forced": info.heuristic,
        "coordinator_told": info.told is not None,
    }


def shown_json(shown: TransactionDetails) -> dict[str, object]:
    """A transaction in JSON with the first of what it holds."""
    return transaction_json(shown.transaction) | {
        "content": [
            {
                "topic": m.topic,
                "partition": m.partition,
                "key": bytes_json(m.key),
                "value": bytes_json(m.value),
            }
            for m in content(shown)
        ],
        "offsets": [
            {"group": o.group, "topic": o.topic, "partition": o.partition, "offset": o.offset}
            for o in shown.offsets
        ],
    }
