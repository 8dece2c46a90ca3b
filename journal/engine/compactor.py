"""Which segments are compacted, and when: one at a time, in small steps beside other work on files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from journal.constants import MIB
from journal.engine.engine import Engine
from journal.engine.jobs import Job
from journal.log.compaction import Compaction, Unread, is_worth_it
from journal.log.message_store import MessageStore
from journal.log.segment import Segment

MUCH: Final = 64 * MIB
"""Bytes of old files for whose removal checkpoints are made that would else come later."""


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
        self._candidates: deque[_Candidate] = deque()
        self._current: CompactSegment | None = None
        self._under_way = False
        self._given_up: set[tuple[int, int]] = set()
        """(partition, base offset) of those that could not be, since this start."""
        self._stopped = False
        self._unremoved = 0

    def look(self) -> None:
        """Look which segments are worth it."""
        if self.unread is None or self._candidates or self._current is not None:
            return
        for store in self._engine.catalog.stores.values():
            sealed = [each for each in store.sealed_segments if each.end_offset <= store.high_watermark]
            if not sealed or (unread := self.unread(store)) is None:
                continue
            for segment in sealed:
                known = (store.number, segment.base_offset) in self._given_up
                if not known and segment.end_offset > store.start_offset and is_worth_it(segment, unread):
                    self._candidates.append(_Candidate(store, segment.base_offset))

    def stop(self) -> None:
        """Begin nothing more: the broker stops."""
        self._stopped = True
        self._candidates.clear()

    def job(self, may_begin: bool) -> Job | None:
        """Return the next step to run, if none is under way. ``may_begin``: another segment may be begun."""
        if self._under_way or self._stopped:
            return None
        if self._current is None and may_begin:
            self._begin()
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
            self._given_up.add((store.number, old.base_offset))
        else:
            store.replace_segment(old, new)
            self.compacted += 1
            self.freed_bytes += old.size - new.size
            self._unremoved += old.size

    def wants_checkpoints(self) -> bool:
        """Return, once, whether much would be removed by the next two checkpoints, and no more is on its way."""
        if self._current is not None or self._candidates or self._unremoved < MUCH:
            return False
        self._unremoved = 0
        return True

    def _begin(self) -> None:
        while self._candidates and self._current is None and not self._engine.full:
            store, base = self._candidates.popleft()
            segment = self._sealed(store, base)
            if segment is None or self.unread is None or (unread := self.unread(store)) is None:
                continue
            if is_worth_it(segment, unread):
                kept = unread.rest(segment.base_offset, segment.end_offset)
                header = store.new_header(base)
                self._current = CompactSegment(
                    store, Compaction(self._engine.filesystem, segment, kept, header)
                )

    def _sealed(self, store: MessageStore, base_offset: int) -> Segment | None:
        if self._engine.catalog.stores.get(store.number) is not store:
            return None
        return next((each for each in store.sealed_segments if each.base_offset == base_offset), None)
