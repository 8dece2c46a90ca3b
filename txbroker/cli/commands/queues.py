"""``txbroker queues``: shows queues, makes and deletes them, binds them, puts messages in and takes them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Group as Stack

from journal.message_headers import headers_of
from journal.quantities import duration
from journal.records.queue_entries import MAX_PRIORITY, Binding, QueueSettings
from txbroker.cli.arguments import Parsed, binding_argument, pause
from txbroker.cli.commands.send import Sending, bodies, durability_text, message_options
from txbroker.cli.commands.tail import content_json, content_text
from txbroker.cli.exits import Exit, Failure, exit_for
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.orderly_stop import noted_interrupt
from txbroker.cli.output import FILTERED, bytes_json, count_text, emit, json_line, table, visible
from txbroker.cli.queue_description import (
    QUEUE_COLUMNS,
    UNBOUND,
    arguments_text,
    binding_json,
    bindings_table,
    exchange_text,
    leading_to,
    queue_facts,
    queue_json,
    queue_row,
    queue_settings_json,
    scalar_text,
    settings_facts,
)
from txbroker.cli.queue_options import settings_options
from txbroker.client.operations.queue_operations import OVERFLOWS, STRATEGIES
from txbroker.client.producer.exchange_queue import target_of
from txbroker.client.queues.publishing import key_of, publishing_headers
from txbroker.errors import AccessDenied, LimitExceeded, TxBrokerError

if TYPE_CHECKING:
    from txbroker import Connection, Message, Receipt
    from txbroker.client.blocking.queue import Queue

C = TypeVar("C", bound=Callable[..., Any])

TIMES = "message_ttl", "expires", "consumer_timeout"
"""The settings of a queue that are times."""
PREFETCH = 100
"""Most messages that are taken from the broker at a time."""

LOOK = 0.25
"""Seconds after which a command that waits looks whether it is interrupted."""


@click.group(cls=Group)
def queues() -> None:
    """Show queues, bind them, fill them, take messages out.

    A message that is acknowledged is gone from its queue. An exchange puts messages into queues: see 'txbroker
    exchanges'.
    """


# -- what there is -----------------------------------------------------------------------------------


@queues.command("list")
@pass_invocation
def list_queues(invocation: Invocation) -> None:
    """List all queues with their messages.

    Of the messages, "ready" can be got, consumers have "unacknowledged", prepared transactions hold "held"; the others
    come later.
    """
    with invocation.connect() as broker:
        found = broker.queues()
    emit(
        invocation.as_json,
        {"queues": [queue_json(each) for each in found], "is_filtered": found.is_filtered},
        lambda: Stack(
            table(QUEUE_COLUMNS, map(queue_row, found), "There are no queues."),
            *([FILTERED] if found.is_filtered else []),
        ),
    )


@queues.command(short_help="Show the queue NAME, and what leads to it.")
@click.argument("name")
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show the queue NAME: its messages, its settings, and the bindings that lead to it, also over other exchanges.

    Exits with 1 if there is none.
    """
    with invocation.connect() as broker:
        [queue] = broker.queues(name)
        exchanges = broker.exchanges()
    bindings = leading_to(name, exchanges)
    emit(
        invocation.as_json,
        queue_json(queue)
        | {"bindings": [binding_json(each) for each in bindings], "is_filtered": exchanges.is_filtered},
        lambda: Stack(
            queue_facts(queue),
            "",
            bindings_table(bindings, UNBOUND, with_source=True),
            *(["", FILTERED] if exchanges.is_filtered else []),
        ),
    )


# -- making and ending -------------------------------------------------------------------------------


@queues.command(short_help="Have a queue of that NAME.")
@click.argument("name")
@settings_options
@pass_invocation
def declare(invocation: Invocation, /, name: str, **given: Any) -> None:
    """Have a queue of that NAME: it is made if there is none. One with other settings is refused."""
    words = {
        "overflow": OVERFLOWS[given["overflow"]],
        "dead_letter_strategy": STRATEGIES[given["dead_letter_strategy"]],
    }
    settings = QueueSettings(**{**given, **words})
    times = {each: given[each] / 1e6 for each in TIMES if given[each] is not None}
    with invocation.connect() as broker:
        broker.declare_queue(name, **{**given, **times})
    known = "; ".join([f"{label}: {text}" for label, text in settings_facts(settings) if text is not None])
    emit(
        invocation.as_json,
        {"declared": name, "settings": queue_settings_json(settings)},
        lambda: f"Queue {visible(name)} is there. {known[:1].upper()}{known[1:]}.",
    )


