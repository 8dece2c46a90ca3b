"""Flushes: published bytes on their way from memory to segments, decided on the reactor, done by the flusher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from crc32c import crc32c
from msgspec.structs import replace

from journal.formats.filenames import PARTITION_DIRECTORY, TRANSIENT_DIRECTORY
from journal.formats.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    IndexEntries,
    has_no_entry,
    is_needless,
    sound_entries,
)
from journal.formats.segment_header import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    pack_segment_header,
    unpack_segment_header,
)
from journal.interfaces import IFile
from journal.log.segment import Segment
from journal.log.segment_index import completed, read_all
from journal.vfs.filesystem import write_fully
from journal.vfs.open_files import OpenFiles


@dataclass(slots=True)
class Piece:
    """The part of a flush for one segment. ``before`` and ``after`` are the segment without and with it.

    ``after`` has its running checksum once the piece has been written. ``header`` is the header of a new file;
    ``closed`` is then the segment before it.

    ``ends``, ``positions`` and ``times`` are the appends, in the tail's positions; ``first`` is (offset, position)
    before them. ``views`` are their bytes, ``inside`` places in the long ones.
    """

    before: Segment
    after: Segment
    first: tuple[int, int]
    ends: Sequence[int]
    positions: Sequence[int]
    times: Sequence[int]
    views: list[memoryview]
    inside: Mapping[int, Sequence[tuple[int, int]]]
    header: bytes = b""
    closed: Segment | None = None

    def bytes_at(self, start: int, end: int) -> memoryview:
        """Return the bytes between two of the tail's positions inside one append."""
        start -= self.first[1]
        end -= self.first[1]
        for view in self.views:
            if start < len(view):
                return view[start:end]
            start -= len(view)
            end -= len(view)
        raise AssertionError(f"{self.after.path} is not given position {start}")

    def adopt(self, header: SegmentHeader) -> None:
        """Keep the header that the file has: a start that is refused must not have changed the file's identity."""
        self.header = pack_segment_header(header)
        self.before = self.before.begun(header.salt)
        self.after = replace(self.after, salt=header.salt)

    def finish(self, positions: Sequence[int]) -> list[int]:
        """Give ``after`` its running checksum; return those at these ascending positions of the segment.

        It makes one checksum call for all bytes between two positions: 16 KiB and more.
        """
        found: list[int] = []
        checksum, at = self.before.checksum, self.before.size
        views = iter(self.views)
        view = next(views)
        for position in [*positions, self.after.size]:
            while position - at > len(view):
                checksum = crc32c(view, checksum)
                at += len(view)
                view = next(views)
            checksum = crc32c(view[: position - at], checksum)
            view, at = view[position - at :], position
            found.append(checksum)
        self.after = replace(self.after, checksum=found.pop())
        return found


@dataclass(slots=True)
class IndexEnd:
    """The end of the sound part of the active segment's index files."""

    base_offset: int
    entries: int
    last_position: int


