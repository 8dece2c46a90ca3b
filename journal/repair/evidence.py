"""The finder follows the journal's records to find messages and transactions again that are damaged elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from journal.check.effects import Add, AppendTimes, effect_of
from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.frame import walk
from journal.interfaces import IFilesystem
from journal.records.record import Due, Messages, Placement, Published, sends, slices
from journal.repair.file_pieces import Slice, Stamped
from journal.transaction_states import TransactionNumber
from journal.transactions.state import TransactionRow
from journal.vfs.file_window import read_some
from journal.wal.reader import JournalEntry


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of a segment whose messages, from ``first`` to below ``end``, are to be found again."""

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
    """The finder takes records in order and collects the messages in the holes, and where transactions' adds are."""

    filesystem: IFilesystem
    holes: list[Hole]
    adds: dict[TransactionNumber, list[Add]] = field(default_factory=dict)
    """The transactions that have not ended yet."""
    staged: dict[tuple[int, int], Slice] = field(default_factory=dict)
    """The frames as they were sent that begin there in the data of the records with these LSNs: those asked for."""
    wanted: set[int] = field(default_factory=set)
    found: dict[Hole, list[Again]] = field(default_factory=dict)
    times: AppendTimes = field(default_factory=AppendTimes)

    def know(self, rows: list[TransactionRow]) -> None:
        """Take in the transactions that were undecided at a checkpoint, with the parts of them that are in
        staged files.
        """
        for row in rows:
            path = filenames.staged_file(row.number.session, row.number.serial)
            if self.filesystem.exists(path):
                in_file = row.entries[: row.file_entries]
                self.adds.setdefault(row.number, [Add.staged(each, path) for each in in_file])

    def follow(self, entry: JournalEntry) -> None:
        """Take in the next record."""
        effect = effect_of(entry)
        self.times.follow(entry)
        if effect.number is None:
            if isinstance(entry.record, Messages | Due | Published):
                with suppress(InvalidFrame):  # a start refuses the record
                    self._sent(entry, entry.record)
            return
        if effect.adds:
            if entry.lsn in self.wanted:
                self.staged |= {
                    (entry.lsn, add.start): Slice(add.path, add.position, add.size) for add in effect.adds
                }
            self.adds.setdefault(effect.number, []).extend(effect.adds)
        if effect.decision is not None:
            adds = self.adds.pop(effect.number, [])
            for placed in effect.placements:
                self._placed(placed, adds, self.times.of(entry) or 0)

    def _sent(self, entry: JournalEntry, record: Messages | Due | Published) -> None:
        if isinstance(record, Published):
            self._published(entry, record)
            return
        start = entry.position + entry.length - len(entry.data)
        for sent, frames in sends(record, entry.data):
            for hole in self._touched(sent.partition, sent.base_offset, sent.count):
                for position, length, offset, count in walk(frames):
                    if hole.first <= offset and offset + count <= hole.end:
                        piece = Slice(entry.path, start + position, length)
                        self.found.setdefault(hole, []).append(Again(offset, offset + count, piece))
            start += len(frames)

    def _published(self, entry: JournalEntry, record: Published) -> None:
        start = entry.position + entry.length - len(entry.data)
        adds = [
            Add(run.partition, run.count, entry.path, start + run.start, len(frames), also=run.also)
            for run, frames in slices(record, entry.data)
        ]
        for placed in record.placements:
            self._placed(placed, adds, self.times.of(entry) or 0)

    def _placed(self, placed: Placement, adds: list[Add], appended: int) -> None:
        base = placed.base_offset
        holes = list(self._touched(placed.partition, base, placed.count))
        mine = [add for add in adds if placed.partition in add.targets]
        if not holes or sum(add.count for add in mine) != placed.count:
            return
        for add in mine:
            for hole in holes:
                if base < hole.end and hole.first < base + add.count:
                    self._found_add(hole, add, base, appended)
            base += add.count

    def _found_add(self, hole: Hole, add: Add, base: int, appended: int) -> None:
        data = read_some(self.filesystem, add.path, add.position, add.size)
        try:
            frames = list(walk(data))
        except InvalidFrame:
            return
        if sum(frame[3] for frame in frames) != add.count:
            return
        for position, length, _, messages in frames:
            if hole.first <= base and base + messages <= hole.end:
                stamped = Stamped(add.path, add.position + position, length, base, appended)
                self.found.setdefault(hole, []).append(Again(base, base + messages, stamped))
            base += messages

    def _touched(self, partition: int, base: int, count: int) -> Iterator[Hole]:
        return (h for h in self.holes if h.partition == partition and base < h.end and h.first < base + count)
