"""The use of a segment's indexes: each entry is checked, and damaged indexes are made again by a scan."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import MutableMapping
from contextlib import suppress

from journal.errors import CorruptSegment
from journal.formats.index import (
    MAX_GAP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    DamagedIndex,
    IndexEntries,
    above_offset,
    around_time,
    floor_offset,
    is_needless,
    sound_entries,
    sound_times,
)
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.interfaces import IFile
from journal.log.segment import BrokenChain, Read, Segment, is_frame_of, run_on, walk_headers
from journal.records.transient import is_transient
from journal.vfs.filesystem import write_fully
from journal.vfs.open_files import OpenFiles

_log = logging.getLogger(__name__)

Shelf = MutableMapping[int, tuple[bytes, bytes]]
"""Maps salts of segments to (offset, time) indexes made again that may not be written: the flusher owns the files."""


class WouldBlock(Exception):
    """The next step would wait for the disk, or scan a segment."""


class SegmentIndex:
    """The indexes of ``segment`` for one read. ``now`` never waits: it raises :class:`WouldBlock` instead.

    ``read`` reads the segment's log. A sealed segment's indexes are written when they had to be made again; those of
    the active one are put on the ``shelf`` until the flusher has repaired the files.
    """

    def __init__(
        self, files: OpenFiles, segment: Segment, sealed: bool, shelf: Shelf, read: Read, now: bool
    ) -> None:
        self._files = files
        self._segment = segment
        self._sealed = sealed
        self._shelf = shelf
        self._read = read
        self._now = now
        self._seed = segment.seed
        self._base = segment.base_offset, SEGMENT_HEADER_BYTES

    def locate(self, offset: int) -> tuple[int, int]:
        """Return (offset, position) of the frame that holds ``offset``. Raises :class:`CorruptSegment`."""
        try:
            data = self._bytes(self._segment.index_path, 0)
            start = floor_offset(data, self._seed, offset) or self._base
            if not is_frame_of(self._read, self._segment, *start):
                return self._locate_by_scan(data, offset)
            return self._walk(start, offset, MAX_GAP)
        except DamagedIndex as damage:
            return self._locate_anew(offset, str(damage))
        except BrokenChain as broken:
            raise self.corrupt(broken) from broken

    def offset_for_time(self, time: int) -> int:
        """Return an offset at or below the first one appended at ``time`` or later, by at most a gap of the index."""
        segment = self._segment
        if time <= segment.first_time:
            return segment.base_offset
        try:
            index = self._bytes(segment.index_path, 0), self._bytes(segment.time_path, 1)
            before, after = around_time(*index, self._seed, time)
            self._check_gap(before or self._base, after or (segment.end_offset, segment.size))
        except DamagedIndex as damage:
            before, _ = around_time(*self.rebuild(str(damage)), self._seed, time)
        return min((before or self._base)[0], segment.end_offset - 1)

    def _check_gap(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Raise :class:`DamagedIndex` if an entry is missing between two places that have one."""
        if end[1] - start[1] >= MAX_GAP:
            with suppress(BrokenChain):  # the reader of the messages reports damage
                self._walk(start, end[0] - 1, MAX_GAP)

    def corrupt(self, broken: BrokenChain) -> CorruptSegment:
        """Return the error for a break in the chain: everything up to the next frame with an entry is lost."""
        end = broken.next_offset or self._next_sound(broken.offset)
        error = self._segment.corrupt(str(broken), broken.position, broken.offset, end - 1)
        error.lost = broken.lost
        return error

    def rebuild(self, why: str, trusted: bool = True) -> tuple[bytes, bytes]:
        """Make the indexes again and return them; entries with good checksums are kept if ``trusted``.

        They are written only if the segment's running checksum proves all frames: indexes made from damaged bytes must
        never prove these.
        """
        if self._now:
            raise WouldBlock
        segment = self._segment
        _log.warning("making the indexes of %s again: %s", segment.path, why)
        old = self._on_disk() if trusted else (b"", b"")
        made, proven = completed(old, segment, self._read)
        if (
            self._sealed and proven and not is_transient(segment.number)
        ):  # whose files may be removed just now
            self._shelf.pop(segment.salt, None)
            self._write(made)
        else:
            self._shelf[segment.salt] = made
        return made

    def _walk(self, start: tuple[int, int], offset: int, limit: int) -> tuple[int, int]:
        for place in walk_headers(self._read, self._segment, *start):
            if offset < place.offset + place.messages:
                return place.offset, place.position
            if place.position + place.length - start[1] >= limit:
                raise DamagedIndex(f"there are no entries for {limit} bytes after position {start[1]}")
        raise BrokenChain("the segment ends too early", self._segment.size, offset)

    def _locate_anew(self, offset: int, why: str) -> tuple[int, int]:
        try:
            data = self.rebuild(why)[0]
            start = floor_offset(data, self._seed, offset) or self._base
            return self._walk(start, offset, self._segment.size + 1)
        except BrokenChain as broken:
            raise self.corrupt(broken) from broken

    def _locate_by_scan(self, data: bytes, offset: int) -> tuple[int, int]:
        """Scan, because a good entry points to no frame: find out whether the entry or the segment is wrong."""
        entry = floor_offset(data, self._seed, offset)
        while entry and not is_frame_of(self._read, self._segment, *entry):
            entry = floor_offset(data, self._seed, entry[0] - 1)
        found = self._walk(entry or self._base, offset, self._segment.size + 1)
        self.rebuild("an entry points to where no such frame is", trusted=False)
        return found

    def _next_sound(self, offset: int) -> int:
        try:
            data = self._bytes(self._segment.index_path, 0)
            entry = above_offset(data, self._seed, offset)
            while entry and not is_frame_of(self._read, self._segment, *entry):
                entry = above_offset(data, self._seed, entry[0])
        except DamagedIndex:
            entry = None
        return min(entry[0], self._segment.end_offset) if entry else self._segment.end_offset

    def _bytes(self, path: str, number: int) -> bytes:
        shelved = self._shelf.get(self._segment.salt)
        if shelved is not None:
            return shelved[number]
        try:
            file = self._files.acquire(path)
        except FileNotFoundError:
            if is_needless(self._segment.size):
                return b""
            raise DamagedIndex(f"{path} is missing") from None
        try:
            return read_all(file, self._now)
        finally:
            self._files.release(file)

    def _on_disk(self) -> tuple[bytes, bytes]:
        return self._or_nothing(self._segment.index_path, 0), self._or_nothing(self._segment.time_path, 1)

    def _or_nothing(self, path: str, number: int) -> bytes:
        try:
            return self._bytes(path, number)
        except DamagedIndex:
            return b""

    def _write(self, made: tuple[bytes, bytes]) -> None:
        """Replace the files, durably; a failure costs the next reader a scan, not this one its read."""
        filesystem = self._files.filesystem
        if not filesystem.exists(self._segment.path):
            return
        for path, data in zip((self._segment.index_path, self._segment.time_path), made, strict=True):
            try:
                file = self._files.acquire(path, create=True)
                try:
                    write_fully(file, 0, [data])
                    file.truncate(len(data))
                    file.force()
                finally:
                    self._files.release(file)
                filesystem.force_directory(self._segment.directory)
            except OSError as error:
                _log.warning("%s could not be written: %s", path, error)


