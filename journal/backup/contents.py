"""The cut: which bytes of which files are a data directory as it was at one LSN, read beside a running engine.

All of them are ranges that no running engine changes (decision 0064), of files that a pin keeps: the newest checkpoint,
of segments and staged files what that counts, and the journal from what it needs up to the group with the cut. It is
what a crash at the cut would have left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import NamedTuple

from journal.checkpoints.rows import read_sound
from journal.errors import NEXT_STEP, CorruptData, CorruptJournal
from journal.folds.identity import IdentityFold
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.filenames import SegmentKind, segment_file
from journal.formats.repair_notes import RESTORE_UNFINISHED, UNFINISHED
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, seed_of
from journal.formats.staged_header import STAGED_HEADER_BYTES
from journal.formats.store_state import StoreState
from journal.formats.witness import Witness, pack_witness
from journal.interfaces import IFilesystem
from journal.log.start_history import Starts
from journal.records.journal_headers import FIRST_GROUP, FileHeader
from journal.records.record import Identified, Started
from journal.recovery.first_use import check_version
from journal.transactions.table import live_rows
from journal.vfs.file_window import file_size, window
from journal.wal.reader import FileEnd, FileReader, Group, file_start, journal_lsns


class Proof(NamedTuple):
    """What proves a file: the checksum of all bytes from ``start`` on, begun with ``seed``, is ``expected``."""

    start: int
    seed: int
    expected: int


class Piece(NamedTuple):
    """A file of the cut: ``size`` bytes, of which those from ``length`` on are zeros there.

    ``data`` has the contents of one that is made for the backup; it is in no file.
    """

    path: str
    length: int
    size: int
    proof: Proof | None = None
    data: bytes | None = None


class Contents(NamedTuple):
    """The contents of a data directory at ``cut``; ``start`` and ``nonce`` are of the newest start in it."""

    pieces: list[Piece]
    checkpoint: int
    cut: int
    start: int
    nonce: bytes
    identity: str

    @property
    def bytes(self) -> int:
        """How many bytes there are."""
        return sum(piece.length for piece in self.pieces)


class _JournalEnd(NamedTuple):
    header: FileHeader
    lsn: int
    started: Started | None
    identity: str


def contents(filesystem: IFilesystem, checkpoint_lsn: int, cut: int) -> Contents:
    """Return what the directory held when the record at ``cut`` was forced; no file that it needs may go meanwhile.

    ``checkpoint_lsn`` is that of the newest checkpoint at that moment, 0 without one. The journal is read and proven up
    to the cut, the checkpoint as a start reads it. Raises :class:`CorruptJournal` for damage in either,
    :class:`UnknownFormat` for a format that is not known, and ``FileNotFoundError`` for a file that is not there.
    """
    check_finished(filesystem)
    checkpoint = read_sound(filesystem, checkpoint_lsn) if checkpoint_lsn else None
    journal: list[Piece] = []
    end = _journal(filesystem, checkpoint, cut, journal)
    starts = Starts()
    if checkpoint is not None:
        starts.restore(checkpoint.folds.get(Starts.name, []))
    start, nonce = starts.newest
    if end.started is not None and end.started.start > start:
        start, nonce = end.started.start, end.started.nonce
    witness = Witness(end.header.first_lsn, end.lsn, checkpoint_lsn, end.header.salt)
    packed = pack_witness(witness)
    pieces = [*journal, Piece(filenames.WITNESS, len(packed), len(packed), data=packed)]
    if checkpoint is not None:
        pieces += _whole(filesystem, filenames.checkpoint_file(checkpoint_lsn))
        pieces += _staged(checkpoint)
        for store in checkpoint.stores:
            pieces += _log(filesystem, store)
    if filesystem.exists(filenames.REPAIRS):
        pieces += _whole(filesystem, filenames.REPAIRS)
    return Contents(pieces, checkpoint_lsn, cut, start, nonce, end.identity)


def check_finished(filesystem: IFilesystem) -> None:
    """Raise :class:`UnknownFormat` for a format that is not known, :class:`CorruptData` for a directory in which a
    repair or a restore was begun and not finished.
    """
    check_version(filesystem)
    for mark, why in ((filenames.REPAIR_PLAN, UNFINISHED), (filenames.RESTORE, RESTORE_UNFINISHED)):
        if filesystem.exists(mark):
            raise CorruptData(why, mark)


# -- the journal -----------------------------------------------------------------------------------


def _journal(
    filesystem: IFilesystem, checkpoint: Checkpoint | None, cut: int, pieces: list[Piece]
) -> _JournalEnd:
    """Add the journal's files; return the newest one, the last LSN in it, the newest start that they tell of, and the
    identity of the data.
    """
    headers = _needed(filesystem, 1 if checkpoint is None else checkpoint.header.needed_from, cut)
    started: Started | None = None
    fold = IdentityFold()
    fold.restore(checkpoint.folds.get(IdentityFold.name, []) if checkpoint is not None else [])
    known = checkpoint.header.lsn if checkpoint is not None else 0
    lsn = 0
    for number, header in enumerate(headers):
        path = filenames.journal_file(header.first_lsn)
        end_lsn = headers[number + 1].previous_end if number + 1 < len(headers) else None
        with window(filesystem, path) as bytes_of:
            reader = FileReader(bytes_of, path, header, end_lsn)
            last = _proven(reader, cut, end_lsn is None)
            if last is not None:
                found = next(reader.records(next(_groups(reader))), None)
                if found and isinstance(found.record, Started):
                    started = found.record
                    if found.lsn > known:
                        fold.apply(found.lsn, started, b"")
                if not fold.identity:
                    fold.restore(_identity(reader, last, known))
                lsn = last.next_lsn - 1
            length = min(last.end if last is not None else FIRST_GROUP, bytes_of.size)
            pieces.append(Piece(path, length, bytes_of.size))
    return _JournalEnd(headers[-1], lsn, started, fold.identity)


def _identity(reader: FileReader, last: Group, known: int) -> list[str]:
    """Return the identity that the records of a file above a checkpoint give the data, if one does."""
    return [
        entry.record.identity
        for group in takewhile(lambda group: group.position <= last.position, _groups(reader))
        for entry in reader.records(group, known + 1)
        if isinstance(entry.record, Identified)
    ]


def newest_start(filesystem: IFilesystem) -> int:
    """Return the number of the start that made the newest journal file; 0 without one."""
    lsns = journal_lsns(filesystem)
    return file_start(filesystem, filenames.journal_file(lsns[-1])).header.start if lsns else 0


def _needed(filesystem: IFilesystem, needed_from: int, cut: int) -> list[FileHeader]:
    """Return the headers of the files with the records from ``needed_from`` to the cut, oldest first.

    Those before them may go at any moment, and are not looked at.
    """
    headers: list[FileHeader] = []
    for lsn in sorted((lsn for lsn in journal_lsns(filesystem) if lsn <= cut), reverse=True):
        path = filenames.journal_file(lsn)
        header = file_start(filesystem, path).header
        if header.first_lsn != lsn:
            raise _damaged(
                path, 0, f"its first LSN is {header.first_lsn}: it is another file under this name"
            )
        headers.insert(0, header)
        if header.previous_end <= needed_from:
            break
    else:
        oldest = filenames.journal_file(headers[0].first_lsn) if headers else filenames.JOURNAL_DIRECTORY
        raise _damaged(
            oldest, 0, f"records from LSN {needed_from} on are needed, and no file before it has them"
        )
    for header, following in pairwise(headers):
        if following.previous_first != header.first_lsn:
            path = filenames.journal_file(following.previous_first)
            raise _damaged(path, 0, "the file is missing, and records of it are needed")
    return headers


def _proven(reader: FileReader, cut: int, is_newest: bool) -> Group | None:
    """Read a file up to the cut, or to where the next file begins; return its last group, None if it has none."""
    last: Group | None = None
    for each in reader.groups():
        if isinstance(each, FileEnd):
            if is_newest or each.proof:
                what = each.proof or (
                    f"the journal ends at LSN {each.next_lsn - 1}, before the cut at {cut}; or it is another directory "
                    "than that of the broker that was asked"
                )
                raise _damaged(reader.path, each.position, f"{each.problem}, and {what}")
            return last
        last = each
        if is_newest and each.next_lsn > cut:
            return last
    return last


def _groups(reader: FileReader) -> Iterator[Group]:
    return (each for each in reader.groups() if isinstance(each, Group))


# -- beside it -------------------------------------------------------------------------------------


def _whole(filesystem: IFilesystem, path: str) -> list[Piece]:
    size = file_size(filesystem, path)
    return [Piece(path, size, size)]


def _staged(checkpoint: Checkpoint) -> Iterator[Piece]:
    """Yield the staged files with the frames that the checkpoint counts; later ones are in the journal."""
    for row in live_rows(checkpoint):
        if row.file_entries:
            last = row.entries[row.file_entries - 1]
            end = last.position + last.size
            path = filenames.staged_file(row.number.session, row.number.serial)
            yield Piece(path, end, end, Proof(STAGED_HEADER_BYTES, 0, last.checksum))


def _log(filesystem: IFilesystem, store: StoreState) -> Iterator[Piece]:
    """Yield the segments of a log as far as the checkpoint counts them, and the indexes of those that are closed."""
    for number, segment in enumerate(store.segments):
        path = segment_file(store.directory, segment.base_offset, SegmentKind.LOG, segment.epoch)
        proof = Proof(SEGMENT_HEADER_BYTES, seed_of(segment.salt), segment.checksum)
        yield Piece(path, segment.size, segment.size, proof)
        if number + 1 < len(store.segments):
            for kind in (SegmentKind.INDEX, SegmentKind.TIME):
                index = segment_file(store.directory, segment.base_offset, kind, segment.epoch)
                if filesystem.exists(index):
                    yield from _whole(filesystem, index)


def _damaged(path: str, position: int, what: str) -> CorruptJournal:
    return CorruptJournal(
        f"{path} is damaged at {position}: {what}. No backup can be made of it; nothing was changed. {NEXT_STEP}",
        path,
        position,
    )
