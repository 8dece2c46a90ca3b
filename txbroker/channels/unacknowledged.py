"""The deliveries of a channel that are not acknowledged, as runs: a million in a row take no more than one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

_WASTED: Final = 64
"""Most runs at the beginning of the list that are gone and were not cut off yet, or as many as are left."""


class Run:
    """``count`` deliveries with tags from ``tag`` on of the messages of a queue from ``offset`` on, to a ``consumer``
    (None: they were got).
    """

    __slots__ = ("consumer", "count", "offset", "partition", "tag")

    def __init__(self, tag: int, count: int, partition: int, offset: int, consumer: Any) -> None:
        self.tag, self.count, self.partition, self.offset = tag, count, partition, offset
        self.consumer = consumer


class Unacknowledged:
    """Runs of deliveries in the order of their tags. ``count`` is how many deliveries there are."""

    def __init__(self) -> None:
        self._runs: list[Run | None] = []
        self._tags: list[int] = []
        self._begin = 0
        self.count = 0

    def add(self, tag: int, count: int, partition: int, offset: int, consumer: Any) -> None:
        """Add deliveries with tags above all others."""
        last = self._runs[-1] if len(self._runs) > self._begin else None
        self.count += count
        if (
            last is not None
            and last.consumer is consumer
            and last.partition == partition
            and last.tag + last.count == tag
            and last.offset + last.count == offset
        ):
            last.count += count
            return
        self._runs.append(Run(tag, count, partition, offset, consumer))
        self._tags.append(tag)

    def put(self, run: Run) -> None:
        """Put deliveries back that were taken out."""
        place = bisect_right(self._tags, run.tag, lo=self._begin)
        self._runs.insert(place, run)
        self._tags.insert(place, run.tag)
        self.count += run.count

    def __contains__(self, tag: int) -> bool:
        """Return whether there is a delivery with that tag."""
        return self._place(tag) is not None

    def _place(self, tag: int) -> int | None:
        """Return where the run with that tag is."""
        place = bisect_right(self._tags, tag, lo=self._begin) - 1
        if place < self._begin:
            return None
        run = self._runs[place]
        assert run is not None, "those that are gone lie before it"
        return place if tag < run.tag + run.count else None

    def take(self, tag: int) -> Run | None:
        """Take out one delivery; None if there is none with that tag."""
        if (place := self._place(tag)) is None:
            return None
        run = self._runs[place]
        assert run is not None, "those that are gone lie before it"
        before = tag - run.tag
        after = run.count - before - 1
        found = Run(tag, 1, run.partition, run.offset + before, run.consumer)
        self.count -= 1
        if after:
            rest = Run(tag + 1, after, run.partition, run.offset + before + 1, run.consumer)
            if before:
                run.count = before
                self._runs.insert(place + 1, rest)
                self._tags.insert(place + 1, rest.tag)
            else:
                self._runs[place], self._tags[place] = rest, rest.tag
        elif before:
            run.count = before
        else:
            self._remove(place)
        return found

    def _remove(self, place: int) -> None:
        if place != self._begin:
            del self._runs[place], self._tags[place]
            return
        self._runs[place] = None
        self._begin += 1
        if self._begin > _WASTED + len(self._runs) - self._begin:
            del self._runs[: self._begin], self._tags[: self._begin]
            self._begin = 0

    def take_up_to(self, tag: int) -> list[Run]:
        """Take out all deliveries up to a tag."""
        found = list[Run]()
        while self._begin < len(self._runs):
            run = self._runs[self._begin]
            assert run is not None, "those that are gone lie before it"
            if run.tag > tag:
                break
            taken = min(run.count, tag - run.tag + 1)
            self.count -= taken
            found.append(Run(run.tag, taken, run.partition, run.offset, run.consumer))
            if taken < run.count:
                run.tag, run.offset, run.count = run.tag + taken, run.offset + taken, run.count - taken
                self._tags[self._begin] = run.tag
                break
            self._remove(self._begin)
        return found

    def take_all(self) -> list[Run]:
        """Take out all deliveries."""
        found = list(self)
        self._runs, self._tags, self._begin, self.count = [], [], 0, 0
        return found

    def __iter__(self) -> Iterator[Run]:
        for run in self._runs[self._begin :]:
            assert run is not None, "those that are gone lie before it"
            yield run
