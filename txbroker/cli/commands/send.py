"""``txbroker send``: sends messages from arguments, files or the lines of stdin."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from journal.formats.compression import NAMES as CODECS
from journal.quantities import duration
from txbroker.cli.arguments import Parsed, header
from txbroker.cli.clock import TIME
from txbroker.cli.exits import Failure, exit_for
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import age_text, bytes_json, count_text, json_line, time_text
from txbroker.errors import TxBrokerError

if TYPE_CHECKING:
    from txbroker import Connection, Receipt
    from txbroker.client.blocking.send_future import SendFuture

C = TypeVar("C", bound=Callable[..., Any])

SHOWN_IDS = 10
"""Most ids of scheduled messages that are shown to a person."""

WINDOW = 1_000
"""Most unanswered sends: enough to fill the pipe, few enough to keep in memory."""


def message_options(command: C) -> C:
    """Add the options that say what the messages are, beside their values."""
    for add in (
        click.option("--new-ids", is_flag=True, help="Give each message a new id, which --json prints."),
        click.option("--tag", "tags", multiple=True, help="A tag, by which groups can filter. Repeatable."),
        click.option(
            "--file",
            "files",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Send a file's bytes as one message. Repeatable.",
        ),
        click.option(
            "--header",
            "headers",
            multiple=True,
            metavar="NAME=VALUE",
            type=Parsed("header", header),
            help="A header. Repeatable, also with the same name.",
        ),
    ):
        command = add(command)
    return command


@click.command(cls=Command)
@click.argument("topic")
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option(
    "--key", help="The key, which chooses the partition: messages with the same key keep their order."
)
@message_options
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Send to this partition.")
@click.option(
    "--compression",
    type=click.Choice(list(CODECS)),
    help="Compress batches; the broker stores them compressed.",
)
@click.option(
    "--after",
    type=Parsed("duration", duration),
    metavar="DURATION",
    help="Have each message come later: after this time, as 10m or 3d.",
)
@click.option("--at", type=TIME, metavar="TIME", help="Have them come at this time, as 2026-12-01T08:00:00Z.")
@pass_invocation
def send(
    invocation: Invocation,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    tags: tuple[str, ...],
    files: tuple[Path, ...],
    partition: int | None,
    compression: str | None,
    new_ids: bool,
    after: int | None,
    at: int | None,
) -> None:
    """Send messages to TOPIC.

    Each VALUE is a message. Without a VALUE each --file is a message, and without files each line of stdin.
    The command ends when all messages are forced to disk. With --json each receipt is a line. With --after or --at they
    are scheduled, for ten years ahead at most: "txbroker scheduled" shows them, and takes them back.
    """
    if values and files:
        raise click.UsageError("say either VALUEs or --file, not both")
    if after is not None and at is not None:
        raise click.UsageError("say either --after or --at, not both")
    when = f"at {time_text(at)}" if at is not None else f"in {age_text(after or 0)}"
    tally = Tally(topic, invocation.as_json, when)
    encoded_key = None if key is None else key.encode("utf-8", "surrogateescape")
    with invocation.connect(compression) as broker:
        later = {"after": None if after is None else timedelta(microseconds=after), "at": at}
        sending = Sending(broker, topic, encoded_key, headers, partition, new_ids, tags or None, later)
        try:
            for receipt in sending.receipts(bodies(values, files)):
                tally.add(receipt)
        except TxBrokerError as error:
            raise Failure(f"{type(error).__name__}: {error} {tally.so_far()}", exit_for(error)) from error
        finally:
            tally.tell()


def bodies(values: Iterable[str], files: Iterable[Path]) -> Iterator[bytes]:
    """Yield the messages to send: from the first of the three sources that has any."""
    if values:
        yield from (value.encode("utf-8", "surrogateescape") for value in values)
    elif files:
        yield from (path.read_bytes() for path in files)
    else:
        yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)


@dataclass
class Sending:
    """Sends one after the other without waiting, and yields their receipts in order."""

    broker: Connection
    topic: str
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    new_ids: bool
    tags: tuple[str, ...] | None
    later: dict[str, Any]

    def receipts(self, values: Iterable[bytes]) -> Iterator[Receipt]:
        """Send all and yield each receipt; raises the error of the first failed send."""
        waiting: deque[SendFuture] = deque()
        for value in values:
            waiting.append(
                self.broker.send_async(
                    self.topic,
                    value,
                    key=self.key,
                    headers=self.headers,
                    partition=self.partition,
                    id=self.new_ids,
                    tags=self.tags,
                    **self.later,
                )
            )
            while waiting and (len(waiting) >= WINDOW or waiting[0].done()):
                yield waiting.popleft().result()
        self.broker.flush()
        while waiting:
            yield waiting.popleft().result()


@dataclass
class Tally:
    """The acknowledged messages: printed line by line in JSON, as a summary for people."""

    topic: str
    as_json: bool
    when: str = ""
    """When what is scheduled is due."""
    counts: Counter[int] = field(default_factory=Counter)
    last: dict[int, int | None] = field(default_factory=dict)
    durability: str = ""
    scheduled: list[str] = field(default_factory=list)

    def add(self, receipt: Receipt) -> None:
        """Count a receipt; in JSON also print it as a line."""
        self.counts[receipt.partition] += 1
        self.last[receipt.partition] = receipt.offset
        self.durability = durability_text(receipt)
        if receipt.scheduled is not None and len(self.scheduled) <= SHOWN_IDS:
            self.scheduled.append(str(receipt.scheduled))
        if self.as_json:
            click.echo(json_line(receipt_json(receipt)))

    def tell(self) -> None:
        """Print for people where the messages went."""
        if self.as_json or not self.counts:
            return
        if self.scheduled:
            self._tell_scheduled()
            return
        places = ", ".join(
            f"partition {index}: {self.counts[index]:,} up to offset {self.last[index]}"
            for index in sorted(self.counts)
        )
        sent = count_text(self.counts.total(), "message")
        click.echo(f"Sent {sent} to {self.topic} ({places}), {self.durability}.")

    def _tell_scheduled(self) -> None:
        count = self.counts.total()
        ids = ", ".join(self.scheduled) if count <= SHOWN_IDS else "list them with 'txbroker scheduled list'"
        click.echo(
            f"Scheduled {count_text(count, 'message')} for {self.topic}, due {self.when}, {self.durability}: {ids}."
        )

    def so_far(self) -> str:
        """Return the acknowledged messages as text, for an error in the middle."""
        return f"({count_text(self.counts.total(), 'message')} had been acknowledged before that)"


def durability_text(receipt: Receipt) -> str:
    """Return how durable the message is, as its receipt says."""
    return receipt.durability.value


def receipt_json(receipt: Receipt) -> dict[str, object]:
    """Return a receipt in JSON."""
    return {
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "durability": durability_text(receipt),
        "id": bytes_json(receipt.id),
        "scheduled": None if receipt.scheduled is None else str(receipt.scheduled),
    }