class FlushJob:
    """A flush of one partition. ``run`` may run on another thread: it touches files and nothing else of the store.

    It makes the partition's own directory; the one above (``partitions``) exists since the data directory does.

    After an ``OSError`` from it the process must stop and recover: written bytes may be lost in part, and no retry can
    detect that (the kernel may have dropped the pages).
    """

    def __init__(
        self,
        files: OpenFiles,
        pieces: list[Piece],
        appends: int,
        index_end: IndexEnd | None,
        first_ever: bool,
        forced: bool = True,
    ) -> None:
        """Not ``forced``: no start will read it, and nothing of it is ever forced."""
        self._forced = forced
        self.pieces = pieces
        self.appends = appends
        self.index_end = index_end
        self.done = False
        self._files = files
        self._first_ever = first_ever

    @property
    def end_offset(self) -> int:
        """The offset after the last message of the job."""
        return self.pieces[-1].after.end_offset

    @property
    def bytes(self) -> int:
        """How many bytes the job writes to segments."""
        return sum(piece.after.size - piece.before.size for piece in self.pieces)

    def run(self, durably: bool = True, cut: bool = True) -> None:
        """Write and force everything; new files and directories are durable when it returns.

        If not ``durably``, they are durable only when :meth:`OpenFiles.force <journal.vfs.open_files.OpenFiles.force>`
        has returned and the directory of partitions is forced, which happens before the next checkpoint: until then the
        journal has it all. ``cut``: leave nothing behind the end, which a run before the last crash may have written.
        Else all of that stays, because it is not known yet whether the journal has it: a start that refuses it must not
        have removed it.
        """
        for piece in self.pieces:
            self._write(piece, durably, cut)
        self.done = True

    def _write(self, piece: Piece, durably: bool, cut: bool) -> None:
        segment = piece.after
        filesystem = self._files.filesystem
        new = bool(piece.header)
        if new and self._first_ever:
            if not self._forced:
                filesystem.make_directory(TRANSIENT_DIRECTORY)
            filesystem.make_directory(segment.directory)
        file = self._files.acquire(segment.path, create=new)
        size = file.size()
        stale = new and size > 0
        if stale and cut:
            # Left by a run before the last crash and in no checkpoint: the journal has it all.
            file.truncate(0)
            size = 0
        elif stale and (header := self._header_of(file, segment)) is not None:
            piece.adopt(header)
        if not self._forced:
            try:
                self._fill(piece, file, size, stale, durably, cut)
            finally:
                self._files.release(file)
            self._first_ever = self._first_ever and not new
            return
        # From here to the release no failure releases the pin: unforced bytes are in this descriptor.
        self._fill(piece, file, size, stale, durably, cut)
        if not durably:
            self._files.release_unforced(file, new)
            return
        file.force()
        self._files.release(file)
        if new:
            filesystem.force_directory(segment.directory)
        if new and self._first_ever:
            filesystem.force_directory(PARTITION_DIRECTORY)
            self._first_ever = False

    def _fill(self, piece: Piece, file: IFile, size: int, stale: bool, durably: bool, cut: bool) -> None:
        """Write a piece to its file, of ``size`` bytes, and to its indexes."""
        new = bool(piece.header)
        start = 0 if new else piece.before.size
        write_fully(file, start, [memoryview(piece.header), *piece.views] if new else piece.views)
        self._write_indexes(piece, file, stale, durably)
        if cut and size > piece.after.size:
            # Also left by such a run, and not written over. In replay it stays: more will be written there, and a
            # truncation for each of 10,000 logs would take longer than everything else.
            file.truncate(piece.after.size)

    @staticmethod
    def _header_of(file: IFile, segment: Segment) -> SegmentHeader | None:
        """Return the header of a file that is written over in a replay, if it is that segment's file."""
        header = unpack_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
        mine = (segment.number, segment.base_offset)
        return header if header is not None and header[2:4] == mine else None

    def _write_indexes(self, piece: Piece, log: IFile, stale: bool, durably: bool) -> None:
        if piece.closed is not None:
            self._close_indexes(piece.closed, durably)
        known = None if stale else self._known_end(piece.before)
        if known is not None:
            entries = _new_entries(piece, known)
            if not entries.places and (known.entries or is_needless(piece.after.size)):
                piece.finish(())
                # Less than the gap between two entries: nothing to write. Of 10,000 partitions few have index files;
                # making two more empty files for each took a quarter of the first flush.
                self.index_end = known
                return
        index = self._files.acquire(piece.after.index_path, create=True)
        time = self._files.acquire(piece.after.time_path, create=True)
        try:
            end = self._index_end(piece.before, log, index, time)
            entries = _new_entries(piece, end)
            running = piece.finish([position for _, position, _ in entries.places])
            offsets, times = entries.packed(piece.after.seed, running)
            write_fully(index, end.entries * OFFSET_ENTRY.size, [memoryview(offsets)])
            write_fully(time, end.entries * TIME_ENTRY.size, [memoryview(times)])
            count = end.entries + len(running)
            self.index_end = IndexEnd(piece.after.base_offset, count, entries.last_position)
        finally:
            self._files.release(index)
            self._files.release(time)

    def _known_end(self, before: Segment) -> IndexEnd | None:
        """Return where the next entries go, if that is known without a look into the files."""
        known = self.index_end
        if known is not None and known.base_offset == before.base_offset:
            return known
        return IndexEnd(before.base_offset, 0, SEGMENT_HEADER_BYTES) if has_no_entry(before.size) else None

    def _index_end(self, before: Segment, log: IFile, index: IFile, time: IFile) -> IndexEnd:
        """Return where the next entries go; index files that this process has not written to are checked first."""
        known = self.index_end
        if known is not None and known.base_offset == before.base_offset and known.entries:
            return known
        found, made = (read_all(index), read_all(time)), (b"", b"")
        if before.end_offset > before.base_offset:
            made, proven = completed(found, before, log.read)
            if (
                not proven
            ):  # only entries that are sound by themselves may stay: entries made from damage prove nothing
                count = sound_entries(*found, before.seed, before.end_offset, before.size)
                made = made[0][: count * OFFSET_ENTRY.size], made[1][: count * TIME_ENTRY.size]
        for file, data, there in zip((index, time), made, found, strict=True):
            if data != there:
                file.truncate(len(data))
                write_fully(file, 0, [data])
        entries = len(made[0]) // OFFSET_ENTRY.size
        last = OFFSET_ENTRY.unpack_from(made[0], (entries - 1) * OFFSET_ENTRY.size)[1] if entries else 0
        return IndexEnd(before.base_offset, entries, last or SEGMENT_HEADER_BYTES)

    def _close_indexes(self, closed: Segment, durably: bool) -> None:
        """Force a closed segment's indexes: they do not change any more, and prove its frames."""
        if self._known_end(closed) is None:
            self._repair_indexes(closed)
        for path in (closed.index_path, closed.time_path):
            try:
                file = self._files.acquire(path)
            except FileNotFoundError:
                continue  # it needs none, or has lost it: then it is made again
            if not self._forced:
                self._files.release(file)
            elif durably:
                file.force()
                self._files.release(file)
            else:
                self._files.release_unforced(file)

    def _repair_indexes(self, segment: Segment) -> None:
        """Make good what the last crash has left of indexes that this process has not written to."""
        paths = segment.index_path, segment.time_path
        if is_needless(segment.size) and not any(map(self._files.filesystem.exists, paths)):
            return
        with ExitStack() as acquired:
            files: list[IFile] = []
            for path in (segment.path, *paths):
                files.append(self._files.acquire(path, create=path in paths))
                acquired.callback(self._files.release, files[-1])
            self._index_end(segment, *files)


def _new_entries(piece: Piece, end: IndexEnd) -> IndexEntries:
    """Return the new entries for the piece's messages."""
    entries = IndexEntries(end.last_position)
    shift = piece.before.size - piece.first[1]
    entries.add_appends(
        piece.ends, piece.positions, piece.times, piece.first, shift, piece.bytes_at, piece.inside
    )
    return entries
