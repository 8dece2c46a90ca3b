"""The requests of a dialogue about streams of outboxes: claimed, delivered, listed and released."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from txbroker.wire.messages import Delivery, StreamHeld, StreamInfo

STREAMS = ("s1", "s2")
STREAM_REQUESTS = ("ClaimStream", "Commit", "ReleaseStream")


class Streams:
    """What names of streams in a script mean, and the epochs under which they were claimed last."""

    def __init__(self, id_of: Callable[[str], bytes]) -> None:
        self._id_of = id_of
        self._epochs: dict[str, bytes] = {}

    def field(self, name: str, value: Any) -> Any:
        """A field of a request."""
        if name == "stream":
            return self._id_of(value)
        if name == "epoch":
            return self._epochs.get(value, b"")
        stream, number, after = value
        return Delivery(self._id_of(stream), self._epochs.get(stream, b""), number, after)

    def learn(self, name: str, answer: StreamHeld) -> None:
        """A claim was answered."""
        self._epochs[name] = answer.epoch


def told_of_stream(value: StreamHeld | StreamInfo) -> dict[str, Any]:
    """What an answer says of a stream, but for what is random."""
    if isinstance(value, StreamHeld):
        return {"last": value.last, "is_new": value.born == value.epoch}
    return {"stream": value.stream, "table": value.table, "last": value.last, "client": value.client}


class Author(Protocol):
    """Who draws a script. ``numbers`` are those that were said last of each stream."""

    random: Random
    numbers: dict[str, int]
    clients: dict[str, Any]

    def usually(self, value: Any, *others: Any) -> Any: ...

    def partition(self) -> str: ...

    def values_drawn(self, most: int = 3) -> Any: ...


def claim_stream(author: Author, name: str) -> list[Any]:
    """Claim one, mostly of the table that it is of, and with its generation."""
    fields = {
        "stream": author.usually(author.random.choice(STREAMS), "short"),
        "table": author.usually("t", "u", ""),
    }
    return ["ClaimStream", fields | {"generation": author.usually(1, 2, 0, -1)}]


def deliver(author: Author, name: str) -> list[Any]:
    """Deliver the next number, or one that is delivered, or one too far."""
    stream, client = author.random.choice(STREAMS), author.clients[name]
    client.serial += 1
    after = author.numbers.get(stream, 0)
    number = after + author.random.choice((1, 1, 2))
    after, number = author.usually((after, number), (max(after - 1, 0), max(after, 1)), (number, number + 1))
    author.numbers[stream] = max(number, author.numbers.get(stream, 0))
    fields = {"serial": client.serial, "data": author.values_drawn(), "runs": author.partition()}
    return ["Commit", fields | {"delivery": [stream, number, after]}]


def release_stream(author: Author, name: str) -> list[Any]:
    """Release one, mostly behind what was delivered."""
    stream = author.random.choice(STREAMS)
    last = author.usually(author.numbers.get(stream, 0), 99)
    return [
        "ReleaseStream",
        {"stream": stream, "epoch": stream, "last": last, "generation": author.usually(1, 2, 0)},
    ]


def list_streams(author: Author, name: str) -> list[Any]:
    """List those of a table, or all."""
    return ["ListStreams", {"table": author.usually("t", "", "u")}]
