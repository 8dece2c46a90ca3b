"""Reading of files that are no longer written, a piece at a time, to find damage early. Touches files only.

Bytes in the page cache prove nothing about the disk, so each piece is dropped from the cache before it is read. A
damaged piece is reported with the same error that a read of it raises.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from crc32c import crc32c

from journal.constants import KIB
from journal.errors import CorruptData, CorruptJournal, CorruptSegment
from journal.formats import filenames
from journal.formats.checkpoint import read_checkpoint
from journal.formats.frame import HEADER, HEADER_BYTES, LOST, is_sound
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.staged_header import STAGED_HEADER_BYTES
from journal.interfaces import IFile, IFilesystem
from journal.log.segment import BrokenChain, Segment, header_fault, read_run
from journal.log.segment_index import SegmentIndex
from journal.records.journal_headers import FIRST_GROUP
from journal.transaction_states import TransactionNumber
from journal.transactions.staging import Entry, damaged_frames
from journal.vfs.file_window import FileWindow, opened
from journal.vfs.open_files import OpenFiles
from journal.wal.reader import FileEnd, FileReader, file_start
from journal.words import count_text

PIECE_BYTES = 256 * KIB
"""Most bytes of one piece, except for a longer message or journal group. If messages are small, a piece keeps the
interpreter busy for a millisecond or two.
"""


class Scrubbed(NamedTuple):
    """The result of a piece: bytes read, how long that took (seconds), damage, and the piece after it."""

    bytes: int
    seconds: float
    finding: CorruptData | None
    rest: Piece | None


class Piece(Protocol):
    """A part of a file."""

    @property
    def path(self) -> str:
        """Return the path of the file."""

    def run(self) -> Scrubbed:
        """Read and check it; any thread. A missing file is no damage: its log was shortened meanwhile."""


def timed(read: Callable[[], tuple[int, CorruptData | None, Piece | None]]) -> Scrubbed:
    """Run a reading and return how long it took."""
    begun = time.perf_counter()
    try:
        count, finding, rest = read()
    except FileNotFoundError:
        count, finding, rest = 0, None, None
    return Scrubbed(count, time.perf_counter() - begun, finding, rest)


@dataclass(frozen=True, slots=True)
class _OfSegment(ABC):
    """A part of a sealed segment."""

    files: OpenFiles
    segment: Segment

    @property
    def path(self) -> str:
        """Return the path of the segment."""
        return self.segment.path

    def run(self) -> Scrubbed:
        """Read up to a piece of it."""
        return timed(self._read)

    def _read(self) -> tuple[int, CorruptData | None, Piece | None]:
        with opened(self.files.filesystem, self.segment.path) as file:
            return self._check(file)

    @abstractmethod
    def _check(self, file: IFile) -> tuple[int, CorruptData | None, Piece | None]:
        """Return bytes read, damage, and the piece to be read after it."""


@dataclass(frozen=True, slots=True)
class SegmentPiece(_OfSegment):
    """A sealed segment from byte ``position`` on, where its running checksum is ``running``.

    The running checksum at its end proves the whole. If that fails, it is read once more, frame by frame.
    """

    position: int
    running: int

    def _check(self, file: IFile) -> tuple[int, CorruptData | None, Piece | None]:
        segment, position = self.segment, self.position
        finding: CorruptSegment | None = None
        file.forget_cached(position, PIECE_BYTES)
        if position == SEGMENT_HEADER_BYTES:
            fault = header_fault(segment, file.read(0, SEGMENT_HEADER_BYTES))
            if fault is not None and fault.foreign:
                return 0, segment.corrupt(fault.what, 0, segment.base_offset, segment.end_offset - 1), None
            finding = None if fault is None else _damaged_header(segment, fault.what)
        data = file.read(position, min(PIECE_BYTES, segment.size - position))
        running, position = crc32c(data, self.running), position + len(data)
        rest: Piece | None = None
        if data and position < segment.size:
            rest = replace(self, position=position, running=running)
        elif running != segment.checksum or position < segment.size:
            rest = FramesPiece(self.files, segment, segment.base_offset, SEGMENT_HEADER_BYTES, segment.seed)
        return len(data), finding, rest


def _damaged_header(segment: Segment, what: str) -> CorruptSegment:
    return CorruptSegment(
        f"{segment.path} is damaged at byte 0: {what}. Its messages can be read all the same; nothing was changed. "
        "'txbroker repair' of the stopped broker writes the header anew. Look at the disk",
        segment.path,
        0,
        segment.base_offset,
        segment.base_offset,
    )


@dataclass(frozen=True, slots=True)
class FramesPiece(_OfSegment):
    """A sealed segment that fails its running checksum, from the frame of ``offset`` at ``position`` on.

    ``running`` is the running checksum there, None once damage has been found. If every frame fulfils its own checksum,
    all of the segment is named.
    """

    offset: int
    position: int
    running: int | None

    def _check(self, file: IFile) -> tuple[int, CorruptData | None, Piece | None]:
        segment = self.segment
        file.forget_cached(self.position, PIECE_BYTES)
        try:
            data, offset = read_run(file.read, segment, self.offset, self.position, PIECE_BYTES)
        except BrokenChain as broken:
            index = SegmentIndex(self.files, segment, True, {}, file.read, now=False)
            error = index.corrupt(broken)
            known = is_known_to_be_lost(file, broken.position)
            return HEADER_BYTES, None if known else error, self._behind(index, error)
        position = self.position + len(data)
        running = None if self.running is None else crc32c(data, self.running)
        if position < segment.size:
            return len(data), None, replace(self, offset=offset, position=position, running=running)
        if running is None or running == segment.checksum:
            return len(data), None, None
        first, last = segment.base_offset, segment.end_offset - 1
        what = "it fails its checksum, though every frame fulfils its own: some are another log's"
        return len(data), segment.corrupt(what, SEGMENT_HEADER_BYTES, first, last), None

    def _behind(self, index: SegmentIndex, error: CorruptSegment) -> FramesPiece | None:
        """Return the next piece that can be read behind damage."""
        while error.last_offset + 1 < self.segment.end_offset:
            try:
                offset, position = index.locate(error.last_offset + 1)
            except CorruptSegment as further:
                if further.last_offset <= error.last_offset:
                    return None
                error = further
                continue
            return replace(self, offset=offset, position=position, running=None)
        return None


def is_known_to_be_lost(file: IFile, position: int) -> bool:
    """Return whether a repair has marked the messages there as lost."""
    header = file.read(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES or not HEADER.unpack(header)[6] & LOST:
        return False
    return is_sound(file.read(position, HEADER.unpack(header)[0]))


class JournalPiece(NamedTuple):
    """A journal file that is no longer written, from the group of ``lsn`` at ``position`` on, up to LSN ``end``."""

    filesystem: IFilesystem
    path: str
    end: int
    lsn: int = 0
    position: int = FIRST_GROUP

    def run(self) -> Scrubbed:
        """Read groups up to a piece."""
        return timed(self._read)

    def _read(self) -> tuple[int, CorruptData | None, Piece | None]:
        with opened(self.filesystem, self.path) as file:
            return self._check(file)

    def _check(self, file: IFile) -> tuple[int, CorruptData | None, Piece | None]:
        try:
            header = file_start(self.filesystem, self.path).header
        except CorruptJournal as error:
            return FIRST_GROUP, self._damaged(0, str(error)), None
        bytes_of = FileWindow(file.read, file.size(), PIECE_BYTES)
        file.forget_cached(self.position, PIECE_BYTES)
        for each in FileReader(bytes_of, self.path, header, self.end).groups(False, self.position, self.lsn):
            count = each.position - self.position
            if isinstance(each, FileEnd):
                damage = self._damaged(each.position, each.problem) if each.proof else None
                return count, damage, None
            if count >= PIECE_BYTES:
                return count, None, self._replace(lsn=each.header.first_lsn, position=each.position)
        raise AssertionError("a file has an end")

    def _damaged(self, position: int, what: str) -> CorruptJournal:
        return CorruptJournal(
            f"{self.path} is damaged at {position}: {what}. Nothing was changed. The broker goes on, but a start that "
            "needs it would be refused, and undecided transactions may have frames there. After two more checkpoints "
            "no start needs it: look at the disk before you stop the broker",
            self.path,
            position,
        )


class StagedPiece(NamedTuple):
    """The staged file of an undecided transaction from byte ``position`` of its entry number ``entry`` on.

    ``checksum`` is that of all earlier frames; ``through`` entries are in the file, which may grow behind them
    meanwhile.
    """

    filesystem: IFilesystem
    number: TransactionNumber
    entries: list[Entry]
    through: int
    entry: int = 0
    position: int = STAGED_HEADER_BYTES
    checksum: int = 0

    @property
    def path(self) -> str:
        """Return the path of the staged file."""
        return filenames.staged_file(self.number.session, self.number.serial)

    def run(self) -> Scrubbed:
        """Read up to a piece of it. A missing file is damage, unless the transaction has ended meanwhile."""
        return timed(self._read)

    def _read(self) -> tuple[int, CorruptData | None, Piece | None]:
        try:
            file = self.filesystem.open(self.path, writable=False)
        except FileNotFoundError:
            return 0, damaged_frames(self.path, "the staged frames", "there: the file is missing"), None
        last = self.entries[self.through - 1]
        length = min(PIECE_BYTES, last.position + last.size - self.position)
        try:
            file.forget_cached(self.position, length)
            return length, *self._check(memoryview(file.read(self.position, length)), length)
        finally:
            file.close()

    def _check(self, data: memoryview, length: int) -> tuple[CorruptData | None, Piece | None]:
        at, checksum = 0, self.checksum
        for index in range(self.entry, self.through):
            entry = self.entries[index]
            end = entry.position + entry.size - self.position
            checksum = crc32c(data[at:end], checksum)
            if end > length == len(data):
                return None, self._replace(entry=index, position=self.position + length, checksum=checksum)
            if end > len(data) or checksum != entry.checksum:
                wanted = f"the {count_text(entry.count, 'message')} staged there"
                error = damaged_frames(self.path, f"the {entry.size} bytes", wanted, entry.position)
                return error, self._behind(index)
            at = end
        return None, None

    def _behind(self, index: int) -> Piece | None:
        """Return the piece from the entry after a damaged one on: its expected checksum is known."""
        if index + 1 == self.through:
            return None
        after = self.entries[index + 1]
        return self._replace(entry=index + 1, position=after.position, checksum=self.entries[index].checksum)


class CheckpointPiece(NamedTuple):
    """A whole checkpoint."""

    filesystem: IFilesystem
    lsn: int

    @property
    def path(self) -> str:
        """Return the path of the checkpoint."""
        return filenames.checkpoint_file(self.lsn)

    def run(self) -> Scrubbed:
        """Read all of it."""
        return timed(self._read)

    def _read(self) -> tuple[int, CorruptData | None, Piece | None]:
        with opened(self.filesystem, self.path) as file:
            size = int(file.size())
            file.forget_cached(0, size)
        try:
            read_checkpoint(self.filesystem, self.lsn)
        except CorruptData as error:
            return size, error, None
        return size, None, None
