"""``txbroker scheduled``: shows messages that are due later, takes them back, and releases those that are held."""

from __future__ import annotations

import click
from rich.console import Group as Stack

from journal.message_headers import ID_HEADER
from journal.scheduled_id import ScheduledId
from txbroker.cli.arguments import Parsed
from txbroker.cli.exits import WORST, Failure, exit_for
from txbroker.cli.invocation import Group, Invocation, pass_invocation
from txbroker.cli.output import (
    FILTERED,
    age_text,
    bytes_json,
    bytes_text,
    count_text,
    emit,
    facts,
    size_text,
    table,
    time_text,
)
from txbroker.client.blocking import Connection
from txbroker.client.core.scheduled_results import ScheduledMessage
from txbroker.errors import AccessDenied, RequestRefused, TxBrokerError

COLUMNS = ("id", "topic", "partition", "exchange", "due", "in", "message id", "bytes", "state")
HOLDS = (
    "The broker's wall clock has jumped forward: messages that are due by it (--at) are held. Set the clock right if "
    "it is wrong, then let them go: txbroker scheduled release"
)
ID = Parsed("id", ScheduledId.of)
CLOCKS = {"elapsed": "time that passes (--after)", "wall": "the wall clock (--at)"}


@click.group(cls=Group)
def scheduled() -> None:
    """Show messages for later, and take them back."""


@scheduled.command("list", short_help="List the messages that wait.")
@click.option("--topic", metavar="NAME", help="Only those for this topic.")
@click.option("--exchange", metavar="NAME", help="Only those that wait at this exchange.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Only the first N of those that are due next."
)
@pass_invocation
def list_scheduled(
    invocation: Invocation, topic: str | None, exchange: str | None, limit: int | None
) -> None:
    """List the messages that wait, in the order in which they are due.

    "held" are those that a prepared transaction takes back if it is committed.
    """
    if topic is not None and exchange is not None:
        raise click.UsageError("say --topic or --exchange")
    with invocation.connect() as broker:
        found = broker.list_scheduled(topic, exchange=exchange)
    shown = found[:limit]
    more = len(found) - len(shown)

    def human() -> Stack:
        notes = [HOLDS] if found.holds else []
        notes += [f"{count_text(more, 'message')} more."] if more else []
        notes += [FILTERED] if found.is_filtered else []
        if found.unreadable:
            notes += [
                f"{count_text(found.unreadable, 'other message')} cannot be read: what the schedule has is damaged "
                "there. See 'txbroker verify'."
            ]
        rows = [row(each) for each in shown]
        what = topic if exchange is None else f"exchange {exchange}"
        none = "No messages are scheduled." if what is None else f"No messages are scheduled for {what}."
        return Stack(table(COLUMNS, rows, none), *notes)

    told = {
        "messages": [scheduled_json(each) for each in shown],
        "more": more, "is_filtered": found.is_filtered, "holds": found.holds, "unreadable": found.unreadable,
    }  # fmt: skip
    emit(invocation.as_json, told, human)


def row(message: ScheduledMessage) -> tuple[object, ...]:
    """Return the cells of a message."""
    return (
        str(message.id),
        message.topic or None,
        message.partition if message.topic else None,
        message.exchange or None,
        time_text(message.due_at),
        age_text(round(message.due_in * 1e6)) if message.due_in > 0 else "now",
        message.message_id,
        size_text(message.size),
        message.state,
    )


def scheduled_json(message: ScheduledMessage) -> dict[str, object]:
    """Return a message as JSON: ``due_at`` is in µs since 1970, ``due_in`` µs from now."""
    return {
        "id": str(message.id),
        "state": message.state,
        "topic": message.topic or None,
        "partition": message.partition if message.topic else None,
        "exchange": message.exchange,
        "offset": message.offset,
        "clock": message.clock,
        "due_at": message.due_at,
        "due_in": round(message.due_in * 1e6),
        "holder": message.holder or None,
        "message_id": bytes_json(message.message_id),
        "bytes": message.size,
    }


