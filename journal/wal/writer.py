"""The writer of the journal's files: groups one after the other, zero-filled ahead, rolled, forced, recycled.

Only the writer (in the service a thread) uses it, except where a method says otherwise.
:mod:`journal.records.journal_headers` defines the bytes; this module does not interpret records.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from zope.interface import implementer

from journal.constants import BLOCK, GROUP_BYTES, JOURNAL_FILE_BYTES
from journal.errors import NEXT_STEP, CorruptJournal, JournalPoisoned
from journal.formats import filenames
from journal.interfaces import IFile, IFilesystem, IJournal
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    FileHeader,
    blocks,
    body_checksum,
    pack_file_header,
    pack_group_header,
)
from journal.vfs import force_calls
from journal.vfs.file_window import FileWindow, file_size, opened
from journal.vfs.filesystem import write_fully, zero_fill
from journal.wal.reader import FileReader, Group, JournalEntry

JOIN_BELOW = 1024
"""Groups whose pieces are smaller than this on average are joined before they are written.

Measured: 2,000 pieces of 80 bytes take 73 µs in two pwritev calls, 20 µs joined; at 1 KiB a piece both cost the same.
"""

RECYCLED_FILES = 4
"""How many dead files are kept for reuse: a checkpoint's worth. Zero-filling a new one would write every byte twice."""


ALONE_BYTES = 64 << 10
"""A group of at most so many bytes may be written and forced past its file: it is joined on the reactor for that."""


class Placed(NamedTuple):
    """A group's bytes, and where they go: to be written and forced past its file."""

    descriptor: int
    position: int
    pieces: list[bytes | memoryview]


class Forced(NamedTuple):
    """What came of it: the number of an error, 0 for none, the stage that it reached, of those of
    :mod:`journal.vfs.force_calls`, and when writing began, when it ended, and when the force did: ns of the monotonic
    clock.
    """

    error: int
    stage: int
    begun: int
    written: int
    forced: int


@dataclass(slots=True, eq=False)
class JournalGroup:
    """Records that are written and forced together. The reactor fills it, then the writer only reads it."""

    first_lsn: int
    forced_lsn: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)
    length: int = 0
    count: int = 0

    @property
    def last_lsn(self) -> int:
        """The LSN of its last record."""
        return self.first_lsn + self.count - 1


@dataclass(slots=True)
class _Written:
    """A journal file and the positions of its groups: parallel arrays of first LSNs and positions."""

    header: FileHeader
    path: str
    lsns: array[int] = field(default_factory=lambda: array("Q"))
    positions: array[int] = field(default_factory=lambda: array("Q"))