@queues.command(short_help="Delete the queue NAME with its messages.")
@click.argument("name")
@click.option("--if-empty", is_flag=True, help="Only if it has no messages.")
@click.option(
    "--if-unused",
    is_flag=True,
    help="Only if it has no consumer, and nobody waits for its messages, or has some.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def delete(invocation: Invocation, name: str, if_empty: bool, if_unused: bool, yes: bool) -> None:
    """Delete the queue NAME with all its messages and the bindings that lead to it.

    Refused while an undecided transaction has messages for it, or has acknowledged some of it.
    """
    with invocation.connect() as broker:
        [queue] = broker.queues(name)
        shown = visible(name)
        confirm(f"Delete queue {shown} with {count_text(queue.messages, 'message')}?", yes)
        count = broker.delete_queue(  # the one that was shown
            name, queue.partition, if_empty=if_empty, if_unused=if_unused
        )
    told = {"deleted": name, "messages": count}
    emit(invocation.as_json, told, lambda: f"Deleted queue {shown} with {count_text(count, 'message')}.")


@queues.command(short_help="Drop the messages of the queue NAME.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def purge(invocation: Invocation, name: str, yes: bool) -> None:
    """Drop the messages of the queue NAME that could be got now, for good.

    Those stay that a consumer or a prepared transaction has, and those that come later.
    """
    with invocation.connect() as broker:
        if not yes:
            [queue] = broker.queues(name)
            confirm(f"Drop {count_text(queue.ready, 'message')} of queue {visible(name)} for good?", yes)
        count = broker.purge_queue(name)
    told = {"purged": name, "messages": count}
    emit(
        invocation.as_json,
        told,
        lambda: f"Dropped {count_text(count, 'message')} of queue {visible(name)}.",
    )


# -- bindings ----------------------------------------------------------------------------------------


def _names_binding(command: C) -> C:
    """Add what names a binding."""
    for add in (
        click.option(
            "--argument",
            "arguments",
            multiple=True,
            metavar="NAME=VALUE",
            type=Parsed("argument", binding_argument),
            help="Of a headers exchange: a header that messages must have; NAME alone: with any value. x-match=any: "
            "one of them is enough. Repeatable.",
        ),
        click.option("--to-exchange", is_flag=True, help="QUEUE is the name of an exchange."),
        click.argument("key", default=""),
        click.argument("queue"),
        click.argument("exchange"),
    ):
        command = add(command)
    return command


@queues.command(short_help="Have an exchange send messages to a queue.")
@_names_binding
@pass_invocation
def bind(
    invocation: Invocation,
    exchange: str,
    queue: str,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, bytes | None], ...],
) -> None:
    """Have the exchange EXCHANGE send messages to the queue QUEUE: those whose key is KEY.

    For a topic exchange KEY is a pattern of words between dots: * is any word, # any number of words. A fanout exchange
    sends all messages, whatever KEY is, a headers exchange those whose headers match.
    """
    binding = binding_of(exchange, queue, key, to_exchange, arguments)
    with invocation.connect() as broker:
        broker.bind(exchange, **ends_of(binding))
    emit(invocation.as_json, binding_json(binding), lambda: f"Bound: {binding_text(binding)}.")


@queues.command(short_help="Have an exchange send messages to a queue no more.")
@_names_binding
@pass_invocation
def unbind(
    invocation: Invocation,
    exchange: str,
    queue: str,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, bytes | None], ...],
) -> None:
    """End the binding with that KEY and these arguments. Exits with 1 if there is none.

    Say it as 'txbroker queues show' shows it.
    """
    wanted = binding_of(exchange, queue, key, to_exchange, arguments)
    with invocation.connect() as broker:
        found = bindings_like(broker, wanted)
        if not found:
            raise Failure(f"there is no such binding {binding_text(wanted)}; nothing was changed", Exit.NO)
        for each in found:  # of several the values of arguments are written alike
            broker.unbind(exchange, **ends_of(each))
    emit(invocation.as_json, binding_json(wanted), lambda: f"Unbound: {binding_text(wanted)}.")