def read_all(file: IFile, now: bool = False) -> bytes:
    """Return a whole file; with ``now`` raise :class:`WouldBlock` rather than wait."""
    if not now:
        return file.read(0, file.size())
    data = file.read_now(0, file.size())
    if data is None:
        raise WouldBlock
    return data


def completed(old: tuple[bytes, bytes], segment: Segment, read: Read) -> tuple[tuple[bytes, bytes], bool]:
    """Return both indexes of a segment, and whether its running checksum proves the bytes that they were made from.

    They are the sound entries of the ``old`` ones, and those that a scan behind them finds. Append times are not in the
    frames, and the clients' clocks may be behind. So an entry whose time is lost gets that of the next sound one, or
    the segment's last: a search for a time may start too early, but misses nothing. A damaged frame ends the scan.
    """
    seed = segment.seed
    count = sound_entries(*old, seed, segment.end_offset, segment.size)
    offset, position, running = segment.base_offset, SEGMENT_HEADER_BYTES, seed
    if count:
        offset, position, running, _ = OFFSET_ENTRY.unpack_from(old[0], (count - 1) * OFFSET_ENTRY.size)
    entries = IndexEntries(position)
    known = deque(sound_times(old[1], seed, offset, segment.end_offset))
    try:
        for place in walk_headers(read, segment, offset, position):
            while known and known[0][0] < place.offset:
                known.popleft()
            entries.add(place.offset, place.position, known[0][1] if known else segment.last_time)
    except BrokenChain as broken:
        _log.warning("%s is damaged at byte %s: %s", segment.path, broken.position, broken)
    checksums: list[int] = []
    for _, end, _ in entries.places:
        running = run_on(read, running, position, end)
        checksums.append(running)
        position = end
    proven = run_on(read, running, position, segment.size) == segment.checksum
    new = entries.packed(seed, checksums)
    made = old[0][: count * OFFSET_ENTRY.size] + new[0], old[1][: count * TIME_ENTRY.size] + new[1]
    return made, proven