@scheduled.command()
@click.argument("given", metavar="ID", type=ID)
@pass_invocation
def show(invocation: Invocation, given: ScheduledId) -> None:
    """Show what has become of a scheduled message, with its content if it waits. Exits with 1 if there is none."""
    with invocation.connect() as broker:
        found = looked_up(broker, given)
    message = found.message
    more: dict[str, object] = {}
    if message is not None:
        pairs = [[name, bytes_json(value)] for name, value in message.headers]
        more = {"key": bytes_json(message.key), "value": bytes_json(message.value), "headers": pairs}
    emit(
        invocation.as_json,
        {**scheduled_json(found), **more},
        lambda: facts(shown_facts(found)),
    )


def looked_up(broker: Connection, given: ScheduledId) -> ScheduledMessage:
    """Return a scheduled message, with its content if that may be read."""
    try:
        return broker.scheduled(given, with_message=True)
    except AccessDenied:
        return broker.scheduled(given)


def shown_facts(found: ScheduledMessage) -> list[tuple[str, object]]:
    """Return what is known of a message, for people."""
    where = f"{found.topic}, partition {found.partition}" if found.topic else "a topic that is gone"
    if found.exchange is not None:
        where = f"exchange {found.exchange}" if found.exchange else "an exchange that is gone"
    away = age_text(round(abs(found.due_in) * 1e6))
    facts: list[tuple[str, object]] = [
        ("id", str(found.id)),
        ("state", found.state if not found.holder else f"{found.state} by the transaction {found.holder}"),
        ("for", where if found.offset is None else f"{where}, at offset {found.offset:,}"),
        ("due", f"{time_text(found.due_at)} ({f'in {away}' if found.due_in > 0 else f'{away} ago'})"),
        ("by", CLOCKS[found.clock]),
    ]
    message = found.message
    if message is not None:
        facts += [("message id", bytes_text(message.id)), ("key", bytes_text(message.key))]
        facts += [
            (f"header {name}", bytes_text(value)) for name, value in message.headers if name != ID_HEADER
        ]
        facts += [("value", bytes_text(message.value))]
    return facts


@scheduled.command(short_help="Take messages back that wait.")
@click.argument("given", nargs=-1, metavar="[ID]...", type=ID)
@click.option("--message-id", metavar="TEXT", help="Take those back that have this id of their sender.")
@pass_invocation
def cancel(invocation: Invocation, given: tuple[ScheduledId, ...], message_id: str | None) -> None:
    """Take messages back that wait, by their IDs, or all that have the id which their sender gave them.

    One that was taken back before is no error. One that was sent, or is held, is refused; the others are taken back
    all the same.
    """
    if bool(given) == (message_id is not None):
        raise click.UsageError("say IDs, or --message-id")
    taken, failures = list[str](), list[tuple[ScheduledId, TxBrokerError]]()
    with invocation.connect() as broker:
        if message_id is not None:
            taken = [str(each) for each in broker.cancel(message_id=message_id)]
        for each in given:
            try:
                broker.cancel(each)
                taken.append(str(each))
            except TxBrokerError as error:
                failures.append((each, error))
                if not isinstance(error, RequestRefused):
                    break  # the others would end so, too
    if taken or not failures:
        refused = [
            {"id": str(each), "error": type(error).__name__, "why": str(error)} for each, error in failures
        ]
        told = {"cancelled": taken, "refused": refused}
        emit(invocation.as_json, told, lambda: f"Taken back: {', '.join(taken)}.")
    if failures:
        codes = [exit_for(error) for _, error in failures]
        why = "; ".join(f"{type(error).__name__}: {error}" for _, error in failures)
        raise Failure(why, next(code for code in WORST if code in codes))


@scheduled.command()
@pass_invocation
def release(invocation: Invocation) -> None:
    """Let messages go that are held since the broker's wall clock has jumped forward.

    Those that are due by that clock are sent then. Set the clock right first, if it is wrong.
    """
    with invocation.connect() as broker:
        held = broker.list_scheduled().holds
        broker.release_scheduled()
    emit(
        invocation.as_json,
        {"released": held},
        lambda: "Released." if held else "Nothing was held.",
    )
