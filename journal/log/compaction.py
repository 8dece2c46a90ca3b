"""The compaction of a sealed segment: what of it may still be read goes to a new file, gaps stand for the rest.

The old file is proven by its running checksum before anything is taken from it, and each message by its own. The new
one is another file of the same segment (its epoch is higher) and of the same offsets: no message moves to another one.
It counts once a checkpoint has it, and the old one is removed when none has that any more. So a crash at any moment
leaves a whole file that a checkpoint names.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from journal.constants import KIB, MIB
from journal.formats.filenames import SegmentKind, segment_file
from journal.formats.frame import HEADER, HEADER_BYTES, LOST, encode_gap, is_sound
from journal.formats.index import MAX_GAP, IndexEntries, anchors, is_needless, sound_times
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, pack_segment_header, seed_of
from journal.interfaces import IFile, IFilesystem
from journal.log.segment import BrokenChain, FramePlace, Segment, header_fault, walk_headers
from journal.offset_set import OffsetSet
from journal.vfs.file_window import opened
from journal.vfs.filesystem import write_fully

PROVEN_AT_ONCE: Final = MIB
"""Bytes of the old file that one step proves: it takes half a millisecond, without the interpreter's lock."""
COPIED_AT_ONCE: Final = 256 * KIB
"""Bytes of messages that one step copies, and about as many messages as fit: 1 ms."""
FORCED_AT_ONCE: Final = 4 * MIB
"""Bytes of the new file after which it is forced: a force of all of it would keep flushes and checkpoints waiting."""
_MOST_FRAMES: Final = 512
_log = logging.getLogger(__name__)


