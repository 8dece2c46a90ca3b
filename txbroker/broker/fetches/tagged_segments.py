"""Where in full segments the messages with the tags of a filter are: so that what is between them is not read.

It pays where these are far apart: to find a frame and to read it alone takes as long as to read :data:`APART` in a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from journal.constants import KIB
from journal.log.key_tables import LookedUp, look_up_tags
from journal.log.tag_filter import FilteredRead, PlannedRead, TagFilter

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore
    from journal.log.segment import Segment

APART: Final = 256 * KIB
"""A segment with more messages that may match than one in so many bytes is read in a row."""

AT_ONCE: Final = 16
"""How many places of a segment are read at once: each holds the file open until its turn."""

NEAR: Final = 8
"""Places with at most so many offsets between them are read in one."""

TOGETHER: Final = 64 * KIB
"""Bytes of such a read at most."""

MOST_KNOWN: Final = 64
"""Of so many segments and filters it is known where the messages are: a thousand of each at most, of 256 MiB."""


class TableRead:
    """A look at the table of a segment; it is made if it is missing."""

    __slots__ = ("_engine", "_makes", "segment", "tags")

    def __init__(self, engine: Engine, segment: Segment, tags: Sequence[bytes]) -> None:
        self._engine = engine
        self._makes = not engine.full
        self.segment = segment
        self.tags = tags

    def run(self) -> tuple[LookedUp, int]:
        """Return the offsets that the table says, and 0 for the bytes that were examined."""
        most = self.segment.frame_bytes // APART
        return look_up_tags(self._engine.filesystem, self.segment, self.tags, most, self._makes), 0

    def close(self) -> None:
        """Do nothing."""


class TaggedSegments:
    """Plans reads that go from one place to the next. What tables have said is kept for the next fetches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[tuple[object, ...], list[int] | None] = OrderedDict()

    def plan(
        self, store: MessageStore, begin: int, end: int, wanted: TagFilter
    ) -> FilteredRead | TableRead | None:
        """Return a read of what matches from ``begin`` on in its segment; or a look at its table, which is to be given
        to :meth:`take` before this is asked again. None: it is to be read in a row.
        """
        segment = store.sealed_segment(begin)
        if segment is None or segment.frame_bytes < APART:
            return None
        key = _key(segment, wanted.tags)
        if key in self._known:
            self._known.move_to_end(key)
            places = self._known[key]
            return (
                None
                if places is None
                else _between(store, begin, min(end, segment.end_offset), wanted, places)
            )
        if 2 * (segment.end_offset - begin) < segment.end_offset - segment.base_offset:
            return None  # a look at the table, or making it, saves less than it costs
        return TableRead(self._engine, segment, list(wanted.tags))

    def take(self, read: TableRead, looked: LookedUp) -> None:
        """Note what a table says; None that there is none of use."""
        if looked.made:
            self._engine.housekeeping.keep_table(read.segment, looked.made)
        self._known[_key(read.segment, read.tags)] = looked.offsets
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


def _key(segment: Segment, tags: Collection[bytes]) -> tuple[object, ...]:
    return segment.number, segment.base_offset, segment.salt, segment.checksum, *tags


def _between(
    store: MessageStore, begin: int, end: int, wanted: TagFilter, places: Sequence[int]
) -> FilteredRead:
    """Return a read of the first of these places, and of what is let through anyway, from ``begin`` to ``end``."""
    first = bisect_left(places, begin)
    some = places[first : bisect_left(places, end, first, min(first + AT_ONCE, len(places)))]
    kept = [offset for run in wanted.kept.within(begin, end).runs() for offset in range(*run)]
    stops = sorted({*some, *kept})[:AT_ONCE]
    reads: list[PlannedRead] = []
    place = 0
    while place < len(stops):
        at = last = stops[place]
        while place < len(stops) and stops[place] <= last + NEAR:
            last = stops[place]
            place += 1
        size = 1 if at == last else TOGETHER
        reads.append(PlannedRead(at, store.plan_read(at, size, last + 1), last + 1))
    return FilteredRead(reads, begin, wanted, 0 if len(stops) == AT_ONCE else end)