@implementer(IJournal)
class Journal:
    """The journal files of one data directory."""

    def __init__(self, filesystem: IFilesystem, file_bytes: int = JOURNAL_FILE_BYTES) -> None:
        self._filesystem = filesystem
        self._file_bytes = file_bytes
        self._file: IFile | None = None
        self._position = 0
        self._capacity = 0
        self._unforced = 0
        self._files: list[_Written] = []
        self.salt = 0
        self.start = 0
        self.poisoned = ""

    # -- files -------------------------------------------------------------------------------------

    def adopt(self, header: FileHeader, path: str, groups: list[tuple[int, int]]) -> None:
        """Add a file that recovery has read; ``groups`` are (first LSN, position)."""
        written = _Written(header, path)
        for lsn, position in groups:
            written.lsns.append(lsn)
            written.positions.append(position)
        self._files.append(written)

    def open_first(self, start: int, salt: int, first_lsn: int, previous_end: int) -> None:
        """Begin the first file of a start, durably. ``previous_end`` is the LSN after the last valid record."""
        self.start, self.salt = start, salt
        self._roll(first_lsn, previous_end)

    def _roll(self, first_lsn: int, previous_end: int) -> None:
        """Make the next file: force its header under another name, rename it, force the directory."""
        filesystem = self._filesystem
        self.force()
        previous_first = self._files[-1].header.first_lsn if self._files else 0
        path = filenames.journal_file(first_lsn)
        if self.spare_exists():
            # Under a name that the flusher does not use: it may rename another spare to that name at any moment.
            filesystem.rename(filenames.SPARE_NEXT, filenames.SPARE_ROLLING)
        spare = filesystem.open(filenames.SPARE_ROLLING, create=True)
        size = max(spare.size(), FIRST_GROUP)
        header = FileHeader(first_lsn, self.start, self.salt, previous_first, previous_end, size)
        write_fully(spare, 0, [pack_file_header(header)])
        spare.force()
        filesystem.rename(filenames.SPARE_ROLLING, path)
        filesystem.force_directory(filenames.JOURNAL_DIRECTORY)
        spare.close()
        self.close()
        self._file = filesystem.open(path)
        self._position = FIRST_GROUP
        self._capacity = max(self._file_bytes, self._file.size())
        self._files.append(_Written(header, path))

    def close(self) -> None:
        """Close the current file. Forces nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- the writer --------------------------------------------------------------------------------

    def write(self, group: JournalGroup) -> None:
        """Write one group after the last; a file that is full is forced and rolled first.

        Raises :class:`JournalPoisoned` for any failure, and from then on always: nothing is retried.
        """
        try:
            self._write(group)
        except OSError as error:
            self._poison("writing", error)

    def _write(self, group: JournalGroup) -> None:
        if self.poisoned:
            raise JournalPoisoned(self.poisoned)
        size = GROUP_HEADER_BYTES + group.length
        if self._position + size > self._capacity and self._position > FIRST_GROUP:
            self._roll(group.first_lsn, group.first_lsn)
        if self._unforced and self._unforced + size > GROUP_BYTES:
            self.force()
        assert self._file is not None, "the journal has been opened"
        write_fully(self._file, self._position, self._packed(group))
        self._note(group, size)
        self._unforced += size

    def _packed(self, group: JournalGroup) -> list[bytes | memoryview]:
        pieces = group.pieces
        if group.length < len(pieces) * JOIN_BELOW:
            pieces = [b"".join(pieces)]
        header = pack_group_header(
            group.length, group.count, group.first_lsn, group.forced_lsn, body_checksum(pieces), self.salt
        )
        return [header, *pieces]

    def _note(self, group: JournalGroup, size: int) -> None:
        written = self._files[-1]
        written.lsns.append(group.first_lsn)
        written.positions.append(self._position)
        self._position += blocks(size)

    def place(self, group: JournalGroup) -> Placed | None:
        """Return where a small group goes that needs nothing done before it; None if :meth:`write` must do it.

        For the reactor, while the writer has no group. Whoever writes and forces it tells :meth:`forced_alone`, and
        nothing else is written before.
        """
        file, size = self._file, GROUP_HEADER_BYTES + group.length
        if size > ALONE_BYTES or file is None or self._unforced or self.poisoned:
            return None
        if self._position + size > self._capacity or file.descriptor is None:
            return None
        return Placed(file.descriptor, self._position, self._packed(group))

    def forced_alone(self, group: JournalGroup, forced: Forced) -> None:
        """Note what came of a group that was placed. Raises :class:`JournalPoisoned`, as :meth:`force` does."""
        if forced.error:
            path = self._files[-1].path
            error = OSError(forced.error, os.strerror(forced.error), path)
            self._poison("writing" if forced.stage == force_calls.WRITING else "forcing", error)
        self._note(group, GROUP_HEADER_BYTES + group.length)

    def force(self) -> None:
        """Return once everything written is on disk. A failure poisons the journal for good.

        After a failed fdatasync the kernel has dropped the dirty pages, so a second one that succeeds proves nothing
        (Rebello et al., "Can Applications Recover from fsync Failures?", 2020).
        """
        if self.poisoned:
            raise JournalPoisoned(self.poisoned)
        if not self._unforced or self._file is None:
            return
        try:
            self._file.force()
        except OSError as error:
            self._poison("forcing", error)
        self._unforced = 0

    def _poison(self, action: str, error: OSError) -> None:
        self.poisoned = (
            f"{action} {self._files[-1].path if self._files else 'the journal'} failed: {error}. Whether what was "
            "being written is on disk is unknown; nothing is retried. The process must stop; the next start recovers"
        )
        raise JournalPoisoned(self.poisoned) from error

    # -- ahead of need and clean-up (flusher thread) -----------------------------------------------------

    def spare_exists(self) -> bool:
        """Return whether the next file is ready."""
        return self._filesystem.exists(filenames.SPARE_NEXT)

    def fill_spare(self) -> None:
        """Make a recycled file the next one, or zero-fill and force a new one, under another name until it is done."""
        recycled = self._recycled()
        if recycled:
            self._filesystem.rename(recycled[0], filenames.SPARE_NEXT)
            return
        spare = self._filesystem.open(filenames.SPARE_FILLING, create=True)
        try:
            zero_fill(spare, 0, self._file_bytes)
            spare.force()
        finally:
            spare.close()
        self._filesystem.rename(filenames.SPARE_FILLING, filenames.SPARE_NEXT)

    def _recycled(self) -> list[str]:
        names = self._filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
        lsns = (filenames.parse_recycled_file(name) for name in names)
        return [filenames.recycled_file(lsn) for lsn in lsns if lsn is not None]

    def drop_unfilled(self) -> None:
        """Remove a spare that could not be filled, which takes space on a full disk."""
        if self._filesystem.exists(filenames.SPARE_FILLING):
            self._filesystem.unlink(filenames.SPARE_FILLING)

    @property
    def newest_lsn(self) -> int:
        """Return the first LSN of the newest file. Any thread may call this."""
        return self._files[-1].header.first_lsn

    def closed_files(self) -> list[tuple[str, int]]:
        """Return the paths of the files that are no longer written, and the LSN after the last valid record of each."""
        pairs = zip(self._files, self._files[1:], strict=False)
        return [(file.path, after.header.previous_end) for file, after in pairs]

    def take_dead(self, below: int) -> list[str]:
        """Forget the files that hold only records below that LSN; return their paths. (Reactor.)"""
        dead = []
        while len(self._files) > 1 and self._files[1].header.previous_end <= below:
            dead.append(self._files.pop(0).path)
        return dead

    def remove(self, paths: list[str], keep: int = RECYCLED_FILES) -> None:
        """Unlink dead files, except as many as bring the recycled ones to ``keep``.

        A recycled file loses its old name durably before it may be written to: its new header must never be found under
        the old name.
        """
        filesystem = self._filesystem
        room = keep - len(self._recycled())
        for path in paths:
            lsn = filenames.parse_journal_file(path.rpartition("/")[2])
            if room > 0 and lsn is not None and file_size(filesystem, path) >= self._file_bytes:
                filesystem.rename(path, filenames.recycled_file(lsn))
                room -= 1
            else:
                filesystem.unlink(path)
        if paths:
            filesystem.force_directory(filenames.JOURNAL_DIRECTORY)

    # -- reading back --------------------------------------------------------------------------------

    def group_records(self, lsn: int) -> tuple[int, list[JournalEntry]]:
        """Return (first LSN, records) of the group that holds ``lsn``; only for groups that have been written.

        Of a torn group it returns the records before the tear. Raises :class:`CorruptJournal` if the bytes are no
        longer what was written.
        """
        written = self._files[bisect_right(self._files, lsn, key=_first_lsn) - 1]
        number = bisect_right(written.lsns, lsn) - 1
        first, position = written.lsns[number], written.positions[number]
        with opened(self._filesystem, written.path) as file:
            reader = FileReader(FileWindow(file.read, file.size(), BLOCK), written.path, written.header)
            header = reader.group_header(position)
            if header is None or header.first_lsn != first:
                message = (
                    f"{written.path} is damaged at {position}: the group of LSN {first} cannot be read back, nor what "
                    "transactions staged in it. Nothing was changed; they can be rolled back. Restore the file from a "
                    f"copy. {NEXT_STEP}"
                )
                raise CorruptJournal(message, written.path, position)
            found: list[JournalEntry] = []
            try:
                found += reader.records(Group(position, header, header.records))
            except CorruptJournal:
                if len(found) <= lsn - first:
                    raise
        return first, found


def _first_lsn(written: _Written) -> int:
    return written.header.first_lsn
