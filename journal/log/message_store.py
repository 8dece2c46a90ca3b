"""A partition's log: its newest messages in memory, the others in segments, one read path over both."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import accumulate

from zope.interface import implementer

from journal.errors import NEXT_STEP, CorruptJournal, CorruptSegment, OffsetOutOfRange
from journal.formats.filenames import is_internal, partition_directory, transient_directory
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, pack_segment_header
from journal.formats.store_state import StoreState
from journal.interfaces import IBuffer, IBufferAllocator, IMessageStore
from journal.log.flush import FlushJob, IndexEnd, Piece
from journal.log.message_run import MessageRun
from journal.log.read_plan import DiskReadPlan, Hints, ReadPlan
from journal.log.retention import retained_start
from journal.log.segment import Segment
from journal.log.segment_list import SegmentList, Strangers
from journal.log.segment_origin import SegmentOrigin
from journal.log.shared_run import SharedRun
from journal.log.tail import Tail
from journal.log.time_lookup import TimeLookup
from journal.records.transient import is_transient
from journal.settings import TopicSettings
from journal.vfs.open_files import OpenFiles


@implementer(IMessageStore)
class MessageStore:
    """A log whose messages get offsets when appended, are visible when published, and go to segments when flushed.

    Everything runs on one thread except :meth:`FlushJob.run <journal.log.flush.FlushJob.run>` and :meth:`ReadPlan.run
    <journal.log.read_plan.ReadPlan.run>`. Times are the broker's append times in µs and must not go back from call to
    call. ``start_offset`` and ``flushed_offset`` never go back.
    """

    def __init__(
        self,
        number: int,
        topic: str,
        index: int,
        settings: TopicSettings,
        files: OpenFiles,
        allocator: IBufferAllocator,
        origin: SegmentOrigin,
    ) -> None:
        self.number = number
        self.topic = topic
        self.index = index
        self.internal = is_internal(topic)
        """Whether only the engine itself puts messages there."""
        self.settings = settings
        self.is_transient = is_transient(number)
        """Whether it is a transient queue's: no checkpoint has it, and its files are never forced."""
        self.directory = (
            transient_directory(number) if self.is_transient else partition_directory(topic, index, number)
        )
        self.start_offset = 0
        self.high_watermark = self.checkpointed_end = 0
        """Messages below ``checkpointed_end`` were there at the checkpoint with which the last start began."""
        self._files = files
        self._origin = origin
        self._tail = Tail(allocator)
        self._segments = SegmentList(number, self.directory)
        self._job: FlushJob | None = None
        self._index_end: IndexEnd | None = None
        self._shelf: dict[int, tuple[bytes, bytes]] = {}
        self._hints: Hints | None = None
        self._dropped: list[str] = []
        self.is_compacted = False
        """Whether a segment has gaps."""
        self._flushable = 0

    # -- state --------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls, state: StoreState, files: OpenFiles, allocator: IBufferAllocator, origin: SegmentOrigin
    ) -> MessageStore:
        """Return the store of a checkpoint; call :meth:`compare` before anything is appended to it."""
        store = cls(state.number, state.topic, state.index, state.settings, files, allocator, origin)
        store.start_offset = state.start_offset
        store.high_watermark, store.checkpointed_end = state.flushed_offset, state.end_offset
        store._tail = Tail(allocator, state.flushed_offset, state.last_time)
        store._segments = SegmentList(state.number, store.directory, state.segments)
        store.is_compacted = any(each.epoch for each in state.segments)
        return store

    def state(self, end_offset: int | None = None, settings: TopicSettings | None = None) -> StoreState:
        """Return the state for a checkpoint: all flushed messages, nothing of the tail.

        ``end_offset`` and ``settings`` are those at the checkpoint's LSN, by default the flushed offset and the present
        settings.
        """
        return StoreState(
            self.number,
            self.topic,
            self.index,
            self.start_offset,
            self.flushed_offset,
            self._segments.active.last_time if self._segments.active else 0,
            self._segments.states(),
            self.settings if settings is None else settings,
            self.flushed_offset if end_offset is None else end_offset,
        )

    def compare(self) -> Strangers:
        """Compare the files with the segments; return files that are newer or longer than these. Changes nothing.

        Raises :class:`journal.errors.CorruptSegment` for a file that is missing, too short or another's.
        """
        found = self._segments.compare(self._files.filesystem, self.flushed_offset)
        self._dropped += found.early
        return found

    def proven_size(self, base_offset: int) -> int:
        """Return how long the file of a segment is with all that was replayed; 0 if it may be shorter."""
        if (found := self._segments.holding(base_offset)) is not None:
            segment, sealed = found
            size = segment.size + (0 if sealed else self.unflushed_bytes)
            return size if segment.base_offset == base_offset else 0
        offset, position = self._tail.edge(self._tail.appends_below(base_offset))
        return SEGMENT_HEADER_BYTES + self._tail.end_position - position if offset == base_offset else 0

    @property
    def flushed_offset(self) -> int:
        """Messages below this are in segments; forced, except those that a start wrote: before the next checkpoint."""
        return self._tail.base_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next accepted message gets."""
        return self._tail.end_offset

    @property
    def end_position(self) -> int:
        """How many bytes of frames were accepted since the start; it never goes back."""
        return self._tail.end_position

    @property
    def last_time(self) -> int:
        """The append time of the newest message, 0 without one."""
        return self._tail.last_time

    @property
    def unflushed_messages(self) -> int:
        """How many messages are in memory, published or not."""
        return self._tail.end_offset - self._tail.base_offset

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes of frames are in memory, published or not."""
        return self._tail.end_position - self._tail.base_position

    @property
    def oldest_unflushed_time(self) -> int | None:
        """The append time of the oldest message that is in memory; None if there is none."""
        return self._tail.oldest_time

    @property
    def total_bytes(self) -> int:
        """Bytes of frames in segments and memory."""
        return self._segments.total_bytes + self.unflushed_bytes

    # -- messages come in ---------------------------------------------------------------------------

    def append(self, frames: bytes | memoryview, count: int, time: int, wall_offset: int = 0) -> memoryview:
        """Copy checked frames to the tail and stamp them from ``end_offset`` on; return the stamped bytes.

        ``wall_offset`` is the wall clock at journal time 0: together with ``time`` it gives the append time that is
        stamped. The view is valid until the messages have been flushed. Raises
        :class:`journal.errors.MemoryExhausted` before anything has changed.
        """
        return self._tail.append(frames, count, time, wall_offset)

    def room_for(self, size: int) -> IBuffer | None:
        """Return memory for appends of ``size`` bytes in all, for :meth:`add_room`; None if there is room for them.

        Raises :class:`journal.errors.MemoryExhausted`. The caller owns the memory until it is added.
        """
        return self._tail.room_for(size)

    def add_room(self, buffer: IBuffer) -> None:
        """Take over memory for the next appends, in the same turn."""
        self._tail.add_room(buffer)

    def replay(
        self,
        frames: bytes | memoryview,
        base_offset: int,
        count: int,
        time: int,
        wall_offset: int = 0,
        shared: SharedRun | None = None,
    ) -> None:
        """Append messages again that the journal holds, unless the segments hold them already.

        ``shared`` is the same run, if it goes to several logs and is to be in memory once. Raises
        :class:`journal.errors.CorruptJournal` if messages between the log's end and ``base_offset`` are missing, or if
        the log ends inside the run.
        """
        end = self._tail.end_offset
        if base_offset + count <= end:
            return
        if base_offset != end:
            raise CorruptJournal(
                f"{self.directory}: partition {self.topic}-{self.index} (number {self.number}) ends at offset {end}, "
                f"the journal goes on with offsets {base_offset} to {base_offset + count - 1}. No record was "
                f"changed. Restore the directory from a copy. {NEXT_STEP}",
                self.directory,
            )
        if shared is None:
            self._tail.append(frames, count, time, wall_offset)
        else:
            self._tail.append_shared(shared, count, time, wall_offset)

    def replay_run(self, run: MessageRun, first: int) -> int:
        """Do what :meth:`replay` does with sends of a run from number ``first`` on; return how many of them fitted.

        Returns 0 if they do not directly follow the log's end: then :meth:`replay` raises the error, or there is none.
        Raises :class:`journal.errors.MemoryExhausted` if the first finds no room.
        """
        ends = list(accumulate(run.counts[first:], initial=self._tail.end_offset))
        if ends[:-1] != list(run.bases[first:]):
            return 0
        return self._tail.append_stamped(run.frames, first, ends[1:], run.times[first:])

    def publish(self, end: int) -> bool:
        """Let readers and the flusher see all messages below ``end``: they have been forced to the journal.

        Returns whether the force policy now wants the tail flushed.
        """
        if not self.high_watermark <= end <= self._tail.end_offset:
            raise AssertionError(f"publish({end}) between {self.high_watermark} and {self._tail.end_offset}")
        self.high_watermark = end
        return end - self._tail.base_offset >= self.settings.force_messages

    def allow_flush(self, end: int) -> None:
        """Let the flusher take all messages below ``end`` before readers see them: a large commit, decided and forced.

        The next :meth:`publish` must include all of them: the messages of one segment can only be shown together.
        """
        self._flushable = end

    # -- messages are read --------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole frames from the one that holds ``offset`` on, at most ``max_bytes`` but at least one.

        Empty at the high watermark. May wait for the disk. Raises :class:`journal.errors.OffsetOutOfRange` and
        :class:`journal.errors.CorruptSegment`.
        """
        return self.plan_read(offset, max_bytes).run().data

    def plan_read(self, offset: int, max_bytes: int, until: int = sys.maxsize) -> ReadPlan:
        """Plan a read of published messages. It is answered from memory alone or from one segment alone.

        After the first frame it returns none that begins at ``until`` or above. Raises OffsetOutOfRange.
        """
        if not self.start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic}-{self.index} is not in the log, which goes from "
                f"{self.start_offset} to {self.high_watermark}; read on from one of these",
                self.start_offset,
                self.high_watermark,
            )
        if offset >= min(self._tail.base_offset, self.high_watermark):
            return ReadPlan(self._tail.read(offset, self.high_watermark, max_bytes, until))
        self._hints = self._hints or Hints()
        place = self._segments.holding(offset)
        if place is None:
            raise AssertionError(f"no segment of {self.directory} holds offset {offset}")
        until = min(until, self.high_watermark)
        return DiskReadPlan(self._files, *place, self._shelf, self._hints, offset, until, max_bytes)

    def plan_append_time(self, offset: int) -> int | ReadPlan:
        """Return the append time of a published message (µs since 1970), or the read of its frame from the disk, which
        has it. Raises OffsetOutOfRange.
        """
        if self._tail.base_offset <= offset < self.high_watermark:
            return self._tail.append_time_of(offset)
        return self.plan_read(offset, 1, offset + 1)

    def at_hand(self, offset: int, max_bytes: int) -> bytes | None:
        """Do what :meth:`read` does, also for unpublished frames; None for removed or damaged ones, or to avoid
        the disk.
        """
        if offset >= self._tail.base_offset:
            return self._tail.read(offset, self.end_offset, max_bytes).data
        if not self.start_offset <= offset < self.high_watermark:
            return None
        with suppress(CorruptSegment), closing(self.plan_read(offset, max_bytes)) as plan:
            found = plan.run_now()
            return found.data if found else None
        return None

    def offset_for_time(self, time: int) -> int:
        """Return the first offset whose append time is ``time`` or later; the high watermark if there is none.

        For messages in segments it may be too early by the range of one index entry, never too late. May wait for the
        disk.
        """
        lookup = self.plan_time(time)
        return lookup if isinstance(lookup, int) else self.within(lookup.run())

    def plan_time(self, time: int) -> int | TimeLookup:
        """Return that offset, or the lookup for it; the lookup's result, from any thread, goes through
        :meth:`within`.
        """
        found = self._segments.reaching(time)
        if found is None:
            return self.within(self._tail.offset_for_time(time))
        if time <= found[0].first_time:
            return self.within(found[0].base_offset)
        return TimeLookup(self._files, *found, self._shelf, time)

    def within(self, offset: int) -> int:
        """Return the offset, or the nearest one that can be read from."""
        return max(self.start_offset, min(offset, self.high_watermark))

    def sealed_segment(self, offset: int) -> Segment | None:
        """Return the segment that holds ``offset`` if it is not written any more."""
        found = self._segments.holding(offset)
        return found[0] if found is not None and found[1] else None

    # -- messages go to segments --------------------------------------------------------------------

    def begin_flush(self, most: int | None = None) -> FlushJob | None:
        """Return a job that writes all published messages, and allowed ones, to segments; at most the oldest ``most``
        bytes.

        None if there are none, or one is under way. Its ``run`` is for the flusher thread, then :meth:`finish_flush`.
        """
        if self._job is not None:
            return None
        tail = self._tail
        published = tail.appends_below(self.high_watermark)
        appends = tail.appends_below(max(self.high_watermark, self._flushable))
        if most is not None and appends:
            appends = min(appends, max(1, tail.appends_within(tail.base_position + most)))
            published = min(published, appends)
        if not appends:
            return None
        pieces = []
        segment = newest = self._segments.active
        first = 0
        while first < appends:
            if first >= published and segment is not None and segment.base_offset < self.high_watermark:
                # Messages that readers may not see yet begin a new segment, so that no permitted read touches it.
                segment = None
            segment, last = self._next_piece(segment, first, published if first < published else appends)
            piece = self._piece(newest, segment, first, last)
            pieces.append(piece)
            segment, newest, first = piece.after, piece.after, last
        first_ever = not self._segments.segments
        self._job = FlushJob(self._files, pieces, appends, self._index_end, first_ever, not self.is_transient)
        return self._job

    def _next_piece(self, segment: Segment | None, first: int, appends: int) -> tuple[Segment, int]:
        """Return the segment for the append numbered ``first``, and the append up to which it takes all."""
        offset, position = self._tail.edge(first)
        if segment is not None and segment.end_offset > self.start_offset:
            room = self.settings.segment_bytes - segment.frame_bytes
            last = self._tail.appends_within(position + room)
            if last > first:
                return segment, min(last, appends)
        fitting = self._tail.appends_within(position + self.settings.segment_bytes)
        return self._segments.next_segment(offset), min(max(fitting, first + 1), appends)

    def _piece(self, before: Segment | None, segment: Segment, first: int, last: int) -> Piece:
        start = self._tail.edge(first)
        end_offset, end = self._tail.edge(last)
        ends, positions, times = self._tail.appends(first, last)
        views = self._tail.views(start[1], end)
        header, closed = b"", None
        if not segment.size:
            made = self._origin.header(self.number, segment.base_offset)
            header, segment, closed = pack_segment_header(made), segment.begun(made.salt), before
        after = segment.grown(end - start[1], end_offset, times[0], times[-1])
        return Piece(segment, after, start, ends, positions, times, views, self._tail.inside, header, closed)

    def finish_flush(self, job: FlushJob) -> None:
        """Note that the job has run: its messages are read from segments now, and its memory is released."""
        if job is not self._job or not job.done:
            raise AssertionError(f"the flush of {self.directory} is not under way, or has not run")
        self._job = None
        for piece in job.pieces:
            self._segments.put(piece.after)
            self._shelf.pop(piece.after.salt, None)
            piece.views.clear()
        self._index_end = job.index_end
        self._tail.drop(job.appends)
        self._drop_segments()
        self._drop_below_start()

    def abandon_flush(self, job: FlushJob) -> None:
        """Note that the job has failed for lack of room, in a log that no start reads: the next one writes it again."""
        assert job is self._job, f"the flush of {self.directory} is not under way"
        assert self.is_transient, f"{self.directory} was to be forced: nobody may write it a second time"
        self._job = None
        self._drop_below_start()

    # -- messages go --------------------------------------------------------------------------------

    def retention_start(self, now: int) -> int | None:
        """Return the offset at which the log should start by its settings; None if nothing can be removed.

        The caller journals that and then calls :meth:`move_start`. ``now`` is on the clock of the append times.
        """
        seen = [segment for segment in self._segments.sealed if segment.end_offset <= self.high_watermark]
        start = retained_start(seen, self.total_bytes, now, self.settings)
        return start if start is not None and start > self.start_offset else None

    def move_start(self, offset: int) -> None:
        """Let the log start at ``offset`` (at most ``end_offset``); a smaller one changes nothing.

        Segments wholly below are forgotten here and listed by :meth:`take_dropped`. An active segment wholly below is
        removed when the next flush has begun another.
        """
        if offset > self._tail.end_offset:
            raise AssertionError(f"move_start({offset}) beyond the end, {self._tail.end_offset}")
        self.start_offset = max(self.start_offset, offset)
        self._drop_segments()
        self._drop_below_start()

    def new_header(self, base_offset: int) -> SegmentHeader:
        """Return a header for a new file of a segment."""
        return self._origin.header(self.number, base_offset)

    def replace_segment(self, old: Segment, new: Segment) -> None:
        """Read messages from the new file of a sealed segment from now on. If that has been removed meanwhile, so will
        be the file. Not while a checkpoint is made whose folds may still need what the new file lacks.
        """
        kept, dropped = (new, old) if self._segments.replace(old, new) else (old, new)
        self.is_compacted = self.is_compacted or kept is new
        self._drop_files(dropped)

    def take_dropped(self) -> list[str]:
        """Return files that are no longer part of the log, each once: unlink them after a checkpoint."""
        dropped, self._dropped = self._dropped, []
        return dropped

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first."""
        return tuple(self._segments.segments)

    @property
    def sealed_segments(self) -> Sequence[Segment]:
        """The segments that are no longer written, oldest first."""
        return tuple(self._segments.sealed)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way."""
        return self._job is not None

    def discard(self) -> list[str]:
        """Discard the log, because its topic was deleted: release memory, and return all files for unlinking.

        Call it when no flush is under way and the journal has been forced to the last append. Reads that were planned
        before may still run.
        """
        if self._job is not None:
            raise AssertionError(f"{self.directory} cannot be discarded while a flush is under way")
        paths = self.take_dropped() + [path for s in self._segments.segments for path in s.paths]
        for path in paths:
            self._files.forget(path)
        self._shelf.clear()
        self._tail.drop(len(self._tail))
        return paths

    def _drop_below_start(self) -> None:
        """Release memory below the start, in a transient queue's log: without a flush it would stay. The next segment
        then begins above the last one, which lies below the start, too.
        """
        if not self.is_transient or self._job is not None:
            return
        self._tail.drop(self._tail.appends_below(self.start_offset))
        active = self._segments.active
        if active is not None and active.end_offset < self._tail.base_offset:
            for segment in self._segments.drop_all():
                self._drop_files(segment)
            self._index_end = None

    def _drop_segments(self) -> None:
        for segment in self._segments.drop_below(self.start_offset):
            self._drop_files(segment)

    def _drop_files(self, segment: Segment) -> None:
        self._shelf.pop(segment.salt, None)
        self._dropped += segment.paths
        for path in segment.paths:
            self._files.forget(path)
