"""Frames of undecided transactions: in memory within a budget, else in the journal or in a staged file.

A staged file holds, behind its header, the frames of a transaction's adds, one after the other from the first, as far
as it goes. A checkpoint writes frames there that lie below the checkpoint before it, so that the journal below that can
be removed.
"""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from crc32c import crc32c

from journal.buffers import PooledAllocator
from journal.constants import GROUP_BYTES
from journal.errors import WHAT_ELSE, CorruptJournal, MemoryExhausted
from journal.formats import filenames
from journal.formats.staged_header import SALT_BYTES, STAGED_HEADER_BYTES, StagedHeader, pack_staged_header
from journal.interfaces import IFile, IFilesystem
from journal.records.record_parts import Run
from journal.transaction_states import TransactionNumber
from journal.vfs.filesystem import write_fully
from journal.wal.writer import Journal
from journal.words import count_text


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One run of a transaction: ``size`` bytes of frames, from ``start`` on in the data of the record at ``lsn``.

    They are at ``position`` of the staged file. ``checksum`` is CRC-32C over the frames of all runs up to this one, so
    that another transaction's frames are not taken for them. ``also`` is that of the run.
    """

    partition: int
    count: int
    size: int
    lsn: int
    position: int
    checksum: int
    start: int = 0
    also: list[int] = []

    @property
    def targets(self) -> list[int]:
        """Return the partitions that it goes to."""
        return [self.partition, *self.also] if self.partition else []


class Staged(msgspec.Struct, gc=False):
    """The frames of one transaction. ``held`` are those in memory, by entry number."""

    entries: list[Entry] = []
    held: dict[int, builtins.bytes] = {}
    file_entries: int = 0
    """How many of the entries, from the first, are in the staged file."""
    bytes: int = 0
    """Bytes of all staged frames."""
    placed_messages: int = 0
    placed_bytes: int = 0
    """Messages and bytes, each as often as a commit puts it into a log."""
    salt: int = 0
    """The salt of the staged file's header; 0 before there is one."""
    proven: int = 0
    """How many of the entries in the staged file have been read since, and were as staged."""

    parts: dict[int, tuple[int, int]] = {}
    """Messages and bytes for each partition, in the order in which these were first added to."""

    @classmethod
    def of(cls, entries: list[Entry], file_entries: int) -> Staged:
        """Return a transaction's frames with these entries, none of them in memory."""
        staged = cls(entries, {}, file_entries)
        for entry in entries:
            staged.count(entry)
        return staged

    def count(self, entry: Entry) -> None:
        """Add an entry's messages and bytes; summed up here, because there can be a million adds."""
        messages, size = entry.count, entry.size
        for partition in entry.targets:
            known = self.parts.get(partition)
            self.parts[partition] = (
                (messages, size) if known is None else (known[0] + messages, known[1] + size)
            )
            self.placed_messages += messages
            self.placed_bytes += size
        self.bytes += size

    def counts(self) -> dict[int, int]:
        """Return how many messages there are for each partition, in the order in which these were first added to."""
        return {partition: messages for partition, (messages, _) in self.parts.items()}


class StagingPlan(msgspec.Struct, frozen=True):
    """The frames that a checkpoint has to write to a transaction's staged file."""

    number: TransactionNumber
    entries: list[Entry]
    held: dict[int, bytes]
    """The frames in memory, by their index in ``entries``."""
    through: int
    """How many entries the staged file holds afterwards."""
    header: StagedHeader


class Proof(NamedTuple):
    """A reading of a staged file's entries from number ``first`` to below ``through``, for any thread."""

    staging: Staging
    number: TransactionNumber
    staged: Staged
    first: int
    through: int

    def run(self) -> None:
        """Read them; raises :class:`CorruptJournal` if they are not as staged."""
        entries = self.staged.entries
        before = entries[self.first - 1].checksum if self.first else 0
        start, last = entries[self.first].position, entries[self.through - 1]
        end = last.position + last.size
        if self.staging.sum_of(self.number, start, end, before) != last.checksum:
            for index in range(self.first, self.through):
                self.staging.load_staged(self.number, self.staged, index)  # whose error names the place
            raise AssertionError(
                f"the staged frames of {self.number} are damaged, and none of its entries is"
            )


