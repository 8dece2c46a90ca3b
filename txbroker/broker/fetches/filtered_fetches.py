"""The positions of fetches whose groups have a filter by tags: examined on the reader pool, a part at a time.

Nothing is decoded on the reactor, also not what is in memory. A fetch that has found nothing goes on with the next part
in its session's next turn, until it has found something, or is to tell how far it has come. What does not match is
finished for the group when the fetch is answered.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from journal.constants import KIB, MIB
from journal.log.key_tables import LookedUp
from journal.log.tag_filter import Filtered, FilteredRead, PlannedRead, TagFilter
from journal.offset_set import OffsetSet
from txbroker.broker.fetches.fetch_attempt import Examined, Part, PendingFetch, Reading
from txbroker.broker.fetches.tagged_segments import TableRead, TaggedSegments
from txbroker.groups.group_position import GroupPosition
from txbroker.groups.tag_filtering import TagFiltering

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

IN_A_PART: Final = 4 * MIB
"""Bytes that are examined at once for a fetch, of all its partitions: 5 to 20 ms of the pool."""

IN_MEMORY: Final = 256 * KIB
"""The same of messages that are in no file yet, which are copied on the reactor: 0.1 ms."""

LEAST: Final = 64 * KIB
"""The partitions of a fetch share these, but none gets less than this."""

IN_AN_ANSWER: Final = 64 * MIB
"""After so many bytes a fetch is answered though nothing was found: its reader is to know how far it is."""

MOST_PLACES: Final = 64
"""After something was examined in so many of its partitions, too: all is finished in one turn."""


class GroupRead:
    """A read of a position whose group has a filter. ``is_again``: only what does not match is of interest."""

    __slots__ = ("begin", "is_again", "place", "position", "read", "tags")

    def __init__(
        self, place: int, position: GroupPosition, begin: int, read: FilteredRead | TableRead, is_again: bool
    ) -> None:
        self.place = place
        self.position = position
        self.begin = begin
        self.read = read
        self.is_again = is_again
        self.tags = position.tags

    def run(self) -> Result:
        """Return this, what its filter lets through or a table says, and how many bytes were examined."""
        return self, *self.read.run()

    def close(self) -> None:
        """Drop a read that did not run."""
        self.read.close()


Result = tuple[GroupRead, Filtered | LookedUp, int]


class FilteredFetches:
    """Plans such reads, takes their results, and has what does not match be finished."""

    def __init__(self, engine: Engine, filtering: TagFiltering) -> None:
        self._filtering = filtering
        self._segments = TaggedSegments(engine)

    def plan(
        self,
        fetch: PendingFetch,
        reading: Reading,
        place: int,
        store: MessageStore,
        until: int,
        room: int,
        left: int,
    ) -> int:
        """Plan to examine a position, one of ``left`` to go; return how many bytes of the answer that may take.

        Raises OffsetOutOfRange.
        """
        part, position = reading.parts[place], fetch.for_groups[place]
        if position.offset > part.high_watermark:
            store.plan_read(position.offset, 1)  # refuses it
        reading.stores.append(store)
        if position.is_claimed:
            self._plan_again(reading, place, position, store, left)
        begin, end = part.end, position.readable(part.high_watermark)
        is_reached = _is_reached(begin, until)
        if begin >= end or is_reached:
            # As far as the reader has asked, or one answer can tell, is told at once; the end of the log is not.
            if begin > position.offset and (is_reached or end < part.high_watermark):
                reading.news = True
            return 0
        share = min(room, max(LEAST, room // left))
        wanted = TagFilter(_tags(position), position.detailed(begin, end), until or sys.maxsize, share)
        read = self._planned(store, begin, end, wanted, left)
        reading.filtered.append((part, GroupRead(place, position, begin, read, False)))
        return share

    def _plan_again(
        self, reading: Reading, place: int, position: GroupPosition, store: MessageStore, left: int
    ) -> None:
        """Plan to examine again what the reader has passed, and what could not be finished then."""
        filtering = self._filtering
        filtering.catch_up(position.group, [position.partition])
        position.lags = filtering.lags(position)
        behind = filtering.behind(position) if position.lags else None
        if behind is None:
            return
        begin, end = max(behind[0], store.start_offset), behind[1]
        if begin < end:
            wanted = TagFilter(_tags(position), position.detailed(begin, end))
            read = self._planned(store, begin, end, wanted, left)
            reading.filtered.append((reading.parts[place], GroupRead(place, position, behind[0], read, True)))
        else:
            filtering.finish(position, *behind, OffsetSet())  # retention has removed it

    def _planned(
        self, store: MessageStore, begin: int, end: int, wanted: TagFilter, left: int
    ) -> FilteredRead | TableRead:
        is_cold = begin < store.flushed_offset
        if is_cold and (read := self._segments.plan(store, begin, end, wanted)) is not None:
            return read
        size = IN_A_PART if is_cold else IN_MEMORY
        plan = store.plan_read(begin, max(LEAST, size // left), end)
        return FilteredRead([PlannedRead(begin, plan)], begin, wanted)

    def take(self, fetch: PendingFetch, reading: Reading, part: Part, result: Result) -> bool:
        """Take what a read has brought, if the answer has room for it; return whether anything is known now that was
        not.
        """
        read, found, size = result
        fetch.examined = examined = fetch.examined or Examined()
        examined.size += size
        place, position = read.place, read.position
        if isinstance(found, LookedUp):
            assert isinstance(read.read, TableRead)
            self._segments.take(read.read, found)
            return True
        if read.is_again:
            if read.tags == position.tags:
                self._filtering.finish(position, read.begin, found.end, found.unmatched)
            behind = self._filtering.behind(position)
            return behind is None or behind[0] != read.begin
        if not reading.found or reading.found + len(found.data) <= reading.room:
            examined.take(place, found.end, found.unmatched, read.tags)
            part.data, part.end = found.data, found.end
            reading.found += len(found.data)
        return found.end > read.begin

    def is_enough(self, fetch: PendingFetch) -> bool:
        """Return whether so much was examined that the reader is to be told of it."""
        examined = fetch.examined
        return examined is not None and (examined.size >= IN_AN_ANSWER or len(examined.ends) >= MOST_PLACES)

    def finish(self, fetch: PendingFetch, reading: Reading) -> None:
        """Finish what a fetch has examined and does not match, for the groups that it is read for.

        What was examined for other tags than a group has now is not answered: the next fetch examines it again.
        """
        examined = fetch.examined
        assert examined is not None
        for place, unmatched in list(examined.unmatched.items()):
            part, position = reading.parts[place], fetch.for_groups[place]
            if end := examined.end(place, position.tags):
                self._filtering.finish(position, position.offset, end, unmatched)
            else:
                reading.found -= len(part.data)
                part.data, part.end = b"", position.offset


def _tags(position: GroupPosition) -> list[bytes]:
    return [tag.encode() for tag in position.tags]


def _is_reached(end: int, until: int) -> bool:
    return until != 0 and until <= end
