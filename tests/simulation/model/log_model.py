"""The model of logs, as readers see them: every message once, at one place, in its order, and nothing lost or changed
later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Violation(AssertionError):
    """The broker broke a promise."""


def require(holds: object, expected: str, found: object = "") -> None:
    """Raise :class:`Violation` unless it holds."""
    if not holds:
        raise Violation(f"expected: {expected}\nfound:    {found}")


class Owner(Protocol):
    """What a message belongs to. Of one ``stream``, what has a lower ``place`` comes first in each log."""

    name: str
    stream: str
    place: int
    values: dict[int, list[bytes]]


class Floor(NamedTuple):
    """What was known when somebody asked: the time, and where logs start and end at least."""

    at: int
    logs: dict[int, tuple[int, int]]


class Logs:
    """Every partition's log as far as anybody has seen it, or was told of it by an answer."""

    def __init__(self) -> None:
        self.logs: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.places: dict[bytes, tuple[int, int]] = {}
        self.owners: dict[bytes, Owner] = {}
        self.starts: dict[int, int] = defaultdict(int)
        self.ends: dict[int, int] = defaultdict(int)
        self.moments: list[tuple[Owner, Mapping[int, int]]] = []
        self.finished: Callable[[int], set[bytes]] = lambda partition: set()
        """The messages of a log that may be finished: only a queue's log has any."""

    def floor(self, at: int, logs: Iterable[int]) -> Floor:
        """What is known now."""
        return Floor(at, {p: (self.starts[p], self.ends[p]) for p in logs})

    def put(self, partition: int, offset: int, value: bytes) -> None:
        """A message is there: nowhere else, and nothing else."""
        held = self.logs[partition].setdefault(offset, value)
        require(held == value, f"{held[:40]!r} stays at {partition}/{offset}", value[:40])
        place = self.places.setdefault(value, (partition, offset))
        require(place == (partition, offset), f"{value[:40]!r} is at {place} only", (partition, offset))
        self.ends[partition] = max(offset + 1, self.ends[partition])

    def saw(
        self, partition: int, start: int, end: int, offset: int, values: Sequence[bytes | None], since: Floor
    ) -> set[Owner]:
        """A reader got these, None for a gap, who asked when ``since`` was known; returns to what they belong."""
        least, most = since.logs.get(partition, (0, 0))
        require(start >= least and end >= most, f"log {partition} has {least} to {most}", f"{start} to {end}")
        self.starts[partition] = max(start, self.starts[partition])
        self.ends[partition] = max(end, self.ends[partition])
        owners: dict[Owner, None] = {}
        for at, value in enumerate(values, offset):
            if value is None:
                require(at < end, f"log {partition} ends at {end}", f"a gap at {at}")
                continue
            owner = self.owners.get(value)
            sent = owner is not None and value in owner.values.get(partition, ())
            require(
                sent and at < end, f"log {partition} up to {end} has what was sent to it", (at, value[:40])
            )
            assert owner is not None
            self.put(partition, at, value)
            owners[owner] = None
        return owners.keys()

    def at_once(self, owner: Owner, ends: Mapping[int, int]) -> None:
        """Its messages are all below these ends, which were told together, or none of them is."""
        known = {p: [self.places.get(v) for v in sent] for p, sent in owner.values.items() if p in ends}
        shown = {place and place[1] < ends[p] for p, places in known.items() for place in places}
        require(
            not shown >= {True, False},
            f"{owner.name} is seen everywhere at once",
            f"partly, with ends {ends}",
        )
        if None in shown:
            self.moments.append((owner, ends))

    def look_again(self) -> None:
        """After all has been read: at what was told before it was known where all messages are."""
        moments, self.moments = self.moments, []
        for owner, ends in moments:
            self.at_once(owner, ends)
        self.moments = []

    def there(self, owner: Owner, alive: set[int]) -> list[bool]:
        """Whether each of its messages is there, in logs of which nothing has gone. After all has been read."""
        logs = [p for p in owner.values if p in alive and not self.starts[p]]
        return [
            value in self.places or value in self.finished(partition)
            for partition in logs
            for value in owner.values[partition]
        ]

    def check_order(self, partition: int, gaps: Container[int] = ()) -> None:
        """No offset is left out but those in ``gaps``, streams keep their order, and what was sent together lies
        together. After reading all.
        """
        last: dict[str, tuple[int, int]] = {}
        for offset in range(self.starts[partition], self.ends[partition]):
            value = self.logs[partition].get(offset)
            if offset in gaps:
                continue
            require(value, f"log {partition} has an offset {offset}", "nothing there")
            owner = self.owners[value or b""]
            place = (owner.place, owner.values[partition].index(value or b""))
            before = last.get(owner.stream, (-1, 0))
            require(
                before < place, f"{owner.stream} has {place} after {before} in {partition}", f"at {offset}"
            )
            first = place[1] == 0 or offset == self.starts[partition] or offset - 1 in gaps
            follows = first or before == (place[0], place[1] - 1)
            require(follows, f"{owner.name} lies together", f"{place} after {before} at {offset}")
            last[owner.stream] = place
