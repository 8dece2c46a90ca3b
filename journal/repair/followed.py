"""What the records of the journal say of messages and transactions, for finding again what elsewhere is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from journal.check.followed import carried
from journal.errors import CorruptJournal, InvalidFrame
from journal.formats import filenames
from journal.formats.frame import walk
from journal.formats.record import (
    Messages,
    Run,
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.interfaces import IFilesystem
from journal.repair.pieces import Slice, Stamped
from journal.transaction import TransactionNumber
from journal.transactions.state import TransactionRow
from journal.vfs.file_window import read_some
from journal.wal.reader import JournalEntry


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of a segment whose messages, ``first`` to below ``end``, are to be found again."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Again:
    """Frames that were found again: the bytes of the messages from ``first`` to below ``end``."""

    first: int
    end: int
    piece: Slice | Stamped


@dataclass(slots=True)
class Finder:
    """Fed with records in order, it collects what lies in the holes, and where the adds of transactions are."""

    filesystem: IFilesystem
    holes: list[Hole]
    adds: dict[TransactionNumber, list[tuple[int, int, Slice]]] = field(default_factory=dict)
    """(partition, count, frames) of transactions that have not ended yet."""
    staged: dict[tuple[int, int], Slice] = field(default_factory=dict)
    """The frames as they were sent that begin there in the data of the records with these LSNs: those asked for."""
    wanted: set[int] = field(default_factory=set)
    found: dict[Hole, list[Again]] = field(default_factory=dict)

    def know(self, rows: list[TransactionRow]) -> None:
        """Transactions that were undecided at a checkpoint, with what of them is in staged files."""
        for row in rows:
            path = filenames.staged_file(row.number.session, row.number.serial)
            if self.filesystem.exists(path):
                self.adds.setdefault(
                    row.number,
                    [
                        (e.partition, e.count, Slice(path, e.position, e.size))
                        for e in row.entries[: row.file_entries]
                    ],
                )

    def follow(self, entry: JournalEntry) -> None:
        """Take in the next record."""
        match entry.record:
            case Messages() as sent:
                self._sent(entry, sent)
            case TransactionAdded() as added:
                piece = _data_of(entry)
                if entry.lsn in self.wanted:
                    self.staged[entry.lsn, 0] = piece
                number = TransactionNumber(added.session, added.serial)
                self.adds.setdefault(number, []).append((added.partition, added.count, piece))
            case TransactionPrepared() as prepared:
                number = TransactionNumber(prepared.session, prepared.serial)
                for run, piece in _runs_of(entry):
                    if entry.lsn in self.wanted:
                        self.staged[entry.lsn, run.start] = piece
                    self.adds.setdefault(number, []).append((run.partition, run.count, piece))
            case TransactionCommitted() as committed:
                adds = self.adds.pop(TransactionNumber(committed.session, committed.serial), [])
                adds += [(run.partition, run.count, piece) for run, piece in _runs_of(entry)]
                for placement in committed.placements:
                    self._placed(placement.partition, placement.base_offset, placement.count, adds)
            case TransactionRolledBack() as ended:
                self.adds.pop(TransactionNumber(ended.session, ended.serial), None)

    def _sent(self, entry: JournalEntry, sent: Messages) -> None:
        for hole in self._touched(sent.partition, sent.base_offset, sent.count):
            start = _data_of(entry)
            for position, length, offset, count in walk(entry.data):
                if hole.first <= offset and offset + count <= hole.end:
                    piece = Slice(start.path, start.position + position, length)
                    self.found.setdefault(hole, []).append(Again(offset, offset + count, piece))

    def _placed(self, partition: int, base: int, count: int, adds: list[tuple[int, int, Slice]]) -> None:
        holes = list(self._touched(partition, base, count))
        mine = [(number, piece) for of, number, piece in adds if of == partition]
        if not holes or sum(number for number, _ in mine) != count:
            return
        for number, piece in mine:
            for hole in holes:
                if base < hole.end and hole.first < base + number:
                    self._found_add(hole, piece, base, number)
            base += number

    def _found_add(self, hole: Hole, piece: Slice, base: int, count: int) -> None:
        data = read_some(self.filesystem, piece.path, piece.position, piece.length)
        try:
            frames = list(walk(data))
        except InvalidFrame:
            return
        if sum(frame[3] for frame in frames) != count:
            return
        for position, length, _, messages in frames:
            if hole.first <= base and base + messages <= hole.end:
                stamped = Stamped(piece.path, piece.position + position, length, base)
                self.found.setdefault(hole, []).append(Again(base, base + messages, stamped))
            base += messages

    def _touched(self, partition: int, base: int, count: int) -> Iterator[Hole]:
        return (h for h in self.holes if h.partition == partition and base < h.end and h.first < base + count)


def _runs_of(entry: JournalEntry) -> list[tuple[Run, Slice]]:
    """The runs of a deciding record; none if it does not say where they are."""
    try:
        return [(run, Slice(where.path, where.position, where.size)) for run, where, _ in carried(entry)]
    except CorruptJournal:
        return []


def _data_of(entry: JournalEntry) -> Slice:
    return Slice(entry.path, entry.position + entry.length - len(entry.data), len(entry.data))
