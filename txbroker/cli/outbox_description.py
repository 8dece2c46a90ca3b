"""What lies in an outbox, in JSON and for people: streams, refused rows, one row with its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from txbroker.cli.output import (
    age_text,
    bytes_json,
    bytes_text,
    count_text,
    facts,
    shortened,
    size_text,
    table,
    time_text,
    visible,
)
from txbroker.databases.outbox.contents import Place, RowContent, RunContent, StreamContent

if TYPE_CHECKING:
    from txbroker import Message

SHORT = 60
"""Characters of a key, a value or a header that are shown to people."""

WIDTH = 32
"""Columns of a stream's name, which is never folded."""


def stream_json(found: StreamContent) -> dict[str, object]:
    """Return a stream with rows in JSON; ``oldest`` is in µs since 1970 UTC, ``idle`` in µs."""
    rows, known = found.rows, found.known
    return {
        "stream": rows.stream,
        "lowest": rows.lowest,
        "highest": rows.highest,
        "rows": rows.rows,
        "undelivered": rows.rows - found.delivered,
        "delivered": found.delivered,
        "oldest": found.oldest,
        "last": None if known is None else known.last,
        "client": None if known is None else known.client,
        "idle": None if known is None else known.idle,
    }


def refused_json(found: RowContent) -> dict[str, object]:
    """Return a refused row in JSON, without its messages."""
    return {
        "stream": found.stream,
        "number": found.number,
        "refused_at": found.refused_at,
        "error": found.error,
        "ended": found.ended,
        "topics": found.topics,
        "messages": found.messages,
    }


def list_text(
    streams: Sequence[StreamContent],
    refused: Sequence[RowContent],
    total: int,
    elsewhere: Sequence[tuple[str, int]],
    now: int,
) -> RenderableType:
    """Return for people what lies in an outbox: ``total`` rows are refused, ``elsewhere`` counts rows for brokers."""
    parts: list[RenderableType] = [_streams_text(streams, now)]
    if refused:
        columns = ("refused row", "number", "at", "messages", "topics", "error")
        rows = [
            (each.stream, each.number, each.refused_at, each.messages, ", ".join(each.topics), each.error)
            for each in refused
        ]
        head = "Refused for ever"
        head += "" if len(refused) == total else f", the first {len(refused):,} of {total:,}"
        parts += ["", Text(head, style="bold"), table(columns, rows, "", least={"refused row": WIDTH})]
    else:
        parts += ["", "No row is refused."]
    parts += [
        Text(
            f"\n{count_text(count, 'row')} for another broker, whose data are {identity}: only programs that reach "
            "that one deliver them."
        )
        for identity, count in elsewhere
    ]
    return Stack(*parts)


def _streams_text(streams: Sequence[StreamContent], now: int) -> RenderableType:
    columns = ("stream", "numbers", "undelivered", "delivered", "oldest", "last", "held by", "idle")
    rows = []
    for each in streams:
        counted, known = each.rows, each.known
        numbers = f"{counted.lowest}–{counted.highest}" if counted.rows > 1 else str(counted.lowest)
        oldest = None if each.oldest is None else age_text(max(0, now - each.oldest))
        told = (None, None, None) if known is None else (known.last, known.client, age_text(known.idle))
        rows.append((counted.stream, numbers, counted.rows - each.delivered, each.delivered, oldest, *told))
    return table(columns, rows, "The outbox has no rows.", least={"stream": WIDTH})


def row_json(found: RowContent) -> dict[str, object]:
    """Return a row in JSON, with all of its messages."""
    return {
        "stream": found.stream,
        "number": found.number,
        "state": found.place.name.lower(),
        "ended": found.ended,
        "error": found.error or None,
        "refused_at": found.refused_at or None,
        "obstacle": found.obstacle or None,
        "runs": [_run_json(run) for run in found.runs],
    }


def _run_json(found: RunContent) -> dict[str, object]:
    run = found.run
    return {
        "topic": run.topic,
        "partition": run.partition,
        "partitions": run.partitions,
        "bytes": run.size,
        "count": found.total,
        "obstacle": found.obstacle or None,
        "messages": [_message_json(message) for message in found.messages],
    }


def _message_json(message: Message) -> dict[str, object]:
    return {
        "timestamp": message.timestamp,
        "key": bytes_json(message.key),
        "value": bytes_json(message.value),
        "id": bytes_json(message.id),
        "tags": list(message.tags),
        "headers": [[name, bytes_json(value)] for name, value in message.headers],
    }


def row_text(found: RowContent, limit: int) -> RenderableType:
    """Return a row for people, with its first messages."""
    known: list[tuple[str, object]] = [
        ("stream", found.stream),
        ("number", found.number),
        ("state", found.place.value),
        ("block ended", None if found.ended is None else time_text(found.ended)),
    ]
    if found.place is Place.REFUSED:
        known += [("refused", found.refused_at), ("error", found.error)]
    parts: list[RenderableType] = [facts(known)]
    if found.obstacle:
        parts += ["", Text(visible(f"Its messages cannot be read: {found.obstacle}"))]
    if found.runs:
        runs = [
            (
                run.run.topic,
                f"{run.run.partition} of {run.run.partitions}",
                run.total,
                size_text(run.run.size),
            )
            for run in found.runs
        ]
        parts += ["", table(("topic", "partition", "messages", "bytes"), runs, "")]
    parts += [
        Text(visible(f"\nThe messages for {run.run.topic} cannot be opened: {run.obstacle}"))
        for run in found.runs
        if run.obstacle
    ]
    messages = [message for run in found.runs for message in run.messages]
    if messages:
        parts += ["", _messages_text(messages[:limit])]
    if len(messages) > limit:
        parts.append(f"These are the first {limit:,} of {count_text(len(messages), 'message')}; see --limit.")
    return Stack(*parts)


def _messages_text(messages: Sequence[Message]) -> RenderableType:
    rows = [
        (
            f"{message.topic}[{message.partition}]",
            None if message.key is None else shortened(bytes_text(message.key), SHORT),
            "(tombstone)" if message.value is None else shortened(bytes_text(message.value), SHORT),
            ", ".join(
                f"{visible(name)}={shortened(bytes_text(value), SHORT)}" for name, value in message.headers
            )
            or None,
        )
        for message in messages
    ]
    return table(("for", "key", "value", "headers and tags"), rows, "")