class Unread(NamedTuple):
    """What of a log nobody will read any more, now and after every start: all below an offset, and a set above it."""

    below: int
    offsets: OffsetSet

    def count_within(self, first: int, end: int) -> int:
        """Return how many of the offsets from ``first`` to below ``end`` it has."""
        return max(0, min(self.below, end) - first) + self.offsets.count_within(max(first, self.below), end)

    def within(self, first: int, end: int) -> Unread:
        """Return what it has of these offsets, now and later: another thread may use it."""
        return Unread(self.below, self.offsets.within(max(first, self.below), end))

    def rest(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of those that it does not have; ends are exclusive."""
        at = max(first, self.below)
        for begin, behind in self.offsets.within(at, end).runs():
            if at < begin:
                yield at, begin
            at = behind
        if at < end:
            yield at, end


def is_worth_it(segment: Segment, unread: Unread) -> bool:
    """Return whether at least half of the messages in a segment's file are not read any more.

    So what compactions write is in all at most what was written before.
    """
    gone = unread.count_within(segment.base_offset, segment.end_offset) - segment.removed
    there = segment.end_offset - segment.base_offset - segment.removed
    return gone > 0 and there <= 2 * gone


class _Unsound(Exception):
    """The old file is damaged; the text says where."""


class Compaction:
    """The compaction of one segment, step by step. :meth:`step` touches files alone, and may run on any thread.

    ``unread`` must not change. ``result`` is the new segment once it is done; None if the old file is damaged, or the
    disk is full (``no_room``): then the old one stays. ``left`` is how many bytes it may still write, at most.
    """

    def __init__(
        self, filesystem: IFilesystem, segment: Segment, unread: Unread, header: SegmentHeader
    ) -> None:
        self.segment = segment
        self.result: Segment | None = None
        self.is_done = self.no_room = False
        self.left = segment.size
        self._filesystem = filesystem
        self._unread = unread
        self._header = header
        self._steps = self._run()

    def step(self) -> None:
        """Do a part of it. Raises ``OSError``; then the process must stop."""
        try:
            next(self._steps)
        except StopIteration:
            self.is_done, self.left = True, 0

    def abandon(self) -> None:
        """Do no more: the log was deleted. What was written is no file of any log."""
        self._steps.close()
        self.is_done, self.left = True, 0

    def _run(self) -> Generator[None]:
        segment = self.segment
        writer = _Writer(self._filesystem, segment, self._header)
        with opened(self._filesystem, segment.path) as file:
            try:
                yield from self._prove(file)
                writer.begin()
                yield from self._copy(file, writer)
                self.result = writer.finish()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                _log.warning("%s is not compacted, the disk is full: %s", segment.path, error)
                self.no_room = True
                writer.remove()
            except (_Unsound, BrokenChain) as error:
                _log.warning("%s is not compacted: %s", segment.path, error)
                writer.remove()
            finally:
                writer.close()

    def _prove(self, file: IFile) -> Generator[None]:
        """Raise for a file that is not as it was written."""
        segment, position, checksum = self.segment, SEGMENT_HEADER_BYTES, self.segment.seed
        if (fault := header_fault(segment, file.read(0, SEGMENT_HEADER_BYTES))) is not None:
            raise _Unsound(fault.what)
        while position < segment.size:
            data = file.read(position, min(PROVEN_AT_ONCE, segment.size - position))
            if not data:
                raise _Unsound(f"the file ends at byte {position}")
            checksum, position = crc32c(data, checksum), position + len(data)
            yield
        if checksum != segment.checksum:
            raise _Unsound("it fails its running checksum")

    def _copy(self, file: IFile, writer: _Writer) -> Generator[None]:
        frames = bytes_ahead = 0
        for place in self._places(file):
            data = file.read(place.position, place.length)
            if len(data) < place.length or not is_sound(data) or HEADER.unpack_from(data)[6] & LOST:
                raise _Unsound(f"the message of offset {place.offset} is damaged, or was lost before")
            writer.add(place, data)
            frames, bytes_ahead = frames + 1, bytes_ahead + place.length
            if frames >= _MOST_FRAMES or bytes_ahead >= COPIED_AT_ONCE:
                writer.flush()
                self.left = max(0, self.segment.size - writer.written)
                frames = bytes_ahead = 0
                yield

    def _places(self, file: IFile) -> Iterator[FramePlace]:
        """Yield the frames with an offset that is kept. Where much is not, the index leads on."""
        segment = self.segment
        known = anchors(
            _contents(self._filesystem, segment.index_path), segment.seed, segment.end_offset, segment.size
        )
        starts = [each.offset for each in known]
        offset, position = segment.base_offset, SEGMENT_HEADER_BYTES
        walk = walk_headers(file.read, segment, offset, position)
        for first, end in self._unread.rest(offset, segment.end_offset):
            at = bisect_right(starts, first) - 1
            if at >= 0 and known[at].position - position > MAX_GAP:
                offset, position, _ = known[at]
                walk = walk_headers(file.read, segment, offset, position)
            while offset < end:
                place = next(walk, None)
                if place is None:
                    raise _Unsound(f"it ends before offset {offset}")
                offset, position = place.offset + place.messages, place.position + place.length
                if offset > first:
                    yield place


class _Writer:
    """The new file, and its indexes."""

    def __init__(self, filesystem: IFilesystem, old: Segment, header: SegmentHeader) -> None:
        self._filesystem = filesystem
        self._old = old
        epoch = old.epoch + 1
        while any(filesystem.exists(_file(old, kind, epoch)) for kind in SegmentKind):
            epoch += 1  # left by a crash, and about to be removed
        self._new = replace(
            old,
            size=SEGMENT_HEADER_BYTES,
            salt=header.salt,
            checksum=seed_of(header.salt),
            epoch=epoch,
            removed=0,
        )
        self._file: IFile | None = None
        self._entries = IndexEntries()
        self._running: list[int] = []
        self._times = deque(
            sound_times(_contents(filesystem, old.time_path), old.seed, old.base_offset, old.end_offset)
        )
        self._offset = old.base_offset
        self.written = self._forced = 0
        self._waiting = bytearray(pack_segment_header(header))
        self._unsummed = bytearray()

    def begin(self) -> None:
        """Make the file."""
        self._file = self._filesystem.open(self._new.path, create=True)

    def add(self, place: FramePlace, data: bytes) -> None:
        """Add a frame, behind the gap before it."""
        self._gap(place.offset)
        self._add(place.offset, data)
        self._offset = place.offset + place.messages

    def _gap(self, end: int) -> None:
        """Let frames stand for the messages up to that offset, if there are any."""
        count = end - self._offset
        if count > 0:
            self._new = replace(self._new, removed=self._new.removed + count)
            gap = encode_gap(self._offset, count)
            for at in range(0, len(gap), HEADER_BYTES):
                frame = gap[at : at + HEADER_BYTES]
                self._add(HEADER.unpack(frame)[2], frame)

    def _add(self, offset: int, frame: bytes) -> None:
        while self._times and self._times[0][0] < offset:
            self._times.popleft()
        entries = len(self._entries.places)
        self._entries.add(offset, self._new.size, self._times[0][1] if self._times else self._old.last_time)
        if len(self._entries.places) > entries:
            self._sum()
            self._running.append(self._new.checksum)
        self._waiting += frame
        self._unsummed += frame
        self._new = replace(self._new, size=self._new.size + len(frame))

    def _sum(self) -> None:
        self._new = replace(self._new, checksum=crc32c(self._unsummed, self._new.checksum))
        self._unsummed.clear()

    def flush(self) -> None:
        """Write what waits."""
        assert self._file is not None
        write_fully(self._file, self.written, [bytes(self._waiting)])
        self.written += len(self._waiting)
        self._waiting.clear()
        if self.written - self._forced >= FORCED_AT_ONCE:
            self._force()

    def _force(self) -> None:
        assert self._file is not None
        self._file.force()
        self._forced = self.written

    def finish(self) -> Segment:
        """Write the rest, force all of it, names too; return the new segment."""
        self._gap(self._old.end_offset)
        self._sum()
        self.flush()
        self._force()
        new = self._new
        if not is_needless(new.size) or self._entries.places:
            indexes = self._entries.packed(new.seed, self._running)
            for path, data in zip((new.index_path, new.time_path), indexes, strict=True):
                file = self._filesystem.open(path, create=True)
                try:
                    write_fully(file, 0, [data])
                    file.force()
                finally:
                    file.close()
        self._filesystem.force_directory(new.directory)
        return new

    def remove(self) -> None:
        """Remove what was written: it is no file of any log."""
        for path in self._new.paths:
            if self._filesystem.exists(path):
                self._filesystem.unlink(path)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()


def _file(segment: Segment, kind: SegmentKind, epoch: int) -> str:
    return segment_file(segment.directory, segment.base_offset, kind, epoch)


def _contents(filesystem: IFilesystem, path: str) -> bytes:
    """Return all of an index; nothing if it is missing."""
    if not filesystem.exists(path):
        return b""
    with opened(filesystem, path) as file:
        return bytes(file.read(0, file.size()))
