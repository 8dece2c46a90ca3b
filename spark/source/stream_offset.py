"""The offset of a stream, as Spark keeps it in its checkpoint: what it is of, and how far each log has been read.

    {"identity": "5f3c...", "start": [6, "a0b1..."], "topics": {"orders": {"0": {"log": 17, "next": 4711}}}}

``log`` is the number of the partition's log, which is never reused: a topic that was deleted and made anew, or another
broker's data behind the same address, are noticed, and never read from an offset that means nothing there. ``start``
is the start of the broker in which the offset was made, with its nonce: data that were set back to an older copy do
not know it. A subscribed topic without partitions was deleted, and that has been told. ``archive``: all entries of the
outcome archive below this offset are of transactions that the stream has had whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark.source.logs import Log, Start

Place = tuple[str, int]
"""Topic and index."""


class Position(NamedTuple):
    """The position of a stream in a log: ``next`` is the first offset that it has not had yet.

    ``first``: the log is new to the stream in the batch that ends here, and the batch begins there in it.
    """

    log: int
    next: int
    first: int | None = None


class StreamOffset(NamedTuple):
    """The progress of a stream. ``gone`` are topics that it named and that were deleted; ``start`` is None if
    unknown.
    """

    identity: str
    start: Start | None
    positions: dict[Place, Position]
    gone: frozenset[str] = frozenset()
    archive: int | None = None

    @property
    def topics(self) -> set[str]:
        """Return the topics that the stream has seen."""
        return {topic for topic, _ in self.positions} | self.gone

    def is_at(self, other: StreamOffset) -> bool:
        """Return whether no message lies between the two, and nothing to be reported."""
        return self.gone == other.gone and _reached(self) == _reached(other)

    def written(self) -> dict[str, Any]:
        """Return it as Spark keeps it."""
        topics: dict[str, dict[str, dict[str, int]]] = {topic: {} for topic in sorted(self.topics)}
        for (topic, index), position in sorted(self.positions.items()):
            at = {name: value for name, value in position._asdict().items() if value is not None}
            topics[topic][str(index)] = at
        start = {} if self.start is None else {"start": [self.start.number, self.start.nonce.hex()]}
        archive = {} if self.archive is None else {"archive": self.archive}
        return {"identity": self.identity, **start, **archive, "topics": topics}


def place_of(log: Log) -> Place:
    """Return the key of a log in an offset."""
    return log.topic, log.index


def offset_in(kept: Mapping[str, Any]) -> StreamOffset:
    """Return the offset that Spark has kept."""
    start = kept.get("start")
    return StreamOffset(
        kept["identity"],
        None if start is None else Start(start[0], bytes.fromhex(start[1])),
        {
            (topic, int(index)): Position(at["log"], at["next"], at.get("first"))
            for topic, partitions in kept["topics"].items()
            for index, at in partitions.items()
        },
        frozenset(topic for topic, partitions in kept["topics"].items() if not partitions),
        kept.get("archive"),
    )


def _reached(offset: StreamOffset) -> dict[Place, tuple[int, int]]:
    return {place: (position.log, position.next) for place, position in offset.positions.items()}
