"""Which segments are compacted, and when: one at a time, in small steps beside other work on files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from journal.constants import MIB
from journal.engine.engine import Engine
from journal.engine.jobs import Job
from journal.log.compaction import Compaction, Unread, is_worth_it
from journal.log.message_store import MessageStore
from journal.log.segment import Segment
from journal.offset_set import CHUNK

MUCH: Final = 64 * MIB
"""Bytes of old files for whose removal checkpoints are made that would else come later."""
LOOKED_AT_ONCE: Final = 250
"""At so many logs and segments one call of :meth:`Compactor.job` looks, 1 to 2 ms: there may be 100,000. One of many
messages counts as several.
"""


class CompactSegment(Job):
    """A step of a compaction."""

    def __init__(self, store: MessageStore, compaction: Compaction) -> None:
        self.store = store
        self.compaction = compaction

    def run(self) -> None:
        """Do it."""
        self.compaction.step()


class _Candidate(NamedTuple):
    store: MessageStore
    base_offset: int


class Compactor:
    """Decides which segments are compacted; one per engine, on the engine's thread.

    ``unread`` returns what of a log nobody will read any more, None for a log that is not compacted: all of it must be
    so after a start too, from the checkpoint that has the new file. So that takes the old one's place only between
    checkpoints: the folds of the next one have at least what was known when the compaction began.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.unread: Callable[[MessageStore], Unread | None] | None = None
        self.compacted = 0
        """How many segments were compacted since this start."""
        self.freed_bytes = 0
        self._looking: Iterator[None] | None = None
        self._candidates: deque[_Candidate] = deque()
        self._current: CompactSegment | None = None
        self._under_way = False
        self._given_up: set[tuple[int, int]] = set()
        """(partition, base offset) of those that could not be, since this start."""
        self._stopped = False
        self._unremoved = 0
        self.has_replaced = False
        """Whether there are old files of which no checkpoint knows that they may go."""

    def look(self) -> None:
        """Have all segments looked at, some with each call of :meth:`job`; not while what was found is under way."""
        if self.unread is not None and not (self._looking or self._candidates or self._current is not None):
            self._looking = self._look()

    def _look(self) -> Iterator[None]:
        """Look which segments are worth it; stop now and then."""
        stores = self._engine.catalog.stores
        for store in list(stores.values()):
            yield
            if self.unread is None or stores.get(store.number) is not store:
                continue
            unread = self.unread(store)
            for segment in store.sealed_segments if unread is not None else ():
                for _ in range(1 + (segment.end_offset - segment.base_offset) // CHUNK):
                    yield
                known = (store.number, segment.base_offset) in self._given_up
                is_there = store.start_offset < segment.end_offset <= store.high_watermark
                if unread is not None and is_there and not known and is_worth_it(segment, unread):
                    self._candidates.append(_Candidate(store, segment.base_offset))

    def stop(self) -> None:
        """Begin nothing more: the broker stops."""
        self._stopped, self._looking = True, None
        self._candidates.clear()

    @property
    def left_bytes(self) -> int:
        """How many bytes the compaction under way may still write."""
        return self._current.compaction.left if self._current is not None else 0

    def job(self, room: int) -> Job | None:
        """Return the next step to run, if none is under way. ``room``: how many bytes another one may take that begins
        now.
        """
        if self._under_way or self._stopped:
            return None
        looked = 0 if self._looking is None else sum(1 for _ in islice(self._looking, LOOKED_AT_ONCE))
        if looked < LOOKED_AT_ONCE:
            self._looking = None
        if self._current is None:
            self._begin(room)
        current = self._current
        if current is None or current.compaction.is_done:
            return None
        if self._engine.catalog.stores.get(current.store.number) is not current.store:
            current.compaction.abandon()
            self._current = None
            return None
        self._under_way = True
        return current

    def ran(self) -> None:
        """Note that a step has run."""
        self._under_way = False

    def replace(self) -> None:
        """Let the new file take the place of the old one, if it is done; not while a checkpoint is made."""
        current = self._current
        if current is None or self._under_way or not current.compaction.is_done:
            return
        old, new, store = current.compaction.segment, current.compaction.result, current.store
        self._current = None
        if new is None:
            if not current.compaction.no_room:
                self._given_up.add((store.number, old.base_offset))
        else:
            store.replace_segment(old, new)
            self.compacted += 1
            self.freed_bytes += old.size - new.size
            self._unremoved += old.size
            self.has_replaced = True

    def wants_checkpoints(self) -> bool:
        """Return, once, whether much would be removed by the next two checkpoints, and no more is on its way."""
        if self._current is not None or self._looking or self._candidates or self._unremoved < MUCH:
            return False
        self._unremoved = 0
        return True

    def _begin(self, room: int) -> None:
        while self._candidates and self._current is None:
            store, base = self._candidates.popleft()
            segment = self._sealed(store, base)
            if segment is None or segment.size > room:
                continue
            unread = self.unread(store) if self.unread is not None else None
            if unread is not None and is_worth_it(segment, unread):
                done = unread.within(segment.base_offset, segment.end_offset)
                compaction = Compaction(self._engine.filesystem, segment, done, store.new_header(base))
                self._current = CompactSegment(store, compaction)

    def _sealed(self, store: MessageStore, base_offset: int) -> Segment | None:
        if self._engine.catalog.stores.get(store.number) is not store:
            return None
        found = store.sealed_segment(base_offset)
        return found if found is not None and found.base_offset == base_offset else None