def binding_of(
    exchange: str, queue: str, key: str, to_exchange: bool, arguments: tuple[tuple[str, bytes | None], ...]
) -> Binding:
    """Return the binding that a command line names."""
    if len(dict(arguments)) < len(arguments):
        raise click.UsageError("one name comes twice among the arguments; a binding has one value for each")
    return Binding(exchange, key, queue, to_exchange, tuple(sorted(arguments, key=lambda each: each[0])))


def bindings_like(broker: Connection, wanted: Binding) -> list[Binding]:
    """Return the bindings that a command line means; the one that it says, if those of the exchange cannot be seen."""
    try:
        [source] = broker.exchanges(wanted.exchange)
    except (AccessDenied, LimitExceeded):
        return [wanted]
    return [each for each in source.bindings if written(each) == written(wanted)]


def ends_of(binding: Binding) -> dict[str, Any]:
    """Return a binding as the client's methods take it, behind its exchange."""
    end = "to_exchange" if binding.to_exchange else "queue"
    return {end: binding.destination, "key": binding.key, "arguments": dict(binding.arguments)}


def written(binding: Binding) -> tuple[object, ...]:
    """Return what a command line can say of a binding: there a number cannot be told from its digits."""
    values = {name: None if value is None else scalar_text(value) for name, value in binding.arguments}
    return binding.destination, binding.to_exchange, binding.key, values


def binding_text(binding: Binding) -> str:
    """Return a binding for people."""
    end = f"{'exchange' if binding.to_exchange else 'queue'} {visible(binding.destination)}"
    key = f", with key {visible(binding.key)}" if binding.key else ""
    arguments = f", with arguments {arguments_text(binding.arguments)}" if binding.arguments else ""
    return f"from exchange {exchange_text(binding.exchange)} to {end}{key}{arguments}"


# -- messages ----------------------------------------------------------------------------------------


@queues.command(short_help="Take messages from a queue and print them.")
@click.argument("name")
@click.option(
    "--count", type=click.IntRange(1), default=1, metavar="N", help="Take so many at most. Default: 1."
)
@click.option(
    "--ack", is_flag=True, help="Acknowledge each once it is printed: it is gone from the queue then."
)
@click.option(
    "--wait",
    type=Parsed("duration", pause),
    default="1s",
    help="How long to wait for a message while there is none. Default: 1s.",
)
@pass_invocation
def get(invocation: Invocation, name: str, count: int, ack: bool, wait: int) -> None:
    """Take messages from the queue NAME and print them, as 'txbroker tail' prints messages.

    Without --ack they are given back at the end, and nobody else gets them before. No attempt is counted, but whoever
    gets them next is told that they may have been delivered before. With --json each message is a line. Exits with 1 if
    there is none.
    """
    taken = 0
    with invocation.connect() as broker, noted_interrupt() as is_interrupted:
        reader = broker.queue(name, prefetch=min(count, PREFETCH))
        try:
            while taken < count and (message := awaited(reader, wait / 1e6, is_interrupted)) is not None:
                click.echo(
                    json_line(taken_json(name, message)) if invocation.as_json else taken_text(name, message)
                )
                taken += 1
                if ack:
                    reader.ack(message)
        finally:
            reader.close()  # also if it fails: no attempt is counted for what was only looked at
    if taken and not ack:
        click.echo(f"Gave back {count_text(taken, 'message')}; --ack takes them out of the queue.", err=True)
    if is_interrupted():
        raise click.exceptions.Exit(int(Exit.INTERRUPTED))
    if not taken:
        raise Failure(f"queue {name!r} has no message that can be got now", Exit.NO)