class Staging:
    """The store of staged frames: holds them, spills them, reads them back.

    ``budget`` bounds the bytes in memory; they are counted by the allocator too.
    """

    def __init__(
        self,
        filesystem: IFilesystem,
        journal: Journal,
        allocator: PooledAllocator,
        budget: int,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._random = random
        self._filesystem = filesystem
        self._journal = journal
        self._allocator = allocator
        self._budget = budget
        self._cached: tuple[int, list[Any]] = (0, [])
        self.held_bytes = 0

    def hold(
        self,
        staged: Staged,
        run: Run,
        frames: bytes,
        lsn: int,
        checksum: int,
    ) -> None:
        """Add the frames of one run; frames without room in the budget are read back from the journal later.

        ``checksum`` is that of all runs so far, this one included.
        """
        size = len(frames)
        entries, before = staged.entries, staged.bytes
        number = len(entries)
        position = STAGED_HEADER_BYTES + before
        entry = Entry(run.partition, run.count, size, lsn, position, checksum, run.start, run.also)
        entries.append(entry)
        staged.count(entry)
        if self.held_bytes + size > self._budget:
            return
        try:
            self._allocator.reserve(size)
        except MemoryExhausted:
            return
        self.held_bytes += size
        staged.held[number] = frames

    def release(self, staged: Staged) -> None:
        """Release a transaction's memory: it has been decided and applied."""
        held = staged.held
        if held:
            size = staged.bytes if len(held) == len(staged.entries) else sum(map(len, held.values()))
            self._allocator.unreserve(size)
            self.held_bytes -= size
            held.clear()

    def load(self, number: TransactionNumber, staged: Staged, index: int) -> bytes | memoryview:
        """Return the frames of one entry, from wherever they are; raises :class:`CorruptJournal` if not as written."""
        frames = staged.held.get(index)
        if frames is not None:
            return frames
        entry = staged.entries[index]
        if index < staged.file_entries:
            return self.load_staged(number, staged, index)
        return self.load_journaled(entry)

    def preview(
        self, number: TransactionNumber, staged: Staged, max_bytes: int, forced_lsn: int
    ) -> list[tuple[int, builtins.bytes]]:
        """Return the first frames of a transaction: (partition, frames) by add, until ``max_bytes`` are reached.

        Ends before frames that are neither in memory nor forced yet.
        """
        found: list[tuple[int, bytes]] = []
        size = 0
        for index, entry in enumerate(staged.entries):
            if index not in staged.held and entry.lsn > forced_lsn:
                break
            if found and size + entry.size > max_bytes:
                break
            found.append((entry.partition, bytes(self.load(number, staged, index))))
            size += entry.size
        return found

    def load_staged(self, number: TransactionNumber, staged: Staged, index: int) -> bytes:
        """Return the frames of one entry, from the staged file; raises :class:`CorruptJournal` if not as staged."""
        entry = staged.entries[index]
        path = filenames.staged_file(number.session, number.serial)
        file = self._open(path)
        try:
            data: bytes = file.read(entry.position, entry.size)
        finally:
            file.close()
        before = staged.entries[index - 1].checksum if index else 0
        if len(data) != entry.size or crc32c(data, before) != entry.checksum:
            what = f"the {entry.size} bytes at {entry.position}"
            raise damaged_frames(
                path, what, f"the {count_text(entry.count, 'message')} staged there", entry.position
            )
        return data

    def proof(self, number: TransactionNumber, staged: Staged) -> Proof | None:
        """Return what must be read of the staged file before the decision; None if nothing must.

        After the decision every start would fail on damage there; so it is all of the file, also entries that are in
        memory.
        """
        if staged.proven == staged.file_entries:
            return None
        return Proof(self, number, staged, staged.proven, staged.file_entries)

    def verify(self, number: TransactionNumber, staged: Staged) -> None:
        """Read the part of the staged file that is not :class:`proven <Proof>`; raises :class:`CorruptJournal`.

        A gigabyte takes about a second, on this thread.
        """
        if staged.proven == staged.file_entries:
            return
        proof = self.proof(number, staged)
        if proof is not None:
            proof.run()
            staged.proven = proof.through

    def sum_of(self, number: TransactionNumber, start: int, end: int, checksum: int) -> int:
        """Return the checksum ``checksum`` continued over the bytes from ``start`` to ``end`` of a staged file."""
        file = self._open(filenames.staged_file(number.session, number.serial))
        try:
            for position in range(start, end, GROUP_BYTES):
                checksum = crc32c(file.read(position, min(GROUP_BYTES, end - position)), checksum)
        finally:
            file.close()
        return checksum

    def _open(self, path: str) -> IFile:
        try:
            file: IFile = self._filesystem.open(path, writable=False)
        except FileNotFoundError:
            raise damaged_frames(path, "the staged frames", "there: the file is missing") from None
        return file

    def load_journaled(self, entry: Entry) -> memoryview:
        """Return the frames of an entry from the journal; keeps the last group read, because neighbours share one."""
        first, records = self._cached
        if not first <= entry.lsn < first + len(records):
            first, records = self._cached = self._journal.group_records(entry.lsn)
        data: memoryview = records[entry.lsn - first].data
        return data[entry.start : entry.start + entry.size]

    def plan(self, number: TransactionNumber, staged: Staged, through_lsn: int) -> StagingPlan | None:
        """Return what must go to the staged file so that the journal up to ``through_lsn`` is not needed for it."""
        done = staged.file_entries
        through = done
        while through < len(staged.entries) and staged.entries[through].lsn <= through_lsn:
            through += 1
        if through == done:
            return None
        entries = staged.entries[done:through]
        held = {n - done: staged.held[n] for n in range(done, through) if n in staged.held}
        staged.salt = staged.salt or int.from_bytes(self._random(SALT_BYTES)) or 1
        return StagingPlan(number, entries, held, through, StagedHeader(number, staged.salt))

    def write(self, plan: StagingPlan) -> None:
        """Write and force the frames of a plan. (Flusher thread.) The caller forces the directory."""
        path = filenames.staged_file(plan.number.session, plan.number.serial)
        file = self._filesystem.open(path, create=True)
        first = 0
        records: list[Any] = []  # of the group read last; not shared with the reactor
        try:
            if plan.entries[0].position == STAGED_HEADER_BYTES:
                write_fully(file, 0, [pack_staged_header(plan.header)])
            for place, entry in enumerate(plan.entries):
                frames: bytes | memoryview | None = plan.held.get(place)
                if frames is None:
                    if not first <= entry.lsn < first + len(records):
                        first, records = self._journal.group_records(entry.lsn)
                    data = records[entry.lsn - first].data
                    frames = data[entry.start : entry.start + entry.size]
                write_fully(file, entry.position, [frames])
            file.force()
        finally:
            file.close()


def damaged_frames(path: str, what: str, wanted: str, position: int = 0) -> CorruptJournal:
    """Return the error for a staged file that does not hold the staged frames."""
    return CorruptJournal(
        f"{path} is damaged at {position}: {what} are not {wanted}. The transaction cannot be committed as it was "
        f"prepared; nothing was changed. Restore the file from a copy, or roll the transaction back. {WHAT_ELSE}",
        path,
        position,
    )
