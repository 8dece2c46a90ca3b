"""``txbroker exchanges``: shows exchanges with their bindings, makes and deletes them."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group as Stack

from journal.records.queue_entries import DEFAULT_EXCHANGE, ExchangeSettings
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import FILTERED, count_text, emit, table
from txbroker.cli.queue_description import (
    EXCHANGE_COLUMNS,
    bindings_table,
    exchange_facts,
    exchange_json,
    exchange_row,
    exchange_settings_json,
    exchange_text,
)
from txbroker.client.operations.queue_operations import KINDS

BY_NAME = "It has no bindings: it sends each message to the queue whose name is the message's key."


@click.group(cls=Group)
def exchanges() -> None:
    """Show, declare and delete exchanges.

    An exchange sends each message to the queues that its bindings find: 'txbroker queues bind' makes them. The one
    without a name, "", sends to the queue whose name is the message's key.
    """


@exchanges.command("list")
@pass_invocation
def list_exchanges(invocation: Invocation) -> None:
    """List all exchanges, with the number of their bindings. "published" are messages sent without a transaction."""
    with invocation.connect() as broker:
        found = broker.exchanges()
    emit(
        invocation.as_json,
        {"exchanges": [exchange_json(each) for each in found], "is_filtered": found.is_filtered},
        lambda: Stack(
            table(EXCHANGE_COLUMNS, map(exchange_row, found), "There are no exchanges."),
            *([FILTERED] if found.is_filtered else []),
        ),
    )


@exchanges.command(short_help="Show the exchange NAME with its bindings.")
@click.argument("name")
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show the exchange NAME with its bindings, in the order in which they were made. Exits with 1 if there is none."""
    with invocation.connect() as broker:
        [found] = broker.exchanges(name)
    empty = BY_NAME if found.number == DEFAULT_EXCHANGE else "It has no bindings."
    emit(
        invocation.as_json,
        exchange_json(found),
        lambda: Stack(exchange_facts(found), "", bindings_table(found.bindings, empty, with_source=False)),
    )


@exchanges.command(short_help="Have an exchange of that NAME.")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    default="direct",
    show_default=True,
    help="How it finds bindings: by a key that is the message's (direct), all of them (fanout), by a pattern for the "
    "words of the key (topic), by the message's headers (headers).",
)
@click.option("--internal", is_flag=True, help="It takes messages from other exchanges alone.")
@click.option("--auto-delete", is_flag=True, help="It is deleted with the last of its bindings.")
@click.option("--alternate", metavar="NAME", help="The exchange that gets what this one finds no way for.")
@click.option(
    "--durable/--no-durable",
    default=True,
    help="Whether it outlives the broker's process: else the next start deletes it. Default: it does.",
)
@click.option(
    "--delayed",
    is_flag=True,
    help="It lets a message wait for so many milliseconds as its header x-delay says.",
)
@pass_invocation
def declare(invocation: Invocation, /, name: str, kind: str, **given: Any) -> None:
    """Have an exchange of that NAME: it is made if there is none. One of another kind is refused."""
    settings = ExchangeSettings(KINDS[kind], **given)
    with invocation.connect() as broker:
        broker.declare_exchange(name, kind, **given)
    emit(
        invocation.as_json,
        {"declared": name, "settings": exchange_settings_json(settings)},
        lambda: f"Exchange {exchange_text(name)} of kind {kind} is there.",
    )


@exchanges.command(short_help="Delete the exchange NAME with its bindings.")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only if it has no bindings.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def delete(invocation: Invocation, name: str, if_unused: bool, yes: bool) -> None:
    """Delete the exchange NAME with all bindings from it and to it, and with the messages that wait at it. Queues keep
    those that they have.
    """
    with invocation.connect() as broker:
        [found] = broker.exchanges(name)
        shown = exchange_text(name)
        waits = "waits" if found.waiting == 1 else "wait"
        dropped = (
            f", and drop {count_text(found.waiting, 'message')} that {waits} at it" if found.waiting else ""
        )
        confirm(f"Delete exchange {shown} with {count_text(len(found.bindings), 'binding')}{dropped}?", yes)
        broker.delete_exchange(name, found.number, if_unused=if_unused)  # the one that was shown
    emit(invocation.as_json, {"deleted": name}, lambda: f"Deleted exchange {shown}.")