def awaited(reader: Queue, wait: float, is_interrupted: Callable[[], bool]) -> Message | None:
    """Return the next message of a queue; None if none comes within ``wait`` seconds, or the command is interrupted."""
    end = monotonic() + wait
    while not is_interrupted():
        left = end - monotonic()
        message = reader.get(min(max(left, 0.0), LOOK))
        if message is not None or left <= LOOK:
            return message
    return None


def taken_text(queue: str, message: Message) -> str:
    """Return a message of a queue for people, on one line."""
    marks = [f"attempts={message.attempts}"] if message.attempts else []
    marks += ["redelivered"] if message.redelivered else []
    return content_text(f"{visible(queue)} {message.offset}", message, marks)


def taken_json(queue: str, message: Message) -> dict[str, object]:
    """Return a message of a queue in JSON."""
    marks = {"attempts": message.attempts, "redelivered": message.redelivered}
    return {"queue": queue, **content_json(message), **marks}


@queues.command(short_help="Send messages through an exchange to queues.")
@click.argument("exchange")
@click.argument("key")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@message_options
@click.option("--no-mandatory", "droppable", is_flag=True, help="Drop messages that find no queue.")
@click.option("--ttl", type=Parsed("duration", duration), help="They expire after so long in a queue.")
@click.option(
    "--priority",
    type=click.IntRange(0, MAX_PRIORITY),
    default=0,
    metavar="N",
    help="Those of a higher one are got first, from a queue that has priorities. Default: 0.",
)
@pass_invocation
def publish(
    invocation: Invocation,
    exchange: str,
    key: str,
    values: tuple[str, ...],
    headers: tuple[tuple[str, bytes], ...],
    files: tuple[Path, ...],
    tags: tuple[str, ...],
    new_ids: bool,
    droppable: bool,
    ttl: int | None,
    priority: int,
) -> None:
    """Send messages with the key KEY through EXCHANGE to the queues that its bindings find.

    The exchange "" sends to the queue whose name is KEY. Each VALUE is a message. Without a VALUE each --file is a
    message, and without files each line of stdin. A message that finds no queue is refused, unless --no-mandatory says
    otherwise. The command ends when all messages are forced to disk. With --json each receipt is a line.
    """
    if values and files:
        raise click.UsageError("say either VALUEs or --file, not both")
    told = Published(exchange, key, droppable, invocation.as_json)
    given = headers_of(publishing_headers(headers, None if ttl is None else ttl / 1e6, priority))
    with invocation.connect() as broker:
        sending = Sending(
            broker, target_of(exchange, not droppable), key_of(key), given, None, new_ids, tags or None, {}
        )
        try:
            for receipt in sending.receipts(bodies(values, files)):
                told.add(receipt)
        except TxBrokerError as error:
            raise Failure(f"{type(error).__name__}: {error} {told.so_far()}", exit_for(error)) from error
        finally:
            told.tell()


@dataclass
class Published:
    """The messages that an exchange has taken: printed line by line in JSON, as a summary for people."""

    exchange: str
    key: str
    droppable: bool
    as_json: bool
    count: int = 0
    durability: str = ""

    def add(self, receipt: Receipt) -> None:
        """Count a receipt; in JSON also print it as a line. ``number`` is the message's among those of the exchange."""
        self.count += 1
        self.durability = durability_text(receipt)
        if self.as_json:
            line: dict[str, object] = {
                "exchange": self.exchange, "key": self.key, "number": receipt.offset,
                "durability": self.durability, "id": bytes_json(receipt.id),
            }  # fmt: skip
            click.echo(json_line(line))

    def tell(self) -> None:
        """Print for people where the messages went."""
        if self.as_json or not self.count:
            return
        way = f"through exchange {exchange_text(self.exchange)} with key {visible(self.key)}"
        if not self.exchange:
            way = f"to queue {visible(self.key)}"
        dropped = " What found no queue was dropped." if self.droppable else ""
        click.echo(f"Sent {count_text(self.count, 'message')} {way}, {self.durability}.{dropped}")

    def so_far(self) -> str:
        """Return how many messages were acknowledged, for an error in the middle."""
        return f"({count_text(self.count, 'message')} had been acknowledged before that)"
