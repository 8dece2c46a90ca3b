"""The placing of messages that are due: one record for some of them, with their frames."""

from __future__ import annotations

from typing import Final, Protocol

from journal.engine.engine import Engine
from journal.formats.envelope import PLACES_TOPIC, Envelope, Places, pack_places
from journal.records.record import Due, Placement

MOST: Final = 512
"""Most messages of one record: 2 ms."""
MOST_BYTES: Final = 256 << 10


class DueBatch(Protocol):
    """Some messages that are due, in their order, to be placed by one record: ``count`` of them, and those ``gone``,
    which have nowhere to go.
    """

    count: int
    gone: list[tuple[int, int]]

    def fits(self, envelope: Envelope) -> bool:
        """Return whether the message may be added; the first one always. May raise DiskFull."""

    def add(self, number: int, envelope: Envelope) -> bool:
        """Add the message with that id; return whether that was done: there may be no way for it yet."""

    def place(self) -> None:
        """Have the record accepted; raises ``MemoryExhausted`` before anything has changed."""


class Exchanges(Protocol):
    """Where messages go that are due and are for an exchange."""

    def __contains__(self, address: int) -> bool:
        """Return whether there is an exchange at that address."""

    def batch(self, address: int) -> DueBatch:
        """Return an empty batch of messages for that exchange."""


class NoExchanges:
    """What an embedded log knows of exchanges: nothing. What is for one waits for a broker."""

    count = 0

    def __init__(self) -> None:
        self.gone: list[tuple[int, int]] = []

    def __contains__(self, address: int) -> bool:
        return True

    def batch(self, address: int) -> DueBatch:  # noqa: ARG002
        """Return a batch that takes nothing."""
        return self

    def fits(self, envelope: Envelope) -> bool:  # noqa: ARG002
        """Return that the message may be added, and is not."""
        return True

    def add(self, number: int, envelope: Envelope) -> bool:  # noqa: ARG002
        """Return that the message waits."""
        return False

    def place(self) -> None:
        """Place nothing: there is nothing."""


class Batch:
    """A batch of messages for partitions, and of those whose partition or exchange is no more."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._catalog = engine.catalog
        self._frames: dict[int, list[memoryview]] = {}
        self._ids: dict[int, list[int]] = {}
        self.count = 0
        self._bytes = 0
        self.gone: list[tuple[int, int]] = []

    def fits(self, envelope: Envelope) -> bool:
        """Return whether the message may be added."""
        added = self.count + len(self.gone)
        return not added or (added < MOST and self._bytes + len(envelope.frame) <= MOST_BYTES)

    def add(self, number: int, envelope: Envelope) -> bool:
        """Add the message with that id."""
        partition = envelope.partition
        if partition not in self._catalog.stores:
            self.gone.append((number, partition))
            return True
        self._frames.setdefault(partition, []).append(envelope.frame)
        self._ids.setdefault(partition, []).append(number)
        self.count += 1
        self._bytes += len(envelope.frame)
        return True

    def place(self) -> None:
        """Have the record accepted; raises ``MemoryExhausted`` before anything has changed."""
        engine, stores = self._engine, self._catalog.stores
        at, wall_offset = engine.now(), self._catalog.wall_offset
        ends = {partition: stores[partition].end_offset for partition in self._frames}
        runs = {partition: b"".join(frames) for partition, frames in self._frames.items()}
        told = [(partition, ends[partition], ids) for partition, ids in self._ids.items()]
        places = self._catalog.topics[PLACES_TOPIC].partitions[0]
        runs[places.number] = pack_places(Places(told, [number for number, _ in self.gone]), at + wall_offset)
        self._catalog.make_room_for({partition: len(frames) for partition, frames in runs.items()})
        placements, starts, views, start = list[Placement](), list[int](), [], 0
        for partition, frames in runs.items():
            store, count = stores[partition], len(self._ids.get(partition, (0,)))
            placements.append(Placement(partition, store.end_offset, count))
            starts.append(start)
            start += len(frames)
            views.append(store.append(frames, count, at, wall_offset))
        ids = [number for some in self._ids.values() for number in some]
        engine.accept(Due(ids, placements, starts, at, self.gone), b"".join(views))
